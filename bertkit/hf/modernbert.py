"""ModernBERT as transformers names it, with the rope settings of newer and of older versions."""

from dataclasses import asdict
from typing import Any

from bertkit.hf.model_types import ModelType
from bertkit.model.config import ModernBertConfig

_THETAS = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}


def _read(values: dict[str, Any]) -> dict[str, Any]:
    """Newer files hold rope_parameters by kind of attention, older ones two thetas; keep the two thetas."""
    ropes = _group(values.pop("rope_parameters", None), "rope_parameters")
    for kind, key in _THETAS.items():
        rope = _group(ropes.get(kind), f"rope_parameters.{kind}")
        if rope.get("rope_type", "default") != "default":
            raise ValueError(f"rope_parameters.{kind}.rope_type = {rope['rope_type']!r} is not supported")
        _refuse_others(rope, {"rope_type", "rope_theta"}, f"rope_parameters.{kind}")
        if rope.get("rope_theta") is not None:
            values[key] = rope["rope_theta"]
    _refuse_others(ropes, set(_THETAS), "rope_parameters")
    if "local_rope_theta" in values and values["local_rope_theta"] is None:
        values["local_rope_theta"] = values.get("global_rope_theta", ModernBertConfig.global_rope_theta)
    for key in ("layer_types", "initializer_cutoff_factor"):
        if values.get(key) is None:
            values.pop(key, None)
    return values


def _write(config: ModernBertConfig) -> dict[str, Any]:
    kinds = ["full_attention" if window is None else "sliding_attention" for window in config.windows()]
    ropes = {kind: {"rope_theta": getattr(config, key), "rope_type": "default"} for kind, key in _THETAS.items()}
    # Left out, the ids would default to those of another vocabulary.
    no_ids = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
    return {**asdict(config), "layer_types": kinds, "rope_parameters": ropes, **no_ids}


def _group(value: Any, key: str) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{key} must be an object, got {str(value)[:80]}")
    return value or {}


def _refuse_others(values: dict[str, Any], known: set[str], key: str) -> None:
    for other in sorted(set(values) - known):
        raise ValueError(f"{key}.{other} is not supported")


MODERNBERT = ModelType(
    config=ModernBertConfig,
    class_name="ModernBert",
    prefix="model.",
    names={
        "tokens": "model.embeddings.tok_embeddings",
        "norm": "model.embeddings.norm",
        "layers.*.attention_norm": "model.layers.*.attn_norm",
        "layers.*.attention_in": "model.layers.*.attn.Wqkv",
        "layers.*.attention_out": "model.layers.*.attn.Wo",
        "layers.*.mlp_norm": "model.layers.*.mlp_norm",
        "layers.*.mlp_in": "model.layers.*.mlp.Wi",
        "layers.*.mlp_out": "model.layers.*.mlp.Wo",
        "final_norm": "model.final_norm",
        "head.transform.dense": "head.dense",
        "head.transform.norm": "head.norm",
        "head.decoder_weight": "decoder.weight",
        "head.decoder_bias": "decoder.bias",
        "head.classifier": "classifier",
        "head.labels.transform.dense": "head.dense",
        "head.labels.transform.norm": "head.norm",
        "head.labels.classifier": "classifier",
    },
    read=_read,
    write=_write,
    carried=(
        *("deterministic_flash_attn", "reference_compile", "repad_logits_with_grad"),
        *("sparse_pred_ignore_index", "sparse_prediction"),
        "layer_norm_eps",  # in published files, read by nobody
    ),
)
