"""ELECTRA: a BERT whose discriminator has no masked-LM head; a new one is named like the generator's."""

from typing import Any

from bertkit.hf.bert import bert_names, write_bert
from bertkit.hf.model_types import ModelType
from bertkit.model.config import BertConfig
from data_pipelines.bounds import shown


def _read(values: dict[str, Any]) -> dict[str, Any]:
    values = {
        "embedding_size": 128,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
        **values,
    }
    embedding_size, hidden_size = values.pop("embedding_size"), values["hidden_size"]
    if embedding_size != hidden_size:
        raise ValueError(
            f"embedding_size = {shown(embedding_size)} differs from hidden_size = {shown(hidden_size)}; "
            "only an ELECTRA with both alike, such as the base and large discriminators, can be loaded"
        )
    return values | {"head_act": "gelu", "pooled_act": "gelu"}


def _write(config: BertConfig) -> dict[str, Any]:
    return write_bert(config) | {"embedding_size": config.hidden_size}


ELECTRA = ModelType(
    config=BertConfig,
    class_name="Electra",
    prefix="electra.",
    names={
        **bert_names("electra."),
        "head.transform.dense": "generator_predictions.dense",
        "head.transform.norm": "generator_predictions.LayerNorm",
        "head.decoder_weight": "generator_lm_head.weight",
        "head.decoder_bias": "generator_lm_head.bias",
        "head.pooler": "classifier.dense",
        "head.labels.classifier": "classifier.out_proj",
    },
    read=_read,
    write=_write,
    ignored=("discriminator_predictions.",),
    carried=("summary_activation", "summary_last_dropout", "summary_type", "summary_use_proj"),
)
