"""RoBERTa, XLM-RoBERTa and CamemBERT: a BERT whose positions begin after the padding id; they differ by name only."""

from typing import Any

from bertkit.hf.bert import bert_names, write_bert
from bertkit.hf.model_types import ModelType
from bertkit.model.config import BertConfig


def _read(values: dict[str, Any]) -> dict[str, Any]:
    values = {"vocab_size": 50265, "pad_token_id": 1, "max_position_embeddings": 512} | values
    for key in ("pad_token_id", "max_position_embeddings"):
        if not isinstance(values[key], int) or values[key] < 0:
            raise ValueError(f"{key} must be a whole number, got {values[key]!r}")
    longest = values["max_position_embeddings"] - values["pad_token_id"] - 1
    return values | {"max_position_embeddings": longest, "head_act": "gelu"}


def _write(config: BertConfig) -> dict[str, Any]:
    return write_bert(config) | {"max_position_embeddings": config.max_position_embeddings + _first_position(config)}


def _first_position(config: BertConfig) -> int:
    assert config.pad_token_id is not None
    return config.pad_token_id + 1


def _model_type(class_name: str) -> ModelType:
    return ModelType(
        config=BertConfig,
        class_name=class_name,
        prefix="roberta.",
        names={
            **bert_names("roberta."),
            "head.transform.dense": "lm_head.dense",
            "head.transform.norm": "lm_head.layer_norm",
            "head.decoder_weight": "lm_head.decoder.weight",
            "head.decoder_bias": "lm_head.bias",
            "pooler": "roberta.pooler.dense",
            "head.pooler": "classifier.dense",
            "head.labels.classifier": "classifier.out_proj",
        },
        read=_read,
        write=_write,
        first_position=_first_position,
        second_bias="lm_head.decoder.bias",
    )


ROBERTA, XLM_ROBERTA, CAMEMBERT = (_model_type(name) for name in ("Roberta", "XLMRoberta", "Camembert"))
