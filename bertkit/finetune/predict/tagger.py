"""A fine-tuned folder, ready to tag: text or words to one tag a word, or to whatever the folder's task gives."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bertkit.finetune.predict.backends import open_model
from bertkit.finetune.predict.inputs import Part, Reading
from bertkit.finetune.predict.outputs import Answer
from bertkit.finetune.predict.settings import SETTINGS, read_config, read_settings, task_of, tasks_by_head
from bertkit.finetune.tasks.task import Task
from bertkit.finetune.windows import RowForm, WordEncoder
from bertkit.hf.folder import check_vocabulary, resolve
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
        of those that the folder has: torch, onnx or int8. `segmenter` names what splits text without spaces, in place
        of what the folder remembers."""
        return cls(folder, device, backend, segmenter)

    def __init__(self, folder: str | Path, device: str = "cpu", backend: str = "auto", segmenter: str = ""):
        path = resolve(folder)
        settings = read_settings(path)
        if segmenter:
            settings["split"] = SplitRule(segmenter=segmenter).to_json()
        tasks = tasks_by_head(settings, path)
        model, self._ask = open_model(path, list(tasks), backend, device)
        self.task = task_of(model, settings, tasks)
        tokenizer = self.tokenizer = load_tokenizer(path)
        check_vocabulary(tokenizer, model.config.vocab_size, path)
        self.labels = model.labels
        self.settings = settings
        self.reading = Reading(read_config(settings), self.labels)
        self._read = _reader(self.task, settings, path)
        self.encode = WordEncoder(tokenizer)
        length = settings.get("max_length", tokenizer.max_length or _USUAL_LENGTH)
        self.form = RowForm.of(tokenizer, model.config, length, settings.get("stride", 0))

    def tag(self, text_or_words: Any) -> Any:
        """Tag a text, split into words as the training data was, or words that are split already."""
        (result,) = self.tag_all([text_or_words])
        return result

    def tag_all(
        self,
        sentences: Iterable[Any],
        chunk: int = _CHUNK_SENTENCES,
        must_wait: Callable[[], bool] = lambda: False,
    ) -> Iterator[Any]:
        """Tag many, lazily and in order; `chunk` sentences at most are computed together, and fewer where the next one
        must be waited for."""
        for given in _chunks(sentences, chunk, must_wait):
            held = [self._read(one) for one in given]
            for sentence, prediction in zip(held, self.predict(held), strict=True):
                yield self.task.result(sentence, *prediction)

    def predict(self, sentences: Sequence[Sentence]) -> list[tuple[Any, Any]]:
        """What the task predicts for each sentence, and how sure it is."""
        rows = self.task.rows(sentences, self.encode, self.form)
        return self.task.predict(self._ask, sentences, rows, self.labels, self.settings)

    def answer_all(self, parts: Iterable[Part], must_wait: Callable[[], bool] = lambda: False) -> Iterator[Answer]:
        """Tag what parts of files hold; those with nothing to tag keep their place."""
        waiting: deque[Part] = deque()

        def given() -> Iterator[Any]:
            for part in parts:
                waiting.append(part)
                if part.given is not None:
                    yield part.given

        for result in self.tag_all(given(), must_wait=must_wait):
            while waiting[0].given is None:
                yield Answer(waiting.popleft(), None)
            yield Answer(waiting.popleft(), result)
        yield from (Answer(part, None) for part in waiting)


def _reader(task: Task, settings: dict[str, Any], path: Path) -> Callable[[Any], Sentence]:
    try:
        return task.reader(settings)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path / SETTINGS} is not what bertkit wrote there: {error!r}") from None


def _chunks(given: Iterable[Any], most: int, must_wait: Callable[[], bool]) -> Iterator[list[Any]]:
    """As many sentences as may be held at once, of long ones fewer."""
    held: list[Any] = []
    size = 0
    for one in given:
        held.append(one)
        size += len(one) if isinstance(one, str) else sum(map(len, one))
        if len(held) >= most or size >= _CHUNK_CHARS or must_wait():
            yield held
            held, size = [], 0
    if held:
        yield held
