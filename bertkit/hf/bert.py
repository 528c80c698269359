"""BERT as transformers names it; RoBERTa and ELECTRA name most of their weights alike."""

from dataclasses import asdict
from typing import Any

from bertkit.hf.model_types import ModelType
from bertkit.model.config import BertConfig


def bert_names(prefix: str) -> dict[str, str | tuple[str, ...]]:
    """The encoder's weights, and the classifier of tokens."""
    layer = f"{prefix}encoder.layer.*"
    return {
        "tokens": f"{prefix}embeddings.word_embeddings",
        "positions": f"{prefix}embeddings.position_embeddings",
        "types": f"{prefix}embeddings.token_type_embeddings",
        "norm": f"{prefix}embeddings.LayerNorm",
        "layers.*.attention_in": tuple(f"{layer}.attention.self.{part}" for part in ("query", "key", "value")),
        "layers.*.attention_out": f"{layer}.attention.output.dense",
        "layers.*.attention_norm": f"{layer}.attention.output.LayerNorm",
        "layers.*.mlp_in": f"{layer}.intermediate.dense",
        "layers.*.mlp_out": f"{layer}.output.dense",
        "layers.*.mlp_norm": f"{layer}.output.LayerNorm",
        "head.classifier": "classifier",
    }


def write_bert(config: BertConfig) -> dict[str, Any]:
    values = asdict(config)
    # A sinusoidal table is among the weights, so to every reader it is a learned one.
    for ours_alone in ("head_act", "pooled_act", "pooled_dropout", "position_embedding_type"):
        del values[ours_alone]
    return values


BERT = ModelType(
    config=BertConfig,
    class_name="Bert",
    prefix="bert.",
    names={
        **bert_names("bert."),
        "head.transform.dense": "cls.predictions.transform.dense",
        "head.transform.norm": "cls.predictions.transform.LayerNorm",
        "head.decoder_weight": "cls.predictions.decoder.weight",
        "head.decoder_bias": "cls.predictions.bias",
        "pooler": "bert.pooler.dense",
        "head.pooler": "bert.pooler.dense",
        "head.labels.classifier": "classifier",
    },
    write=write_bert,
    second_bias="cls.predictions.decoder.bias",
    ignored=("cls.seq_relationship.",),
)
