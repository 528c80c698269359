"""DistilBERT: a BERT without token types, with settings and weights under its own names."""

from typing import Any

from bertkit.hf.model_types import ModelType
from bertkit.model.config import BertConfig

_KEYS = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "pooled_dropout": "seq_classif_dropout",
    **{key: key for key in ("vocab_size", "max_position_embeddings", "initializer_range", "pad_token_id")},
    "tie_word_embeddings": "tie_word_embeddings",
}
"""Our settings, each with theirs."""

_FIXED = {"type_vocab_size": 0, "layer_norm_eps": 1e-12, "pooled_act": "relu"}


def _read(values: dict[str, Any]) -> dict[str, Any]:
    values = {"n_layers": 6, "seq_classif_dropout": 0.2, **values}
    ours = {key: values.pop(theirs) for key, theirs in _KEYS.items() if theirs in values}
    # Its fixed table is among the weights like a learned one.
    if values.pop("sinusoidal_pos_embds", False):
        ours["position_embedding_type"] = "sinusoidal"
    return values | ours | _FIXED


def _write(config: BertConfig) -> dict[str, Any]:
    values = {theirs: getattr(config, ours) for ours, theirs in _KEYS.items()}
    return values | {"sinusoidal_pos_embds": config.position_embedding_type == "sinusoidal"}


_LAYER = "distilbert.transformer.layer.*"
DISTILBERT = ModelType(
    config=BertConfig,
    class_name="DistilBert",
    prefix="distilbert.",
    names={
        "tokens": "distilbert.embeddings.word_embeddings",
        "positions": "distilbert.embeddings.position_embeddings",
        "norm": "distilbert.embeddings.LayerNorm",
        "layers.*.attention_in": tuple(f"{_LAYER}.attention.{part}_lin" for part in "qkv"),
        "layers.*.attention_out": f"{_LAYER}.attention.out_lin",
        "layers.*.attention_norm": f"{_LAYER}.sa_layer_norm",
        "layers.*.mlp_in": f"{_LAYER}.ffn.lin1",
        "layers.*.mlp_out": f"{_LAYER}.ffn.lin2",
        "layers.*.mlp_norm": f"{_LAYER}.output_layer_norm",
        "head.transform.dense": "vocab_transform",
        "head.transform.norm": "vocab_layer_norm",
        "head.decoder_weight": "vocab_projector.weight",
        "head.decoder_bias": "vocab_projector.bias",
        "head.classifier": "classifier",
        "head.pooler": "pre_classifier",
        "head.labels.classifier": "classifier",
    },
    read=_read,
    write=_write,
    carried=("qa_dropout",),
)
