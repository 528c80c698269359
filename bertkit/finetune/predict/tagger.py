"""A fine-tuned folder, ready to tag: text or words to one tag a word, or to whatever the folder's task gives."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertkit.finetune.labeled import CONTEXT
from bertkit.finetune.predict.backends import open_model
from bertkit.finetune.predict.inputs import Part, Reading
from bertkit.finetune.predict.outputs import Answer
from bertkit.finetune.predict.settings import PIECES, SETTINGS, read_config, read_settings, task_of, tasks_by_head
from bertkit.finetune.tasks.task import Task
from bertkit.finetune.windows import LONGEST_DOCUMENT, RowForm, WordEncoder
from bertkit.hf.folder import check_vocabulary, resolve
from data_pipelines.labels.records import resplit
from data_pipelines.labels.sentence import Sentence
from data_pipelines.labels.word_splitting import SplitRule
from data_pipelines.vocab.tokenizer import load_tokenizer

_CHUNK_SENTENCES, _CHUNK_CHARS = 1024, 1 << 20
"""What is held at once of a stream: enough for batches of equal length, little enough to stay small."""
_USUAL_LENGTH = 512
"""Longest window for folders that do not say how long theirs were."""


class Tagger:
    """`Tagger.load(folder).tag("Some text.")`"""

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu", backend: str = "auto", segmenter: str = "") -> "Tagger":
        """Open a run of `bertkit finetune`, its export, or a Hugging Face folder with a classifier. `backend` names one
        of those that the folder has: torch, bf16 (torch with its products in bf16), onnx or int8. `segmenter` names
        what splits text without spaces, in place of what the folder remembers."""
        return cls(folder, device, backend, segmenter)

    def __init__(self, folder: str | Path, device: str = "cpu", backend: str = "auto", segmenter: str = ""):
        self.folder = path = resolve(folder)
        settings = read_settings(path)
        if segmenter:
            settings["split"] = SplitRule(segmenter=segmenter).to_json()
        tasks = tasks_by_head(settings, path)
        self.model, self.ask = open_model(path, list(tasks), backend, device)
        self.task = task_of(self.model, settings, tasks)
        if segmenter and self.task.unit != "word":
            raise ValueError(f"segmenter {segmenter!r}: {folder} reads whole texts and splits none; leave it out")
        tokenizer = self.tokenizer = load_tokenizer(path)
        check_vocabulary(tokenizer, self.model.config.vocab_size, path)
        self.labels = self.model.labels
        self.settings = settings
        self.reading = Reading(read_config(settings), self.labels, settings.get("files", {}).get("suffixes", ()))
        self._read = _reader(self.task, settings, path)
        self.encode = WordEncoder(tokenizer)
        length = settings.get("max_length", tokenizer.max_length or _USUAL_LENGTH)
        form = RowForm.of(tokenizer, self.model.config, length, settings.get("stride", 0))
        self.form = form._replace(context=CONTEXT in settings, all_subwords=PIECES in settings)
        self.task = self.task.bound(self.task, tokenizer, self.form, settings)

    def __repr__(self) -> str:
        shown = ", ".join([*self.labels[:8], *(["..."] if len(self.labels) > 8 else [])])
        return f"{type(self).__name__}({str(self.folder)!r}, {self.task.pipeline}, {len(self.labels)} labels: {shown})"

    def tag(self, text_or_words: Any) -> Any:
        """Tag a text, split into words as the training data was, or words that are split already."""
        (result,) = self.tag_all([text_or_words])
        return result

    def tag_all(self, sentences: Iterable[Any], chunk: int = _CHUNK_SENTENCES) -> Iterator[Any]:
        """Tag many, each by itself, lazily and in order; `chunk` sentences at most are computed together."""
        return self._results(((one, False) for one in sentences), chunk)

    def tag_document(self, sentences: Iterable[Any]) -> list[Any]:
        """Tag the sentences of one document. A model that was trained with context lets each see its neighbours."""
        return list(self._results(((one, index > 0) for index, one in enumerate(sentences)), _CHUNK_SENTENCES))

    def _results(
        self, given: Iterable[tuple[Any, bool]], chunk: int, must_wait: Callable[[], bool] = lambda: False
    ) -> Iterator[Any]:
        """Of sentences, each with whether it follows the one before it. Documents are never torn apart, so that no tag
        depends on what is computed together."""
        for held in _chunks(given, chunk, must_wait, self.form.context):
            sentences = [self._read(one)._replace(follows=follows) for one, follows in held]
            for sentence, prediction in zip(sentences, self.predict(sentences), strict=True):
                yield self.task.result(sentence, *prediction)

    def resplit(self, sentence: Sentence) -> Sentence:
        """A labeled text with spans, in the words that the model splits it into; words that a file has stay."""
        offsets = self._read(sentence.text or "").offsets if sentence.offsets else None
        return resplit(sentence, offsets) if offsets else sentence

    def predict(self, sentences: Sequence[Sentence]) -> list[tuple[Any, Any]]:
        """What the task predicts for each sentence, and how sure it is."""
        rows = self.task.rows(sentences, self.encode, self.form)
        return self.task.predict(self.ask, sentences, rows, self.labels, self.settings)

    def answer_all(self, parts: Iterable[Part], must_wait: Callable[[], bool] = lambda: False) -> Iterator[Answer]:
        """Tag what parts of files hold; those with nothing to tag keep their place."""
        waiting: deque[Part] = deque()

        def given() -> Iterator[tuple[Any, bool]]:
            for part in parts:
                waiting.append(part)
                if part.given is not None:
                    yield part.given, part.follows

        for result in self._results(given(), _CHUNK_SENTENCES, must_wait):
            while waiting[0].given is None:
                yield Answer(waiting.popleft(), None)
            part = waiting.popleft()
            placed = part.offsets is not None
            yield Answer(part, replace(result, text=part.text, offsets=part.offsets) if placed else result)
        yield from (Answer(part, None) for part in waiting)


def _reader(task: Task, settings: dict[str, Any], path: Path) -> Callable[[Any], Sentence]:
    try:
        return task.reader(settings)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path / SETTINGS} was not written by bertkit, or was changed: {error!r}") from None


def _chunks(
    given: Iterable[tuple[Any, bool]], most: int, must_wait: Callable[[], bool], context: bool
) -> Iterator[list[tuple[Any, bool]]]:
    """As many sentences as may be held at once, of long ones fewer; with context, to the end of a document, or of the
    part of a long one that is read together."""
    held: list[tuple[Any, bool]] = []
    size = in_document = 0
    full = False
    for one, follows in given:
        follows = follows and context and in_document < LONGEST_DOCUMENT
        if full and not follows:
            yield held
            held, size = [], 0
        in_document = in_document + 1 if follows else 1
        held.append((one, follows))
        size += len(one) if isinstance(one, str) else sum(map(len, one))
        full = len(held) >= most or size >= _CHUNK_CHARS
        if must_wait() or (full and not context):
            yield held
            held, size, full = [], 0, False
    if held:
        yield held
