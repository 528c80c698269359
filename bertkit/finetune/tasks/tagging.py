"""One tag for each word: spans such as names and phrases, or plain tags such as parts of speech."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bertkit.config.finetune import LabeledSection
from bertkit.finetune import metrics
from bertkit.finetune.answers import LEGAL_SPANS, predict_labels
from bertkit.finetune.clinic.doubts import doubt_words
from bertkit.finetune.labeled import CONTEXT, TRAINING, Labeled, make_labeled, read_parts, training_of, unlearnable
from bertkit.finetune.predict.inputs import word_inputs
from bertkit.finetune.predict.outputs import OUTPUTS
from bertkit.finetune.predict.tagging import Tagging
from bertkit.finetune.tasks.calibration import ABOUT_CALIBRATION
from bertkit.finetune.tasks.task import Column, Scores, Task
from bertkit.finetune.windows import label_targets, word_rows
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.records import SPAN_RULE, resplit
from data_pipelines.labels.schemes import OUTSIDE, Scheme, parse, recognise, stray_insides, to_iob2
from data_pipelines.labels.sentence import Sentence
from data_pipelines.labels.tagged import read_tagged
from data_pipelines.labels.word_splitting import SplitRule, WordSplitter, learn_rule, looks_unsplit
from data_pipelines.vocab.segmenters import SEGMENTERS

log = logging.getLogger(__name__)
_UNSPLIT = (
    "%r: text without spaces is taken for very long words, because this model does not know how to split it; put "
    "spaces between the words, name a segmenter (--segmenter jieba), or fine-tune the model again to learn one"
)


def _read(config: LabeledSection) -> Labeled:
    """Training, dev and test sentences, with their tags in one scheme: plain ones as they are, spans in IOB2."""
    parts = read_parts(read_tagged, config)
    if config.segmenter:
        named = WordSplitter(SplitRule(segmenter=config.segmenter), SEGMENTERS[config.segmenter]())
        parts = {
            name: [resplit(each, named.places(each.text or "")) if each.offsets else each for each in sentences]
            for name, sentences in parts.items()
        }
    scheme, notes = _scheme(config, [sentence for sentences in parts.values() for sentence in sentences])
    if scheme != "plain":
        parts = {
            name: [sentence._replace(tags=to_iob2(sentence.tags or ())) for sentence in sentences]
            for name, sentences in parts.items()
        }
    labels = _labels(parts["train"], scheme)
    labeled = make_labeled(parts, labels, [*notes, *unlearnable(parts, labels)], config.train_share)
    context = _context(labeled.train, config)
    settings: dict[str, Any] = {
        **context,
        "scheme": scheme,
        "split": _split_rule(labeled.train, config.segmenter).to_json(),
    }
    settings[TRAINING] = metrics.training_labels(labeled.train)
    if scheme != "plain":
        settings[LEGAL_SPANS] = config.legal_spans
    about = "sentences see their neighbours in the same document (data.context)"
    return labeled._replace(settings=settings, notes=(*labeled.notes, *[about] * bool(context)))


def _context(train: list[Sentence], config: LabeledSection) -> dict[str, str]:
    """The setting, where sentences see their neighbours. A file that marks no document is one, so that each begins
    once; where most sentences are separate there is nothing to learn from."""
    begun = sum(not sentence.follows for sentence in train)
    marked = begun > len(config.train) and 2 * begun <= len(train)
    on = config.context == "document" or (config.context == "auto" and marked)
    return {CONTEXT: "document"} if on else {}


def _scheme(config: TaggedConfig, sentences: list[Sentence]) -> tuple[Scheme, list[str]]:
    """How the files write their tags, and notes on it."""
    auto = config.scheme == "auto"
    scheme = recognise(sentence.tags or () for sentence in sentences) if config.scheme == "auto" else config.scheme
    if scheme == "plain":
        if auto:
            _refuse_broken_spans(sentences)
        return scheme, ["tags: plain, one per word" + (", recognised" if auto else "")]
    for sentence in sentences:
        for index, tag in enumerate(sentence.tags or ()):
            if parse(tag) is None:
                raise ValueError(f"{sentence.place(index)}: {tag!r} is not a tag of the scheme {scheme} (data.scheme)")
    how = "recognised as" if auto else "read as"
    notes = [f"tags: {how} {scheme.upper()}" + ("" if scheme == "iob2" else ", converted to IOB2")]
    if scheme == "iob2":
        strays = [sentence.place(index) for sentence in sentences for index in stray_insides(sentence.tags or ())]
        if strays:
            notes.append(f"{len(strays)} I- tags continue no span and were read as B-, the first in {strays[0]}")
    return scheme, notes


def _refuse_broken_spans(sentences: list[Sentence]) -> None:
    """One slip must not turn all span tags into plain ones, which would be learned and scored as something else."""
    spans, odd = 0, []
    for sentence in sentences:
        for index, tag in enumerate(sentence.tags or ()):
            spans += tag.startswith(("B-", "I-"))
            if parse(tag) is None:
                odd.append(f"{sentence.place(index)}: {tag!r}")
    if odd and len(odd) < spans:
        raise ValueError(
            f"{odd[0]} is not a span tag, but {spans:,} others are; correct it, or take all tags as they are with "
            "data.scheme=plain"
        )


def _labels(train: list[Sentence], scheme: Scheme) -> list[str]:
    """Sorted, O first; a kind of span always has both of its tags."""
    found = {tag for sentence in train for tag in sentence.tags or ()}
    if found == {"_"}:
        raise ValueError(f"{train[0].source}: all tags are '_', which means none; name their column (data.tag_column)")
    if scheme == "plain":
        return sorted(found)
    kinds = sorted({tag[1:] for tag in found if tag != OUTSIDE})
    return [OUTSIDE, *(f"{prefix}{kind}" for kind in kinds for prefix in "BI")]


def _split_rule(train: list[Sentence], segmenter: str) -> SplitRule:
    """How the text of the data is split into words: raw text must be split alike."""
    if segmenter:
        return SplitRule(segmenter=segmenter)
    if any(sentence.offsets is not None for sentence in train):
        return SPAN_RULE
    return learn_rule((sentence.words, sentence.text) for sentence in train)


def _has_spans(labeled: Labeled) -> bool:
    return labeled.settings["scheme"] != "plain"


def _score(labeled: Labeled, sentences: Sequence[Sentence], predicted: list[list[str]]) -> Scores:
    """Spans in both readings, or plain tags with the unknown words apart."""
    gold = metrics.gold_tags(sentences)
    words = metrics.word_scores(gold, predicted)
    if _has_spans(labeled):
        lenient, strict = metrics.span_scores(gold, predicted), metrics.span_scores(gold, predicted, strict=True)
        return {**lenient, "strict": strict, "accuracy": words["accuracy"]}
    if TRAINING not in labeled.settings:  # a folder of another maker
        return words
    known = labeled.settings[TRAINING]["words"]
    unknown = metrics.unknown_word_scores(gold, predicted, [sentence.words for sentence in sentences], known)
    return {**words, "unknown": unknown} if unknown["words"] else words


def _baselines(labeled: Labeled, sentences: Sequence[Sentence]) -> dict[str, list[list[str]]]:
    training = training_of(labeled, metrics.training_labels)
    return {
        "majority tag": metrics.majority_tags(training, sentences),
        "most frequent tag of the word": metrics.word_tags(training, sentences),
    }


def _reader(settings: dict[str, Any]) -> Callable[[str | Sequence[str]], Sentence]:
    """Text is split as the training data was, in folders of other makers as usual; words are taken as they are."""
    rule = SplitRule.from_json(settings["split"]) if "split" in settings else SplitRule()
    splitter = WordSplitter(rule, SEGMENTERS[rule.segmenter]() if isinstance(rule.segmenter, str) else None)
    warned = rule.segmenter is not None

    def read(given: str | Sequence[str]) -> Sentence:
        nonlocal warned
        if not isinstance(given, str):
            return Sentence(list(given), None, "", [])
        offsets = splitter.places(given)
        if not warned and looks_unsplit(given, len(offsets)):
            log.warning(_UNSPLIT, given[:40])
            warned = True
        return Sentence([given[start:end] for start, end in offsets], None, "", [], given, offsets)

    return read


def _other_settings(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {"each_word": {**settings, LEGAL_SPANS: False}} if settings.get(LEGAL_SPANS) else {}


TAGGING = Task(
    unit="word",
    examples="sentences",
    pipeline="token-classification",
    columns=(
        Column("precision", "precision"),
        Column("recall", "recall"),
        Column("f1", "F1", "Of the dev spans."),
        Column("strict.f1", "strict F1"),
        Column("accuracy", "accuracy", "Share of the dev words whose tag is right."),
        Column("macro_f1", "macro-F1"),
        Column("unknown.accuracy", "unknown words"),
    ),
    names={
        "unknown": "Unknown words, those that no training sentence has (share: of all words)",
        "tags": "By tag",
        "types": "By kind of span",
        "strict": "Strict: only spans that follow the rules of the scheme",
        "strict, types": "Strict, by kind of span",
        "each_word": "Each word's best tag, ignoring the tags around it",
        "calibration": ABOUT_CALIBRATION,
        "calibration, words": "Expected calibration error of words",
    },
    read=_read,
    head="tagger",
    rows=word_rows,
    targets=label_targets,
    predict=predict_labels,
    other_settings=_other_settings,
    doubts=doubt_words,
    score=_score,
    deciding=lambda labeled: "f1" if _has_spans(labeled) else "accuracy",
    baselines=_baselines,
    mistakes=metrics.label_mistakes,
    reader=_reader,
    result=Tagging.of,
    inputs=word_inputs,
    outputs=OUTPUTS,
)
