"""Reads and writes the values of a config.json as a checked encoder config."""

import difflib
import types
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from bertkit.hf.model_types import MODEL_TYPES, ModelType
from bertkit.model.config import BY_FOLDER, EncoderConfig, set_by
from data_pipelines.bounds import shown

# Keys that the writer of a config.json decides anew.
_OUR_OWN = {
    "_attn_implementation_autoset", "_name_or_path", "_num_labels", "architectures", "attn_implementation", "dtype",
    "model_type", "name_or_path", "torch_dtype", "transformers_version",
}  # fmt: skip
# Keys that say nothing about what an encoder computes: bookkeeping, labels, special ids, settings of callers.
_CARRIED = {
    "bos_token_id", "chunk_size_feed_forward", "cls_token_id", "directionality", "eos_token_id", "finetuning_task",
    "gradient_checkpointing", "id2label", "is_encoder_decoder", "label2id", "language", "mask_token_id", "num_labels",
    "output_attentions", "output_hidden_states", "output_past", "pooler_fc_size", "pooler_num_attention_heads",
    "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "problem_type", "return_dict", "sep_token_id",
    "task_specific_params", "tokenizer_class", "torchscript", "unk_token_id", "use_bfloat16", "use_cache",
    "use_return_dict",
    # Older versions wrote the settings of text generation into every model's config.
    "bad_words_ids", "decoder_start_token_id", "do_sample", "early_stopping", "eos_token_ids", "length_penalty",
    "max_length", "min_length", "no_repeat_ngram_size", "num_beams", "num_return_sequences", "prefix",
    "repetition_penalty", "temperature", "top_k", "top_p",
}  # fmt: skip
# Keys that would change what an encoder computes, and the values at which they do not.
_FIXED: dict[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,),
    "auto_map": (None,),
    "is_decoder": (False,),
    "position_embedding_type": ("absolute", None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "rope_scaling": (None,),
}
_OTHER_SPELLINGS = {"swish": "silu"}
_KINDS: dict[Any, tuple[str, Any]] = {
    bool: ("true or false", bool),
    int: ("a whole number", int),
    float: ("a number", (int, float)),
    str: ("text", str),
}


def read_config(values: dict[str, Any], model_type: str, source: Path) -> EncoderConfig:
    """The encoder that a config.json of this model_type describes."""
    row = MODEL_TYPES[model_type]
    ours_alone = {name for name, what in set_by(row.config).items() if what == BY_FOLDER.what} - {"model_type"}
    for key, value in values.items():
        if key in ours_alone or value not in _FIXED.get(key, (value,)):
            raise ValueError(f"{source}: {key} = {shown(value)} is not supported")
    try:
        ours = row.read({key: value for key, value in values.items() if key not in _FIXED})
        hints = get_type_hints(row.config)
        own = {key: _typed(value, hints[key], key) for key, value in ours.items() if _is_own(key, row, hints)}
        carried = {key: value for key, value in ours.items() if key not in own and key not in _OUR_OWN}
        carried |= {key: value for key, value in values.items() if key in _FIXED and key != "auto_map"}
        if unknown := sorted(carried.keys() - _CARRIED - _FIXED.keys() - set(row.carried)):
            warnings.warn(f"{source}: {', '.join(unknown)}: unknown, kept without effect", stacklevel=2)
        return row.config(**own, model_type=model_type, carried=carried)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def write_config(config: EncoderConfig) -> dict[str, Any]:
    """The values that transformers reads, in every version that knows the model."""
    values = MODEL_TYPES[config.model_type].write(config)
    values.pop("carried", None)
    return {"model_type": config.model_type, **values, **config.carried, "dtype": "float32"}


def _is_own(key: str, row: ModelType, hints: dict[str, Any]) -> bool:
    """Whether a key is one of our config's; one that is almost spelled so would change what is computed, and is
    refused."""
    if key in hints and key not in ("model_type", "carried"):
        return True
    if key not in _OUR_OWN and key not in _CARRIED and key not in row.carried:
        meant = difflib.get_close_matches(key, [field.name for field in fields(row.config)], n=1, cutoff=0.85)
        if meant:
            raise ValueError(
                f"unknown key {key!r}; did you mean {meant[0]!r}? Remove it if it does not change the model"
            )
    return False


def _typed(value: Any, kind: Any, key: str) -> Any:
    """A value of JSON as our config needs it: the right type, a tuple for a list, the usual name."""
    choices = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (choice for choice in choices if choice is not type(None))
        return None if value is None else _typed(value, kind, key)
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_typed(item, choices[0], f"{key}[{index}]") for index, item in enumerate(value))
    if get_origin(kind) is Literal:
        value = _OTHER_SPELLINGS.get(value, value) if isinstance(value, str) else value
        if value in choices:
            return value
        raise ValueError(f"{key} must be one of {', '.join(choices)}, got {shown(value)}")
    name, accepted = _KINDS.get(kind, ("a list", ()))
    if isinstance(value, accepted) and (kind is bool or not isinstance(value, bool)):
        try:
            return kind(value)
        except OverflowError:
            pass  # a whole number that no float can hold
    raise ValueError(f"{key} must be {name}, got {shown(value)}")
