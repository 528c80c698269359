"""config.json and the names of the weights enter, the layout of a model leaves, and back."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bertkit.hf.config import read_config, write_config
from bertkit.model.config import BertConfig, EncoderConfig

Head = str
Family = Literal["bert", "roberta", "modernbert"]
Shapes = dict[str, tuple[int, ...]]


class HeadNames(NamedTuple):
    """Where a family keeps the parts of its masked-LM head."""

    dense: str
    norm: str
    decoder: str
    bias: str


_HEAD_NAMES = {
    "bert": HeadNames(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder",
        "cls.predictions.bias",
    ),
    "roberta": HeadNames("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"),
    "modernbert": HeadNames("head.dense", "head.norm", "decoder", "decoder.bias"),
}
_PREFIXES = {"bert": "bert.", "roberta": "roberta.", "modernbert": "model."}
_CLASSES = {"bert": "Bert", "modernbert": "ModernBert"}
_KINDS = {
    "bare": "Model",
    "masked-lm": "ForMaskedLM",
    "tagger": "ForTokenClassification",
    "classifier": "ForSequenceClassification",
}
_LAYER_PATTERN = {
    "bert": r"encoder\.layer\.(\d+)\.",
    "roberta": r"encoder\.layer\.(\d+)\.",
    "modernbert": r"layers\.(\d+)\.",
}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Which weights a folder holds and what they are called there."""

    config: Any
    family: Family
    head: Head = "bare"
    labels: tuple[str, ...] = ()
    pooler: bool = False
    prefix: str = ""
    """What stands before the encoder's names."""
    first_position: int = 0
    """Row of the position table that belongs to a sequence's first token."""
    decoder_bias_name: str = ""

    @classmethod
    def of(
        cls, config: EncoderConfig, head: Head = "bare", labels: tuple[str, ...] = (), pooler: bool = False
    ) -> "Layout":
        """The layout in which a model is written."""
        family: Family = "bert" if isinstance(config, BertConfig) else "modernbert"
        return cls(
            config=config,
            family=family,
            head=head,
            labels=labels,
            pooler=pooler,
            prefix="" if head == "bare" else _PREFIXES[family],
            decoder_bias_name=_HEAD_NAMES[family].bias,
        )

    @property
    def head_names(self) -> HeadNames:
        return _HEAD_NAMES[self.family]

    @property
    def architecture(self) -> str:
        return _CLASSES["bert" if self.family == "roberta" else self.family] + _KINDS[self.head]

    @property
    def embedding_name(self) -> str:
        return f"{self.prefix}embeddings.{'tok' if self.family == 'modernbert' else 'word'}_embeddings.weight"

    @property
    def copies(self) -> list[tuple[str, str]]:
        """What a folder may hold twice where the head is tied: the embedding matrix, and the bias beside it."""
        if self.head != "masked-lm" or not self.config.tie_word_embeddings:
            return []
        names = self.head_names
        pairs = [(self.embedding_name, f"{names.decoder}.weight"), (names.bias, f"{names.decoder}.bias")]
        return [(name, copy) for name, copy in pairs if name != copy]

    def ignores(self, name: str) -> bool:
        """Whether a weight may be left unread: tables of numbers 0, 1, 2 …, weights stored twice, and what other
        pretraining tasks left behind."""
        if name.endswith(("embeddings.position_ids", "embeddings.token_type_ids")):
            return True
        if name in (copy for _, copy in self.copies):
            return True
        if self.head == "masked-lm" and name in (self.head_names.bias, f"{self.head_names.decoder}.bias"):
            return self.family != "modernbert"
        unused = ("cls.seq_relationship.", *(() if self.head == "bare" else (f"{self.prefix}pooler.",)))
        return name.startswith(unused)


def read_layout(folder: Path, shapes: Shapes) -> Layout:
    source = folder / "config.json"
    values = read_json(source)
    family, config, first_position = read_config(values, source)
    prefix = _PREFIXES[family] if any(name.startswith(_PREFIXES[family]) for name in shapes) else ""
    _check_depth(config, family, prefix, shapes, source)
    head = _head(family, values, shapes, source)
    names = _HEAD_NAMES[family]
    if family == "roberta" and head == "masked-lm" and getattr(config, "hidden_act", "gelu") != "gelu":
        raise ValueError(f"{source}: a RoBERTa masked-LM head with hidden_act other than gelu is not supported")
    return Layout(
        config=config,
        family=family,
        head=head,
        labels=_labels(values, shapes, source) if head in ("tagger", "classifier") else (),
        pooler=head == "bare" and f"{prefix}pooler.dense.weight" in shapes,
        prefix=prefix,
        first_position=first_position,
        decoder_bias_name=f"{names.decoder}.bias" if f"{names.decoder}.bias" in shapes else names.bias,
    )


def write_layout(layout: Layout, folder: Path, special_ids: Any = None) -> None:
    """Write config.json. The tokenizer's special ids, where known, are what readers expect there."""
    values: dict[str, Any] = {"architectures": [layout.architecture], **write_config(layout.config)}
    for ours, theirs in (("pad_id", "pad_token_id"), ("cls_id", "cls_token_id"), ("sep_id", "sep_token_id")):
        if special_ids is not None and getattr(special_ids, ours) is not None:
            values[theirs] = getattr(special_ids, ours)
    if layout.head in ("tagger", "classifier"):
        values["id2label"] = {str(i): label for i, label in enumerate(layout.labels)}
        values["label2id"] = {label: i for i, label in enumerate(layout.labels)}
    text = json.dumps(values, indent=2, ensure_ascii=False)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; a model folder holds config.json and model.safetensors") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(values).__name__}")
    return values


def _check_depth(config: EncoderConfig, family: Family, prefix: str, shapes: Shapes, source: Path) -> None:
    """Before modules are made for them: a config can ask for a billion layers."""
    pattern = re.compile(re.escape(prefix) + _LAYER_PATTERN[family])
    depth = 1 + max((int(match[1]) for name in shapes if (match := pattern.match(name))), default=-1)
    if depth != config.num_hidden_layers:
        raise ValueError(
            f"{source}: num_hidden_layers is {config.num_hidden_layers}, but there are weights for {depth}"
        )


def _head(family: Family, values: dict[str, Any], shapes: Shapes, source: Path) -> Head:
    """The weights say which head there is; two kinds of classifier look alike, so there config.json decides."""
    architectures = values.get("architectures") or [""]
    if not isinstance(architectures, list) or not isinstance(architectures[0], str):
        raise ValueError(f"{source}: architectures must be a list of names, got {str(architectures)[:80]}")
    architecture = architectures[0]
    if "classifier.weight" in shapes or "classifier.dense.weight" in shapes or "qa_outputs.weight" in shapes:
        for head in ("tagger", "classifier"):
            if architecture.endswith(_KINDS[head]):
                return head
        raise ValueError(
            f"{source}: architectures says {architecture or 'nothing'}; of the models with a classifier only "
            "...ForTokenClassification and ...ForSequenceClassification can be loaded"
        )
    return "masked-lm" if f"{_HEAD_NAMES[family].dense}.weight" in shapes else "bare"


def _labels(values: dict[str, Any], shapes: Shapes, source: Path) -> tuple[str, ...]:
    named, count = values.get("id2label"), values.get("num_labels")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool)):
        raise ValueError(f"{source}: num_labels must be a whole number, got {str(count)[:80]!r}")
    if named is None:
        return _numbered_labels(2 if count is None else count, shapes, source)
    try:
        by_id = {int(key): str(label) for key, label in named.items()}
        labels = tuple(by_id[i] for i in range(len(by_id)))
    except (AttributeError, ValueError, KeyError):
        raise ValueError(f"{source}: id2label must name the labels of 0, 1, 2 …, got {str(named)[:80]}") from None
    if not labels or len(set(labels)) < len(labels):
        raise ValueError(f"{source}: id2label must hold distinct labels, at least one, got {str(named)[:80]}")
    return labels


def _numbered_labels(count: int, shapes: Shapes, source: Path) -> tuple[str, ...]:
    """Compared with the weights before names are made for them: a config can ask for a billion labels."""
    name = "classifier.weight" if "classifier.weight" in shapes else "classifier.out_proj.weight"
    rows = next(iter(shapes.get(name, ())), 0)
    if count != rows or not rows:
        raise ValueError(f"{source}: num_labels is {count}, but {name!r} is for {rows}")
    return tuple(f"LABEL_{i}" for i in range(rows))
