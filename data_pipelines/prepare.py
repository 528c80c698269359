"""A corpus and a tokenizer enter, a folder of token shards leaves, once, outside of any training process."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_pipelines.config import CorpusConfig, PrepareConfig
from data_pipelines.corpus import Document, corpus_bytes, document_hash, fingerprint_sources, read_documents
from data_pipelines.rows import RowBuilder
from data_pipelines.shards import FORMAT, MANIFEST, SPLITS, read_manifest, write_json, write_shard
from data_pipelines.tokenizer import Tokenizer, load_tokenizer
from data_pipelines.words import Segmenter, jieba_segmenter, starts_from_segments, starts_from_word_ids, word_table

PROGRESS = "progress.json"
_BATCH_CHARS = 1 << 21


class Part(NamedTuple):
    """Which share of the documents this run prepares: part `number` (from 1) `of` so many."""

    number: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> "Part":
        match = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError(f"part must look like 3/16, the first at most the second, got {text!r}")
        return cls(int(match[1]), int(match[2]))

    @property
    def folder(self) -> str:
        return f"part-{self.number:05d}-of-{self.of:05d}"


class Progress(NamedTuple):
    """How far a preparation is; `total_chars` is an estimate, None if there is none."""

    chars: int
    total_chars: int | None
    tokens: int
    estimated_bytes: int | None


def prepare(
    corpus: CorpusConfig,
    tokenizer_path: Path | str,
    config: PrepareConfig,
    folder: Path | str,
    *,
    part: Part | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Path:
    """Make the folder, or go on with it, or find it finished. Returns where the manifest is (or the part's own).

    A folder of another corpus, tokenizer or setting is refused, naming what differs.
    """
    folder = Path(folder) / part.folder if part else Path(folder)
    tokenizer = load_tokenizer(tokenizer_path)
    _check_tokenizer(tokenizer, tokenizer_path)
    state = _read_state(folder)
    identity = identify(corpus, tokenizer, config, part, known=state["identity"]["sources"] if state else ())
    if state:
        refuse_other(identity, state["identity"], folder)
        if "shards" in state:
            return folder
    else:
        state = {"identity": identity, "documents": 0, "chars": 0, "train": [], "validation": []}
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / PROGRESS, state)
    estimate = _estimate(corpus, tokenizer, part or Part())
    _check_disk(folder, estimate, state)
    _fill(folder, state, corpus, tokenizer, config, part or Part(), estimate, report)
    if not any(entry["num_tokens"] for entry in state["train"] + state["validation"]) and not part:
        raise ValueError(f"the corpus {', '.join(corpus.corpus)} holds no text")
    _finish(folder, tokenizer, identity, {split: state[split] for split in SPLITS})
    return folder


def merge(folder: Path | str) -> Path:
    """Make one set of the parts in a folder: every part must be there, finished, and of the same origin."""
    folder = Path(folder)
    if (folder / MANIFEST).exists():
        raise ValueError(f"{folder} is one finished set already")
    found = sorted(path for path in folder.glob("part-*-of-*") if path.is_dir())
    if not found:
        raise ValueError(f"{folder} holds no parts; make them with 'bertkit prepare --part 1/N', 2/N, ...")
    manifests = {path.name: read_manifest(path) for path in found}
    of = manifests[found[0].name]["identity"]["part"][1]
    expected = [Part(number, of).folder for number in range(1, of + 1)]
    missing = [name for name in expected if name not in manifests]
    if missing:
        raise ValueError(f"{folder} lacks {len(missing)} of {of} parts: {', '.join(missing[:5])}")
    whole = {key: value for key, value in manifests[found[0].name]["identity"].items() if key != "part"}
    shards: dict[str, list] = {split: [] for split in SPLITS}
    for name, manifest in manifests.items():
        refuse_other(whole, {key: value for key, value in manifest["identity"].items() if key != "part"}, folder / name)
        for split in SPLITS:
            shards[split] += [entry | {"name": f"{name}/{entry['name']}"} for entry in manifest["shards"][split]]
    first = load_tokenizer(folder / found[0].name / "tokenizer")
    _finish(folder, first, whole | {"part": [1, 1]}, shards)
    return folder


def identify(
    corpus: CorpusConfig, tokenizer: Tokenizer, config: PrepareConfig, part: Part | None = None, known=()
) -> dict[str, Any]:
    """Everything the shards depend on."""
    options = {name: value for name, value in vars(corpus).items() if name != "corpus"}
    return {
        "sources": fingerprint_sources(corpus, known),
        "corpus": options,
        "tokenizer": tokenizer.fingerprint,
        "prepare": dict(vars(config)),
        "part": list(part or Part()),
    }


def refuse_other(wanted: dict[str, Any], found: dict[str, Any], folder: Path) -> None:
    """Stop if a folder was made from something else, and say from what."""
    for key, label in (
        ("sources", "the corpus"),
        ("corpus", "a corpus setting"),
        ("tokenizer", "the tokenizer"),
        ("prepare", "a setting"),
        ("part", "the part"),
    ):
        before, now = _timeless(found.get(key)), _timeless(wanted.get(key))
        if before != now:
            raise ValueError(
                f"{folder} was prepared from something else: {label} changed {_difference(before, now)}; "
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


def _read_state(folder: Path) -> dict[str, Any] | None:
    """The manifest of a finished folder, the progress of an unfinished one, None for a new one."""
    if (folder / MANIFEST).exists():
        return read_manifest(folder)
    if (folder / PROGRESS).exists():
        try:
            state = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
            state["identity"]["sources"], state["documents"], state["train"], state["validation"]
            return state
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{folder / PROGRESS} is damaged ({error}); remove {folder} and start again") from None
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise ValueError(f"{folder} holds something that is no prepared data; choose another folder")
    return None


def _check_tokenizer(tokenizer: Tokenizer, path: Path | str) -> None:
    for role in ("cls", "sep", "mask"):
        if getattr(tokenizer.special, f"{role}_id") is None:
            raise ValueError(f"the tokenizer {path} has no {role} token, which masked-language modelling needs")


def _estimate(corpus: CorpusConfig, tokenizer: Tokenizer, part: Part) -> dict[str, float | None]:
    """Characters in all and tokens per character, from the corpus's size and its first documents."""
    texts = [document.text for document in islice(read_documents(corpus), 64)]
    chars = sum(map(len, texts))
    tokens = sum(len(encoding) for encoding in tokenizer.backend.encode_batch_fast(texts, add_special_tokens=False))
    bytes_per_char = sum(len(text.encode("utf-8", "replace")) for text in texts) / max(chars, 1)
    size = corpus_bytes(corpus)
    return {
        "chars": None if size is None else size / max(bytes_per_char, 1) / part.of,
        "tokens_per_char": tokens / max(chars, 1),
        "bytes_per_token": (2 if tokenizer.vocab_size <= 2**16 else 4) + 1 / 8 + 0.2,
    }


def _check_disk(folder: Path, estimate: dict[str, Any], state: dict[str, Any]) -> None:
    needed = _estimated_bytes(estimate)
    if needed is None:
        return
    needed -= sum(entry["tokens"]["size"] for split in SPLITS for entry in state[split])
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(f"{folder}: the shards need about {needed:,} bytes, {free:,} are free")


def _estimated_bytes(estimate: dict[str, Any]) -> int | None:
    if estimate["chars"] is None:
        return None
    return int(estimate["chars"] * estimate["tokens_per_char"] * estimate["bytes_per_token"])


def _fill(folder, state, corpus, tokenizer, config, part, estimate, report) -> None:
    """Read on after the last full shard, encode, and write shard after shard."""
    vocab_size = tokenizer.vocab_size
    builders = {split: RowBuilder(tokenizer.special, config) for split in SPLITS}
    documents, chars = state["documents"], state["chars"]
    written = sum(entry["num_tokens"] for split in SPLITS for entry in state[split])

    def flush() -> None:
        for split, builder in builders.items():
            rows = builder.take()
            if len(rows.ids_T):
                name = f"{split}-{len(state[split]):05d}"
                state[split].append(write_shard(folder, name, rows, vocab_size))
        state["documents"], state["chars"] = documents, chars
        write_json(folder / PROGRESS, state)

    mine = _documents_of_part(read_documents(corpus), part)
    batches = _batches(_skip(mine, documents))
    validation = False
    for batch, ids_D, starts_word_D in _encode_ahead(batches, tokenizer, config):
        for document, ids, starts_word in zip(batch, ids_D, starts_word_D, strict=True):
            documents += 1
            chars += len(document.text)
            if not document.continued:
                validation = document_hash(document.text, "validation") < config.validation_share * 2**64
            if not (validation and document.repeat):
                builders["validation" if validation else "train"].add(ids, starts_word)
        held = sum(builder.num_tokens for builder in builders.values())
        if held >= config.shard_tokens:
            flush()
            written += held
            held = 0
        report(
            Progress(
                chars=chars,
                total_chars=None if estimate["chars"] is None else int(estimate["chars"]),
                tokens=written + held,
                estimated_bytes=_estimated_bytes(estimate),
            )
        )
    flush()


def _documents_of_part(documents: Iterator[Document], part: Part) -> Iterator[Document]:
    """Every `of`-th document; the parts of a long document stay together."""
    place = -1
    for document in documents:
        place += not document.continued
        if place % part.of == part.number - 1:
            yield document


def _skip(documents: Iterator[Document], count: int) -> Iterator[Document]:
    return islice(documents, count, None)


def _batches(documents: Iterator[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.text)
        if size >= _BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _encode_ahead(batches: Iterator[list[Document]], tokenizer: Tokenizer, config: PrepareConfig):
    """Encode a batch in the background while the one before it is laid into rows."""
    encode = _encoder(tokenizer, config)
    with ThreadPoolExecutor(1) as background:
        pending = None
        for batch in chain(batches, [None]):
            done, pending = pending, batch and (batch, background.submit(encode, batch))
            if done:
                yield done[0], *done[1].result()


def _encoder(tokenizer: Tokenizer, config: PrepareConfig) -> Callable[[list[Document]], tuple[list, list]]:
    """What turns documents into ids and word starts; words come from the vocabulary where that is exact."""
    backend = tokenizer.backend
    # "[MASK]" written in the corpus is text, not the special token.
    backend.encode_special_tokens = True
    tokens = backend.get_vocab()
    segmenter: Segmenter | None = jieba_segmenter() if config.segmenter == "jieba" else None
    by_table = segmenter is None and any(token.startswith("##") for token in tokens)
    table = word_table(tokens, tokenizer.vocab_size) if by_table else None

    def encode(batch: list[Document]) -> tuple[list, list]:
        texts = [document.text for document in batch]
        fast = backend.encode_batch if segmenter else backend.encode_batch_fast
        encodings = fast(texts, add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        ends = np.cumsum(lengths)
        ids_T = np.fromiter(chain.from_iterable(ids), np.int64, int(lengths.sum()))
        if segmenter:
            starts = [
                starts_from_segments(text, encoding.offsets, segmenter)
                for text, encoding in zip(texts, encodings, strict=True)
            ]
        elif table:
            starts = np.split(table.starts(ids_T), ends[:-1])
        else:
            starts = [starts_from_word_ids(encoding.word_ids) for encoding in encodings]
        return np.split(ids_T, ends[:-1]), starts

    return encode


def _finish(folder: Path, tokenizer: Tokenizer, identity: dict[str, Any], shards: dict[str, list]) -> None:
    """Write the manifest, with which the folder counts as finished."""
    tokenizer.save(folder / "tokenizer")
    fingerprint = hashlib.sha256(
        json.dumps([identity["tokenizer"], identity["prepare"], shards], sort_keys=True).encode()
    ).hexdigest()
    manifest = {
        "format": FORMAT,
        "fingerprint": fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "identity": identity,
        "shards": shards,
    }
    write_json(folder / MANIFEST, manifest)
    (folder / PROGRESS).unlink(missing_ok=True)
