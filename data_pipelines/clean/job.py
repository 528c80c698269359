"""A corpus on its way to a folder of cleaned text: what it is made of, and the files on which its workers meet."""

import dataclasses
import json
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from data_pipelines import durable
from data_pipelines.clean.config import CleanConfig
from data_pipelines.clean.languages import identifier
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import find_sources, fingerprint_sources
from data_pipelines.text.parts import Part

FACTS, TEXT = "clean.json", "text"
"""In a folder of cleaned text: what was found, and the files to train on."""
DECIDED, MEASURED, WRITTEN, WHOLE = "decided.json", "measured", "written", "whole"
"""In the folder where workers meet."""
_FORMAT, _IDENTITY = 3, "identity.json"


class Job(NamedTuple):
    """A corpus on its way to `out`."""

    corpus: CorpusConfig
    config: CleanConfig
    out: Path
    identity: dict[str, Any]

    @property
    def state(self) -> Path:
        """The folder where workers meet, beside the one to write."""
        return _state_of(self.out)

    @property
    def decided(self) -> bool:
        return (self.state / DECIDED).is_file()

    def is_done(self, part: Part) -> bool:
        """Whether a part of the step that the job is at was made."""
        return (self.state / (WRITTEN if self.decided else MEASURED) / f"{part.folder}.json").is_file()

    def publish(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """Write a file of the state at once; two workers with the same part are not in each other's way."""
        durable.publish_file(self.state / name, data, self.state)

    def read(self, name: str) -> Any:
        """A JSON file of the state; None where it is not there."""
        return read_json(self.state / name)

    def measured_parts(self) -> int:
        """Into how many parts the measured ones belong; 0 where there are none, or of several numbers."""
        numbers = {path.stem.rpartition("-")[2] for path in (self.state / MEASURED).glob("part-*-of-*.json")}
        return int(numbers.pop()) if len(numbers) == 1 else 0


def open_job(corpus: CorpusConfig, config: CleanConfig, out: Path) -> Job:
    """Begin, or find what was begun; what was begun with other text or settings is forgotten, what was finished with
    others is refused, and so is what another version of bertkit has hashed in another way."""
    check_cleanable(corpus, config, out)
    finished = read_finished(out)
    known = finished["identity"] if finished else read_json(_state_of(out) / _IDENTITY)
    if known is not None and known.get("format") != _FORMAT:
        if finished:
            raise ValueError(f"{out} was written by another version of bertkit; choose another folder, or remove it")
        raise ValueError(
            f"{_state_of(out)} was begun by another version of bertkit; finish with that one, or remove the folder"
        )
    identity = _identity(corpus, config, known or {})
    job = Job(corpus, config, out, identity)
    if finished is not None:
        if _timeless(finished["identity"]) != _timeless(identity):
            raise ValueError(f"{out} holds another text, or one cleaned with other settings; choose another folder")
        if job.state.is_dir():  # killed after the last move
            durable.remove_folder(job.state)
        return job
    if known is not None and _timeless(known) != _timeless(identity):
        durable.remove_folder(job.state)
    _check_state(job.state)
    for folder in (MEASURED, WRITTEN, f"{WHOLE}/{TEXT}"):
        (job.state / folder).mkdir(parents=True, exist_ok=True)
    if not (job.state / _IDENTITY).is_file():
        job.publish(_IDENTITY, durable.json_line(identity).encode())
    return job


def _check_state(state: Path) -> None:
    """Refuse a folder that is not ours: it would be removed at the end. A kill may leave ours without its identity."""
    if state.is_dir() and not (state / _IDENTITY).is_file():
        foreign = [path.name for path in state.iterdir() if path.name not in (MEASURED, WRITTEN, WHOLE)]
        if not all(map(durable.is_unfinished, foreign)):
            raise ValueError(f"{state} is used during cleaning, but holds other files; move it away")


def reopen_job(out: Path) -> Job:
    """The job whose parts were made for `out`, by what they know of it."""
    identity = read_json(_state_of(out) / _IDENTITY)
    if identity is None:
        raise ValueError(f"{out} has no parts to merge; make them with 'bertkit clean --part 1/N', 2/N, ...")
    corpus = {name: value for name, value in identity["corpus"].items() if name != "sources"}
    return open_job(CorpusConfig(**corpus), CleanConfig(**identity["clean"]), out)


def check_cleanable(corpus: CorpusConfig, config: CleanConfig, out: Path) -> None:
    """Refuse before the work what cannot end well."""
    for source in find_sources(corpus):
        if source.weight != 1:
            raise ValueError(
                f"{source.name}@{source.weight:g}: a weight repeats text; use it when training on the cleaned text"
            )
    if config.languages:
        identifier(config.languages)
    if out.exists() and read_finished(out) is None:
        raise ValueError(f"{out} exists and holds no cleaned text; choose a new folder")


def read_finished(out: Path) -> dict[str, Any] | None:
    """The facts of a folder of cleaned text; None where there is no such folder."""
    try:
        facts = json.loads((out / FACTS).read_text(encoding="utf-8"))
        return facts if facts["identity"] else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{out / FACTS} is damaged; delete {out} and clean again") from None


def _identity(corpus: CorpusConfig, config: CleanConfig, known: dict[str, Any]) -> dict[str, Any]:
    """What the cleaned text depends on, as JSON gives it back. A file that is `known` and was not touched since is not
    read again."""
    against = against_of(corpus, config)
    identity = {
        "format": _FORMAT,
        "corpus": {
            **dataclasses.asdict(corpus),
            "sources": fingerprint_sources(corpus, known.get("corpus", {}).get("sources", ())),
        },
        "clean": dataclasses.asdict(config),
        "against": fingerprint_sources(against, known.get("against", ())) if against else [],
        "languages": version("py3langid") if config.languages else None,
    }
    return json.loads(json.dumps(identity))


def _timeless(identity: dict[str, Any]) -> dict[str, Any]:
    """A file that was touched but holds the same bytes is the same file."""
    return json.loads(json.dumps(identity), object_hook=lambda entry: {**entry, "modified": None})


def against_of(corpus: CorpusConfig, config: CleanConfig) -> CorpusConfig | None:
    return dataclasses.replace(corpus, corpus=config.against) if config.against else None


def _state_of(out: Path) -> Path:
    return out.with_name(f".cleaning-{out.name}")


def read_json(path: Path) -> Any:
    """None where there is no such file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
