"""The layout of a model folder, read from config.json and the names of the weights, and written again."""

import json
import re
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertkit.hf.config import read_config, write_config
from bertkit.hf.model_types import MODEL_TYPES, ModelType
from bertkit.model.encoder import Encoder
from bertkit.model.heads import HEADS
from data_pipelines import durable
from data_pipelines.bounds import shown

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Which weights a folder holds and what they are called there."""

    config: Any
    head: str = "bare"
    labels: tuple[str, ...] = ()
    pooler: bool = False
    prefixed: bool = False
    """Whether the encoder's names begin with the prefix of their model_type."""
    reads_second_bias: bool = False

    @property
    def row(self) -> ModelType:
        return MODEL_TYPES[self.config.model_type]

    @property
    def architecture(self) -> str:
        return self.row.class_name + (Encoder if self.head == "bare" else HEADS[self.head]).architecture

    def spelled(self, name: str) -> str:
        return name if self.prefixed else name.removeprefix(self.row.prefix)

    @property
    def copies(self) -> list[tuple[str, str]]:
        """What a folder may hold twice where the head is tied: the embedding matrix, and the bias beside it."""
        row = self.row
        if self.head != "masked-lm" or not self.config.tie_word_embeddings:
            return []
        pairs = [(self.spelled(f"{row.names['tokens']}.weight"), row.head_name("head.decoder_weight"))]
        if row.second_bias is not None:
            pairs.append((row.head_name("head.decoder_bias"), row.second_bias))
        return pairs

    def ignores(self, name: str) -> bool:
        """Whether a weight may be left unread: tables of numbers 0, 1, 2 …, weights stored twice, and what other
        pretraining tasks left behind."""
        if name.endswith(("embeddings.position_ids", "embeddings.token_type_ids")):
            return True
        if name in (copy for _, copy in self.copies) or self.is_of_other_tasks(name):
            return True
        biases = (self.row.head_name("head.decoder_bias"), self.row.second_bias)
        return self.head == "masked-lm" and self.row.second_bias is not None and name in biases

    def is_of_other_tasks(self, name: str) -> bool:
        """Whether a weight that this model does not use belongs to a task that bertkit has no head for."""
        pooler = self.spelled(f"{self.row.prefix}pooler.")
        return name.startswith(self.row.ignored) or (self.head != "bare" and name.startswith(pooler))


def read_layout(folder: Path, shapes: Shapes) -> Layout:
    source = folder / "config.json"
    values = read_json(source)
    model_type = _model_type(values, shapes, source)
    row, config = MODEL_TYPES[model_type], read_config(values, model_type, source)
    layout = Layout(
        config=config,
        head=_head(row, values, shapes, source),
        prefixed=any(name.startswith(row.prefix) for name in shapes),
        reads_second_bias=row.second_bias in shapes,
    )
    _check_depth(layout, shapes, source)
    if layout.head == "bare":
        pooler = row.names.get("pooler")
        return replace(layout, pooler=pooler is not None and layout.spelled(f"{pooler}.weight") in shapes)
    if HEADS[layout.head].takes_labels:
        return replace(layout, labels=_labels(row, values, shapes, source))
    return layout


def write_layout(layout: Layout, folder: Path, special_ids: Any) -> None:
    """Write config.json, with the tokenizer's special ids where the model has places for them and knows none."""
    values: dict[str, Any] = {"architectures": [layout.architecture], **write_config(layout.config)}
    for ours, theirs in (("pad_id", "pad_token_id"), ("cls_id", "cls_token_id"), ("sep_id", "sep_token_id")):
        if values.get(theirs, "unknown there") is None:
            values[theirs] = getattr(special_ids, ours, None)
    if layout.labels:
        values.pop("num_labels", None)
        values["id2label"] = {str(i): label for i, label in enumerate(layout.labels)}
        values["label2id"] = {label: i for i, label in enumerate(layout.labels)}
    text = json.dumps(values, indent=2, ensure_ascii=False)
    durable.replace_file(folder / "config.json", f"{text}\n".encode())


def read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; a model folder holds config.json and model.safetensors") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(values).__name__}")
    return values


def _model_type(values: dict[str, Any], shapes: Shapes, source: Path) -> str:
    """What config.json says; where it says nothing, what its class or the names of the weights show, with a note."""
    told = values.get("model_type")
    if told is not None:
        if told not in list(MODEL_TYPES):
            raise ValueError(f"{source}: model_type must be one of {', '.join(MODEL_TYPES)}, got {shown(told)}")
        return told
    architecture = _architecture(values, source)
    shown_by_class = [
        name for name in MODEL_TYPES if re.fullmatch(rf"{MODEL_TYPES[name].class_name}(Model|For\w+)", architecture)
    ]
    shown_by_weights = [
        name for name in MODEL_TYPES if any(weight.startswith(MODEL_TYPES[name].prefix) for weight in shapes)
    ]
    guessed = next(iter(shown_by_class + shown_by_weights), None)
    if guessed is None:
        raise ValueError(f"{source} has no model_type; add one of {', '.join(MODEL_TYPES)}")
    warnings.warn(f'{source} has no model_type; read as {guessed!r}; add "model_type" if that is wrong', stacklevel=2)
    return guessed


def _architecture(values: dict[str, Any], source: Path) -> str:
    architectures = values.get("architectures") or [""]
    if not isinstance(architectures, list) or not isinstance(architectures[0], str):
        raise ValueError(f"{source}: architectures must be a list of names, got {shown(architectures)}")
    return architectures[0]


def _check_depth(layout: Layout, shapes: Shapes, source: Path) -> None:
    """Before modules are made for them: a config can ask for a thousand layers."""
    numbered = (name if isinstance(name, str) else name[0] for name in layout.row.names.values())
    pattern = next(layout.spelled(name).partition("*")[0] for name in numbered if "*" in name)
    found = (re.match(rf"{re.escape(pattern)}(\d+)\.", name) for name in shapes)
    depth = 1 + max((int(match[1]) for match in found if match), default=-1)
    if depth != layout.config.num_hidden_layers:
        raise ValueError(
            f"{source}: num_hidden_layers is {layout.config.num_hidden_layers}, but there are weights for {depth}"
        )


def _head(row: ModelType, values: dict[str, Any], shapes: Shapes, source: Path) -> str:
    """The weights say which head there is; two kinds of classifier look alike, so there config.json decides."""
    architecture = _architecture(values, source)
    told = next((kind for kind in HEADS if architecture.endswith(HEADS[kind].architecture)), None)
    if told is not None and told != "masked-lm":
        return told
    classifiers = ("classifier.", "qa_outputs.")
    if any(name.startswith(classifiers) for name in shapes):
        raise ValueError(
            f"{source}: architectures says {architecture or 'nothing'}; of the models with a classifier only "
            "...ForTokenClassification and ...ForSequenceClassification can be loaded"
        )
    return "masked-lm" if f"{row.head_name('head.transform.dense')}.weight" in shapes else "bare"


def _labels(row: ModelType, values: dict[str, Any], shapes: Shapes, source: Path) -> tuple[str, ...]:
    """As many as the weights are for, by their names in id2label where these are as many."""
    named, count = values.get("id2label"), values.get("num_labels")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool)):
        raise ValueError(f"{source}: num_labels must be a whole number, got {shown(count)}")
    places = [f"{row.head_name(head)}.weight" for head in ("head.classifier", "head.labels.classifier")]
    place = next((name for name in places if name in shapes), places[0])
    rows = next(iter(shapes.get(place, ())), 0)
    labels = None if named is None else _named_labels(named, source)
    if labels is not None and (len(labels) == rows or count is None):
        if len(labels) != rows:
            raise ValueError(f"{source}: id2label names {len(labels)} labels, but {place!r} is for {rows}")
        return labels
    count = 2 if count is None else count
    if count != rows or not rows:
        raise ValueError(f"{source}: num_labels is {count}, but {place!r} is for {rows}")
    return tuple(f"LABEL_{i}" for i in range(rows))


def _named_labels(named: Any, source: Path) -> tuple[str, ...]:
    try:
        by_id = {int(key): str(label) for key, label in named.items()}
        labels = tuple(by_id[i] for i in range(len(by_id)))
    except (AttributeError, ValueError, KeyError):
        raise ValueError(f"{source}: id2label must name the labels of 0, 1, 2 …, got {shown(named)}") from None
    if not labels or len(set(labels)) < len(labels):
        raise ValueError(f"{source}: id2label must hold distinct labels, at least one, got {shown(named)}")
    return labels
