"""A corpus and a tokenizer enter, a folder of token shards leaves, once, outside of any training process."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_pipelines import durable
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.cutting import RowBuilder
from data_pipelines.rows.encode import encode_ahead, encoder
from data_pipelines.rows.manifest import FORMAT, MANIFEST, PROGRESS, SPLITS, fingerprint_of, read_manifest
from data_pipelines.rows.provenance import identify, refuse_other
from data_pipelines.rows.shards import ShardWriter, check_files, open_rows
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import Document, corpus_bytes, document_hash, read_documents
from data_pipelines.vocab.tokenizer import Tokenizer, load_tokenizer
from data_pipelines.vocab.words import Segmenter, jieba_segmenter

_BATCH_TOKENS = 1 << 14
"""About as many are encoded at once by each thread; a token takes some hundred bytes until it lies in an array."""
_AHEAD_TOKENS = 1 << 19
"""About as many at most are being encoded, which bounds the memory on any number of cores."""
_WRITTEN_TOKENS = 1 << 17
"""About as many are written at once."""
_ESTIMATE_CHARS = 1 << 16


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
    segmenter: Segmenter | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Path:
    """Make the folder, or go on with it, or find it finished. Returns where the manifest is (or the part's own).

    A folder of another corpus, tokenizer or setting is refused, naming what differs. A `segmenter` says what words
    are in place of the one that the config names; the folder remembers it by its qualified name. It is called from
    other threads, by one at a time.
    """
    _check_place(Path(folder), part)
    folder = Path(folder) / part.folder if part else Path(folder)
    tokenizer = load_tokenizer(tokenizer_path)
    _check_tokenizer(tokenizer, tokenizer_path)
    state = _read_state(folder)
    known = state["identity"]["sources"] if state else ()
    identity = identify(corpus, tokenizer, config, part or Part(), known)
    if segmenter is not None:
        identity["prepare"]["segmenter"] = _name_of(segmenter)
    if state:
        refuse_other(identity, state["identity"], folder)
        for split in SPLITS:
            check_files(folder, state["shards"][split])
        if "fingerprint" in state:
            return folder
    if segmenter is None and config.segmenter == "jieba":
        segmenter = jieba_segmenter()
    estimate = _estimate(corpus, tokenizer, part or Part())
    if not state:
        state = {"identity": identity, "documents": 0, "chars": 0, "shards": {split: [] for split in SPLITS}}
        folder.mkdir(parents=True, exist_ok=True)
        durable.replace_file(folder / PROGRESS, durable.json_bytes(state))
    _check_disk(folder, estimate, state)
    _fill(folder, state, corpus, tokenizer, config, part or Part(), segmenter, estimate, report)
    if not part:  # what one part lacks, another may have
        _check_maskable(folder, state["shards"], tokenizer, tokenizer_path)
    _finish(folder, tokenizer, identity, state["shards"])
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
    _, of = manifests[found[0].name]["identity"]["part"]
    expected = {Part(number, of).folder: [number, of] for number in range(1, of + 1)}
    if missing := [name for name in expected if name not in manifests]:
        raise ValueError(f"{folder} lacks {len(missing)} of {of} parts: {', '.join(missing[:5])}")
    if foreign := [name for name in manifests if name not in expected]:
        raise ValueError(f"{folder} holds {foreign[0]} beside {of} other parts; remove what does not belong")
    whole = manifests[found[0].name]["identity"]
    shards: dict[str, list] = {split: [] for split in SPLITS}
    for name, manifest in manifests.items():
        refuse_other(whole | {"part": expected[name]}, manifest["identity"], folder / name)
        for split in SPLITS:
            check_files(folder / name, manifest["shards"][split])
            shards[split] += [entry | {"name": f"{name}/{entry['name']}"} for entry in manifest["shards"][split]]
    first = load_tokenizer(folder / found[0].name / "tokenizer")
    _check_maskable(folder, shards, first, folder / found[0].name / "tokenizer")
    _finish(folder, first, whole | {"part": list(Part())}, shards)
    return folder


def unknown_share(folder: Path | str) -> float:
    """Which share of a finished folder's text, its [CLS] and [SEP] apart, became the unknown token."""
    special = load_tokenizer(Path(folder) / "tokenizer").special
    if special.unk_id is None:
        return 0.0
    counts_V = np.sum([open_rows(folder, split).token_counts() for split in SPLITS], axis=0)
    num_tokens = counts_V.sum() - counts_V[special.cls_id] - counts_V[special.sep_id]
    return float(counts_V[special.unk_id] / max(num_tokens, 1))


def _check_place(folder: Path, part: Part | None) -> None:
    """A folder holds one set or parts of one, never both side by side."""
    whole = any((folder / name).exists() for name in (MANIFEST, PROGRESS))
    if part and whole and not (folder / part.folder / MANIFEST).exists():
        raise ValueError(f"{folder} is a set of its own, which takes no parts; choose another folder for them")
    if not part and not whole and next(folder.glob("part-*-of-*"), None):
        raise ValueError(
            f"{folder} holds parts; make one set of them with 'bertkit prepare --merge {folder}', "
            f"or choose another folder for the whole"
        )


def _name_of(segmenter: Segmenter) -> str:
    """A function's qualified name, or that of the class where it is an object that can be called."""
    named = segmenter if hasattr(segmenter, "__qualname__") else type(segmenter)
    return f"{named.__module__}.{named.__qualname__}"


def _read_state(folder: Path) -> dict[str, Any] | None:
    """The manifest of a finished folder, the progress of an unfinished one, None for a new one."""
    if (folder / MANIFEST).exists():
        return read_manifest(folder)
    if (folder / PROGRESS).exists():
        try:
            state = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
            state["identity"]["sources"], state["documents"], state["chars"]
            # Before its first shard a preparation has nothing to go on with, nor to refuse another corpus for.
            return state if any(state["shards"][split] for split in SPLITS) else None
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{folder / PROGRESS} is damaged ({error}); remove {folder} and start again") from None
    first = durable.temporary_path(folder / PROGRESS)  # a kill before any file is complete leaves this one
    if folder.is_file() or (folder.is_dir() and any(path.name != first.name for path in folder.iterdir())):
        raise ValueError(f"{folder} holds something that is no prepared data; choose another folder")
    return None


def _check_tokenizer(tokenizer: Tokenizer, path: Path | str) -> None:
    for role in ("cls", "sep", "mask"):
        if getattr(tokenizer.special, f"{role}_id") is None:
            raise ValueError(f"the tokenizer {path} has no {role} token, which masked-language modelling needs")


def _estimate(corpus: CorpusConfig, tokenizer: Tokenizer, part: Part) -> dict[str, float | None]:
    """Characters in all and tokens per character, from the corpus's size and its first documents."""
    texts = [document.text for document in next(_batches(read_documents(corpus), _ESTIMATE_CHARS), [])]
    if not texts:
        raise ValueError(f"the corpus {', '.join(corpus.corpus)} holds no text")
    chars = sum(map(len, texts))
    tokens = sum(len(encoding) for encoding in tokenizer.backend.encode_batch_fast(texts, add_special_tokens=False))
    bytes_per_char = sum(len(text.encode()) for text in texts) / chars
    size = corpus_bytes(corpus)
    return {
        "chars": None if size is None else size / bytes_per_char / part.of,
        "tokens_per_char": tokens / chars,
        "bytes_per_token": (2 if tokenizer.vocab_size <= 2**16 else 4) + 1 / 8 + 0.2,
    }


def _check_disk(folder: Path, estimate: dict[str, Any], state: dict[str, Any]) -> None:
    needed = _estimated_bytes(estimate)
    if needed is None:
        return
    needed -= sum(entry["tokens"]["size"] for split in SPLITS for entry in state["shards"][split])
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(f"{folder}: the shards need about {needed:,} bytes, {free:,} are free")


def _estimated_bytes(estimate: dict[str, Any]) -> int | None:
    if estimate["chars"] is None:
        return None
    return int(estimate["chars"] * estimate["tokens_per_char"] * estimate["bytes_per_token"])


def _fill(folder, state, corpus, tokenizer, config, part, segmenter, estimate, report) -> None:
    """Read on after the last full shard, encode, and write shard after shard."""
    shards = state["shards"]
    builders = {split: RowBuilder(tokenizer.special, config) for split in SPLITS}
    finished = sum(entry["num_tokens"] for split in SPLITS for entry in shards[split])
    writers: dict[str, ShardWriter] = {}

    def write(split: str) -> None:
        if split not in writers:
            writers[split] = ShardWriter(folder, f"{split}-{len(shards[split]):05d}", tokenizer.vocab_size)
        writers[split].add(builders[split].take())

    def finish_shards() -> None:
        for split in SPLITS:
            if builders[split].num_tokens:
                write(split)
            if split in writers:
                shards[split].append(writers.pop(split).close())
                builders[split].end_row()
        durable.replace_file(folder / PROGRESS, durable.json_bytes(state))

    def tell(held: int) -> None:
        report(
            Progress(
                chars=state["chars"],
                total_chars=None if estimate["chars"] is None else int(estimate["chars"]),
                tokens=finished + held,
                estimated_bytes=_estimated_bytes(estimate),
            )
        )

    tell(held=0)
    documents = islice(_documents_of_part(read_documents(corpus), part), state["documents"], None)
    validation = state.get("validation", False)  # what goes on may be the rest of a long document
    batch_chars, ahead_chars = (int(n / max(estimate["tokens_per_char"], 0.01)) for n in (_BATCH_TOKENS, _AHEAD_TOKENS))
    encoding = encode_ahead(_batches(documents, batch_chars), encoder(tokenizer, segmenter), ahead_chars)
    with closing(encoding):
        for batch, encoded in encoding:
            flags: dict[str, list[bool]] = {split: [] for split in SPLITS}
            for document in batch:
                if not document.continued:
                    validation = document_hash(document.text, "validation") < config.validation_share * 2**64
                flags["train"].append(not validation)
                flags["validation"].append(validation and not document.repeat)
            for split, builder in builders.items():
                builder.add(*encoded.choose(flags[split]))
                if builder.num_tokens >= _WRITTEN_TOKENS:
                    write(split)
            state["validation"] = validation
            state["documents"] += len(batch)
            state["chars"] += sum(len(document.text) for document in batch)
            held = sum(writer.num_tokens for writer in writers.values())
            held += sum(builder.num_tokens for builder in builders.values())
            tell(held)
            if held >= config.shard_tokens:
                finish_shards()
                finished += held
    finish_shards()


def _documents_of_part(documents: Iterator[Document], part: Part) -> Iterator[Document]:
    """Every `of`-th document; the parts of a long document stay together."""
    place = -1
    for document in documents:
        place += not document.continued
        if place % part.of == part.number - 1:
            yield document


def _batches(documents: Iterator[Document], num_chars: int) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.text)
        if size >= num_chars:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _check_maskable(folder: Path, shards: dict[str, list], tokenizer: Tokenizer, path: Path | str) -> None:
    """Rows of special tokens alone have nothing to learn from: the tokenizer is of another language or script."""
    counts_V = np.zeros(tokenizer.vocab_size, np.int64)
    for entry in chain.from_iterable(shards.values()):
        counts_V += np.fromfile(folder / f"{entry['name']}.counts", "<i8")
    num_special = counts_V[list(tokenizer.special.special_ids)].sum()
    if num_special and num_special == counts_V.sum():
        raise ValueError(
            f"{folder}: every word of the corpus is unknown to the tokenizer {path}, so nothing could be masked; "
            f"train one on this corpus with 'bertkit tokenizer train'"
        )


def _finish(folder: Path, tokenizer: Tokenizer, identity: dict[str, Any], shards: dict[str, list]) -> None:
    """Write the manifest, with which the folder counts as finished."""
    tokenizer.save(folder / "tokenizer")
    manifest = {"format": FORMAT, "vocab_size": tokenizer.vocab_size, "identity": identity, "shards": shards}
    manifest["fingerprint"] = fingerprint_of(manifest)
    durable.replace_file(folder / MANIFEST, durable.json_bytes(manifest))
    (folder / PROGRESS).unlink(missing_ok=True)
