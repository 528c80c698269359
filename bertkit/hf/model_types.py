"""The models of Hugging Face by model_type: what each calls its settings and its weights."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bertkit.model.config import EncoderConfig
from data_pipelines.table import Table


@dataclass(frozen=True, kw_only=True)
class ModelType:
    config: type[EncoderConfig]
    """Which of our encoders computes the same."""
    class_name: str
    """What the names of its classes in transformers begin with."""
    prefix: str
    """Prefix of the encoder's weights in a model with a head."""
    names: Mapping[str, str | tuple[str, ...]]
    """Our modules, each with theirs: with the prefix, `*` for the number of a layer. Where theirs are several, ours
    is one above the other. `head.decoder_weight` and `head.decoder_bias` name weights rather than modules. A part of a
    head that is not named here is called there as it is here."""
    read: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """The values of a config.json, some of them under other keys or in another form, as those of our config. Keys that
    it leaves are judged by bertkit.hf.config."""
    write: Callable[[Any], dict[str, Any]] = asdict
    """The opposite: our config as the values that transformers reads."""
    first_position: Callable[[Any], int] = lambda config: 0
    """Row of their position table that belongs to a sequence's first token; the rows before are never looked up."""
    second_bias: str | None = None
    """Another name under which the bias of the vocabulary projection is stored; where nothing is tied, this one
    counts."""
    ignored: tuple[str, ...] = ()
    """Beginnings of weights that other pretraining tasks left behind."""
    carried: tuple[str, ...] = ()
    """Keys of its config.json that change nothing our encoder computes, beside those that every model may have."""

    def head_name(self, ours: str) -> str:
        """Their name of a part of a head."""
        name = self.names.get(ours, ours)
        assert isinstance(name, str), ours
        return name


MODEL_TYPES: Table[ModelType] = Table(
    "model_type",
    {
        "bert": "bertkit.hf.bert:BERT",
        "roberta": "bertkit.hf.roberta:ROBERTA",
        "xlm-roberta": "bertkit.hf.roberta:XLM_ROBERTA",
        "camembert": "bertkit.hf.roberta:CAMEMBERT",
        "distilbert": "bertkit.hf.distilbert:DISTILBERT",
        "electra": "bertkit.hf.electra:ELECTRA",
        "modernbert": "bertkit.hf.modernbert:MODERNBERT",
    },
)
