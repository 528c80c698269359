"""A fine-tuned folder, ready to write: a text for each text."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bertkit.finetune.predict.tagger import Tagger
from bertkit.finetune.writing.drafts import Written
from bertkit.finetune.writing.script import PARALLEL

TASK = "rewrite"


class Writer:
    """`Writer.load(folder).write("some text")`"""

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu", **options: int) -> "Writer":
        """Open a run of `bertkit finetune rewrite`, or its export. Options: `passes` of a model that writes in
        parallel; `beams` and `best`, texts to return for each, of one that writes left to right."""
        return cls(folder, device, **options)

    def __init__(self, folder: str | Path, device: str = "cpu", **options: int):
        self.tagger = Tagger(folder, device, "torch")
        settings = self.tagger.settings
        if settings.get("task") != TASK:
            raise ValueError(f"{folder} does not rewrite texts; train such a model with: bertkit finetune rewrite")
        parallel = settings["order"] == PARALLEL
        known = ("passes",) if parallel else ("beams", "best")
        for name, value in options.items():
            if name not in known:
                raise ValueError(
                    f"{name}: {folder} writes {settings['order']}, where one can choose {' and '.join(known)}"
                )
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        settings.update(options)

    def write(self, source: str, features: Sequence[str] = ()) -> Written:
        """Rewrite one text, of a model that knows features with these."""
        (result,) = self.write_all([[source, *features]])
        return result

    def write_all(self, sources: Iterable[Any]) -> Iterator[Written]:
        """Rewrite many, lazily and in order: texts, or lists of a text and its features."""
        return self.tagger.tag_all(sources)
