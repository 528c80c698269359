"""What a fine-tuning task is: all in which it differs from the others, as one row of `TASKS`.

A task that is like another one but for a few fields is written `dataclasses.replace(CLASSIFICATION, loss=...)`. No row
imports torch when it is read: reports and error messages need its words only.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from bertkit.config.finetune import LabeledSection
from bertkit.finetune.labeled import Labeled
from bertkit.finetune.windows import Row, RowForm, WordEncoder
from data_pipelines.labels.sentence import Sentence
from data_pipelines.text.lines import Line

if TYPE_CHECKING:
    from torch import Tensor

# M answers of some rows, K labels

Ask: TypeAlias = "Callable[[Sequence[Row]], Iterator[tuple[list[int], Tensor]]]"
"""Computes rows in batches of equal length: the indices of a batch's rows, and their logits (M, K) in that order."""
Scores = dict[str, Any]
"""Numbers by name, in groups where they belong together: plain values for a JSON file."""


class Column(NamedTuple):
    """A score that tables show, wherever the scores have it."""

    key: str
    """Its name in the scores; group.name inside a group."""
    title: str
    about: str = ""
    """What its curve in the report shows; without this none is drawn."""
    form: str = "{:.2%}"


@dataclass(frozen=True, kw_only=True)
class Task:
    """A sentence here is any example: its words are what the model reads, its tags what it should answer. What a
    prediction is, only the task knows; it is made of plain values, so that ranks can exchange it as JSON."""

    unit: str
    """What has a label: "word", "text"."""

    examples: str
    """What labeled files hold: "sentences", "texts"."""

    pipeline: str
    """The pipeline of transformers that opens the export."""

    columns: tuple[Column, ...]

    names: Mapping[str, str]
    """What the report calls numbers and groups of the scores, where their own names do not say it."""

    read: Callable[[LabeledSection], Labeled]
    """Reads and checks the labeled data."""

    head: str
    """The kind of head that the encoder gets, a row of `bertkit.model.heads.HEADS`."""

    rows: Callable[[Sequence[Sentence], WordEncoder, RowForm], list[Row]]
    """What the encoder reads, and where it answers: the same in training, evaluation and prediction."""

    targets: Callable[[Row, Sentence, Mapping[str, int]], Any]
    """The right answers of a training row, an array; labels are numbered."""

    loss: "Callable[[Tensor, Tensor, Tensor | None], Tensor] | None" = None
    """The loss of logits (M, K) and targets, summed; label weights (K) come last. None: cross-entropy."""

    predict: Callable[[Ask, Sequence[Sentence], Sequence[Row], Sequence[str], Mapping[str, Any]], list[tuple[Any, Any]]]
    """A prediction for each sentence, and how sure it is. Labels, and what the export remembers, come last."""

    other_settings: Callable[[Mapping[str, Any]], dict[str, dict[str, Any]]] = lambda settings: {}
    """Other ways to predict, by name, whose scores stand beside in the results."""

    score: Callable[[Labeled, Sequence[Sentence], list[Any]], Scores]
    """The scores of predictions."""

    deciding: Callable[[Labeled], str]
    """The score by which the best step and the best seed are chosen; the higher the better."""

    baselines: Callable[[Labeled, Sequence[Sentence]], dict[str, list[Any]]]
    """Predictions without a model, whose scores stand beside its own."""

    mistakes: Callable[[Sequence[Sentence], list[Any], int], dict[str, Any]]
    """"confusions" ([gold, predicted, count]) and so many "worst" sentences (place, words, gold, predicted)."""

    reader: Callable[[dict[str, Any]], Callable[[Any], Sentence]]
    """Prediction: what the export remembers of the data (`Labeled.settings`) gives the function that makes a sentence
    of whatever a user hands in."""

    result: Callable[[Sentence, Any, Any], Any]
    """Prediction: what a user gets for a sentence, its prediction and how sure that is."""

    inputs: Callable[[Iterable[Line], str, str], Iterator[Any]]
    """How `bertkit tag` reads: lines, the name of their source and its format give what `reader` takes."""

    outputs: Mapping[str, Callable[[Iterable[Any]], None]]
    """The formats in which `bertkit tag` prints results, the usual one first; "view" is for terminals."""
