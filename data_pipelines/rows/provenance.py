"""What shards were made from: a record of corpus, tokenizer and settings, and what changed since."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from data_pipelines.rows.config import PrepareConfig
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import fingerprint_sources
from data_pipelines.text.parts import Part, has_own_files
from data_pipelines.vocab.tokenizer import Tokenizer


def identify(
    corpus: CorpusConfig, tokenizer: Tokenizer, config: PrepareConfig, part: Part, known: Iterable[dict]
) -> dict[str, Any]:
    """Everything that the shards depend on. `known` are the sources of an earlier record."""
    # The documents of a part are every n-th one, unless something else is said.
    split = {"split": "files"} if part.of > 1 and has_own_files(corpus, part) else {}
    return split | {
        "sources": fingerprint_sources(corpus, known),
        "corpus": corpus.options(),
        "tokenizer": tokenizer.fingerprint,
        "prepare": dict(vars(config)),
        "part": list(part),
    }


def refuse_other(wanted: dict[str, Any], found: dict[str, Any], folder: Path | str) -> None:
    """Refuse a folder that was made from something else, and say what differs."""
    for key, label in (
        ("sources", "the corpus"),
        ("corpus", "a corpus setting"),
        ("tokenizer", "the tokenizer"),
        ("prepare", "a setting"),
        ("part", "the part"),
        ("split", "the way to split a corpus into parts"),
    ):
        before, now = _timeless(found.get(key)), _timeless(wanted.get(key))
        if before != now:
            raise ValueError(
                f"{folder} was prepared differently: {label} changed {_difference(before, now)}; "
                f"choose another folder, or remove this one"
            )


def _timeless(value: Any) -> Any:
    """A file that was touched but holds the same bytes is the same file."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [{key: item for key, item in entry.items() if key != "modified"} for entry in value]
    return value


def _difference(before: Any, now: Any) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        changed = [key for key in before.keys() | now.keys() if before.get(key) != now.get(key)]
        return f"({', '.join(f'{key}: {before.get(key)} then, {now.get(key)} now' for key in sorted(changed))})"
    if isinstance(before, list) and before and isinstance(before[0], dict):
        old, new = ({entry["name"]: entry for entry in entries} for entries in (before, now))
        names = [name for name in old | new if old.get(name) != new.get(name)] or list(old)
        return f"({', '.join(names[:3])})"
    return f"({str(before)[:12]} then, {str(now)[:12]} now)"
