"""The values of a config.json enter, a checked encoder config leaves, and back; both spellings of rope settings."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

from bertkit.config.fields import build
from bertkit.model.config import BertConfig, EncoderConfig, ModernBertConfig
from data_pipelines.table import nearest

Family = Literal["bert", "roberta", "modernbert"]

# Keys that say nothing about what an encoder computes: bookkeeping, special ids, labels, settings of callers.
_WITHOUT_EFFECT = {
    "_name_or_path", "_attn_implementation_autoset", "_num_labels", "architectures", "attn_implementation",
    "bos_token_id", "chunk_size_feed_forward", "cls_token_id", "deterministic_flash_attn", "directionality", "dtype",
    "eos_token_id", "finetuning_task", "gradient_checkpointing", "id2label", "is_encoder_decoder", "label2id",
    "language", "mask_token_id", "model_type", "name_or_path", "num_labels", "output_attentions",
    "output_hidden_states", "output_past", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
    "pooler_size_per_head", "pooler_type", "problem_type", "reference_compile", "repad_logits_with_grad",
    "return_dict", "sep_token_id", "sparse_pred_ignore_index", "sparse_prediction", "task_specific_params",
    "tokenizer_class", "torch_dtype", "torchscript", "transformers_version", "unk_token_id", "use_bfloat16",
    "use_cache", "use_return_dict",
    # Older versions wrote the settings of text generation into every model's config.
    "bad_words_ids", "decoder_start_token_id", "do_sample", "early_stopping", "eos_token_ids", "length_penalty",
    "max_length", "min_length", "no_repeat_ngram_size", "num_beams", "num_return_sequences", "prefix",
    "repetition_penalty", "temperature", "top_k", "top_p",
}  # fmt: skip
# Keys that would change what an encoder computes, and the one value at which they do not.
_FIXED: dict[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,),
    "auto_map": (None,),
    "is_decoder": (False,),
    "position_embedding_type": ("absolute", None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "rope_scaling": (None,),
}


def read_config(values: dict[str, Any], source: Path) -> tuple[Family, EncoderConfig, int]:
    """The family a config.json belongs to, its encoder, and the row of the first position in its table."""
    kind = values.get("model_type")
    if kind not in ("bert", "roberta", "xlm-roberta", "modernbert"):
        raise ValueError(f"{source}: model_type must be bert, roberta, xlm-roberta or modernbert, got {kind!r}")
    cls: type[EncoderConfig] = ModernBertConfig if kind == "modernbert" else BertConfig
    values = dict(values)
    if kind == "modernbert":
        _modern_spelling(values, source)
    known = {field.name for field in fields(cls)} - set(_FIXED)
    own = {}
    for key, value in values.items():
        if key in known:
            own[key] = value
        elif key in _FIXED and value not in _FIXED[key]:
            raise ValueError(f"{source}: {key} = {str(value)[:60]!r} is not supported")
        elif key not in _FIXED and key not in _WITHOUT_EFFECT:
            match = nearest(key, known)
            hint = f"; did you mean {match!r}?" if match else "; remove it if it does not change the model"
            raise ValueError(f"{source}: unknown key {key!r}{hint}")
    first_position = 0
    if kind in ("roberta", "xlm-roberta"):
        # RoBERTa counts positions from the padding id + 1; the rows before are never looked up.
        first_position = _number(own, "pad_token_id", 1, source) + 1
        own["pad_token_id"] = first_position - 1
        own["max_position_embeddings"] = _number(own, "max_position_embeddings", 512, source) - first_position
    try:
        config = build(cls, own)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
    return ("roberta" if first_position else kind), config, first_position


def write_config(config: Any) -> dict[str, Any]:
    """The values that transformers reads, in every version that knows the model."""
    values: dict[str, Any] = {**asdict(config), "dtype": "float32"}
    if isinstance(config, BertConfig):
        # A sinusoidal table is among the weights, so to every reader it is a learned one.
        return {"model_type": "bert", **values, "position_embedding_type": "absolute"}
    kinds = ["full_attention" if window is None else "sliding_attention" for window in config.windows()]
    ropes = {"full_attention": config.global_rope_theta, "sliding_attention": config.local_rope_theta}
    return {
        "model_type": "modernbert",
        **values,
        "layer_types": kinds,
        "rope_parameters": {kind: {"rope_theta": theta, "rope_type": "default"} for kind, theta in ropes.items()},
        # Left out, these would default to ids of another vocabulary.
        **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
    }


def _modern_spelling(values: dict[str, Any], source: Path) -> None:
    """Newer files hold rope_parameters by kind of attention, older ones two thetas; keep the two thetas."""
    ropes = _group(values.pop("rope_parameters", None), "rope_parameters", source)
    for kind, key in (("full_attention", "global_rope_theta"), ("sliding_attention", "local_rope_theta")):
        rope = _group(ropes.get(kind), f"rope_parameters.{kind}", source)
        if rope.get("rope_type", "default") != "default":
            raise ValueError(f"{source}: rope_parameters.{kind}.rope_type = {rope['rope_type']!r} is not supported")
        unknown = set(rope) - {"rope_type", "rope_theta"}
        if unknown:
            raise ValueError(f"{source}: rope_parameters.{kind}.{min(unknown)} is not supported")
        if rope.get("rope_theta") is not None:
            values[key] = rope["rope_theta"]
    unknown = set(ropes) - {"full_attention", "sliding_attention"}
    if unknown:
        raise ValueError(f"{source}: rope_parameters.{min(unknown)} is not supported")
    if "local_rope_theta" in values and values["local_rope_theta"] is None:
        values["local_rope_theta"] = values.get("global_rope_theta", ModernBertConfig.global_rope_theta)
    if values.get("layer_types") is None:
        values.pop("layer_types", None)
    # Present in published files, read by nobody.
    values.pop("layer_norm_eps", None)
    if values.get("initializer_cutoff_factor") is None:
        values.pop("initializer_cutoff_factor", None)


def _group(value: Any, key: str, source: Path) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{source}: {key} must hold keys of its own, got {str(value)[:80]}")
    return value or {}


def _number(values: dict[str, Any], key: str, default: int, source: Path) -> int:
    value = values.get(key, default)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{source}: {key} must be a whole number, got {value!r}")
    return value
