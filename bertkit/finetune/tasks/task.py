"""What one fine-tuning task has to say to differ from the others: a row of `TASKS`.

A task that differs from another one in a few fields is written `dataclasses.replace(CLASSIFICATION, loss=...)`. The
shipped rows import no torch, because reports need only their words.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bertkit.config.finetune import LabeledSection
from bertkit.finetune.labeled import Labeled
from bertkit.finetune.predict.inputs import Part, Reading
from bertkit.finetune.predict.outputs import Write
from bertkit.finetune.tasks.calibration import OF_LABELS, Calibration
from bertkit.finetune.windows import Ask, Row, RowForm, WordEncoder
from data_pipelines.labels.sentence import Sentence
from data_pipelines.text.lines import Line
from data_pipelines.vocab.tokenizer import Tokenizer
from data_pipelines.vocab.units import UnitKind

# M answers, K labels

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


class Vocabulary(NamedTuple):
    """What the tokenizer of a model from scratch is made of."""

    texts: Iterable[str]
    kind: UnitKind | None = None
    """"character" or "byte" for one of such units; without it what the shape's recipe says is trained."""
    tokens: Sequence[str] = ()
    """Special tokens of the task's own."""


def _of_words(labeled: Labeled) -> Vocabulary:
    return Vocabulary(" ".join(sentence.words) for sentence in labeled.train)


@dataclass(frozen=True, kw_only=True)
class Task:
    """Every field is asked in one place, and nowhere else does code depend on the task.

    A sentence is any example: its words are what the model reads, its tags the right answers. What a prediction is,
    only the task knows; it consists of plain values, because ranks exchange it as JSON.
    """

    unit: str
    """What has a label: "word", "text"."""

    examples: str
    """What labeled files hold: "sentences", "texts"."""

    pipeline: str
    """The pipeline of transformers that opens the export."""

    columns: tuple[Column, ...]
    """What tables show of the scores, in this order."""

    names: Mapping[str, str]
    """What the report calls numbers and groups of the scores, where their own names do not say it."""

    read: Callable[[LabeledSection], Labeled]
    """Reads and checks the labeled data."""

    vocabulary: Callable[[Labeled], Vocabulary] = _of_words
    """From scratch: what to make a tokenizer of."""

    head: str
    """The kind of head that the encoder gets, a row of `bertkit.model.heads.HEADS`."""

    bound: Callable[["Task", Tokenizer, RowForm, Mapping[str, Any]], "Task"] = lambda task, *_: task
    """The task for a tokenizer, a form of rows and what the export remembers, where it must know them: one that writes
    text."""

    rows: Callable[[Sequence[Sentence], WordEncoder, RowForm], list[Row]]
    """What the encoder reads, and where it answers: the same in training, evaluation and prediction."""

    pools_windows: bool = False
    """Whether the windows of a long example answer together, by the mean of their logits, in training too."""

    targets: Callable[[Row, Sentence, Mapping[str, int], Mapping[str, Any]], Any]
    """The right answers of a training row, an array; labels are numbered. What the export remembers comes last."""

    drawn: Callable[[Row, int], Row] = lambda row, key: row
    """A training row as a step reads it, by the key of that step's draw: what is masked in it, for example."""

    loss: Callable[[Any, Any, Any], Any] | None = None
    """The summed loss of logits (M, K), targets, and label weights (K) or None: tensors. Without it cross-entropy."""

    problem_type: str | None = None
    """What transformers calls it, in config.json."""

    calibration: Calibration | None = None
    """How sure it is and should be; without it as for labels, if the loss is cross-entropy, and else not at all."""

    finished: Callable[[Any, dict[str, Any]], dict[str, Any]] = lambda model, settings: settings
    """Changes a trained model for its export, and gives the settings that fit it then. Each rank calls it: under FSDP
    weights are shards, which can be changed in place."""

    example: str = 'Tagger.load("PATH/TO/THIS/FOLDER").tag("Some text.")'
    """What a model card shows of its use."""

    predict: Callable[[Ask, Sequence[Sentence], Sequence[Row], Sequence[str], Mapping[str, Any]], list[tuple[Any, Any]]]
    """A prediction for each sentence, and how sure it is. Labels, and what the export remembers, come last."""

    asks_again: bool = False
    """Whether predicting asks for further rows, which depend on the answers before."""

    other_settings: Callable[[Mapping[str, Any]], dict[str, dict[str, Any]]] = lambda settings: {}
    """Other ways to predict, by name, whose scores are also in the results."""

    doubts: Callable[[Ask, Sequence[Sentence], Sequence[Row], Sequence[str], Mapping[str, Any]], list[Any]] | None = (
        None
    )
    """A list of `Doubt` for each sentence, about the labels it was given; None where answers are no labels."""

    score: Callable[[Labeled, Sequence[Sentence], list[Any]], Scores]
    """The scores of predictions."""

    deciding: Callable[[Labeled], str]
    """The score by which the best step and the best seed are chosen; the higher the better."""

    baselines: Callable[[Labeled, Sequence[Sentence]], dict[str, list[Any]]]
    """Predictions without a model, to compare its scores with."""

    mistakes: Callable[[Sequence[Sentence], list[Any], int], dict[str, Any]]
    """"confusions" ([gold, predicted, count]), and as "worst" the given number of sentences with most mistakes (place,
    words, gold, predicted)."""

    reader: Callable[[dict[str, Any]], Callable[[Any], Sentence]]
    """For prediction: takes what the export remembers of the data (`Labeled.settings`) and returns the function that
    turns a user's input into a sentence."""

    result: Callable[[Sentence, Any, Any], Any]
    """What a user gets: made of a sentence, its prediction, and how sure that is."""

    inputs: Callable[[Iterable[Line], str, str, Reading], Iterator[Part]]
    """How `bertkit tag` reads: lines, the name of their source, its format, and how the training files were read."""

    outputs: Mapping[str, Write]
    """The formats in which `bertkit tag` prints results, the usual one first; "view" is for terminals."""


def calibration_of(task: Task) -> Calibration | None:
    """Cross-entropy is calibrated as labels are. A task with its own loss says how, or is not calibrated."""
    return task.calibration or (OF_LABELS if task.loss is None else None)
