"""A corpus and a tokenizer to a folder of token shards, made once, outside of any training process."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_pipelines import durable
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.encode import Encoded, encode_ahead, encoder
from data_pipelines.rows.filling import PrepareState, ShardFiller, read_state
from data_pipelines.rows.given_ids import ids_encoder, read_given
from data_pipelines.rows.manifest import FORMAT, MANIFEST, PROGRESS, SPLITS, manifest_bytes, read_manifest
from data_pipelines.rows.provenance import identify, refuse_other
from data_pipelines.rows.shards import check_files, open_rows, verify_rows
from data_pipelines.rows.stored import read_origin
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import Document, check_unchanged, corpus_bytes, fingerprint_sources
from data_pipelines.text.digest import file_hash, remember_hashes, remember_hashes_of
from data_pipelines.text.parts import Part, in_blocks, read_part
from data_pipelines.vocab.tokenizer import Tokenizer, load_tokenizer
from data_pipelines.vocab.words import Segmenter, jieba_segmenter

_BATCH_TOKENS = 1 << 14
"""Tokens that a thread encodes at once, about; each takes some hundred bytes until it is in an array."""
_AHEAD_TOKENS = 1 << 19
"""Tokens being encoded at the same time, at most, about: this bounds memory on any number of cores."""
_ESTIMATE_CHARS = 1 << 16
SOURCES = "sources.json"
"""In a folder of parts: the hashes of the corpus's files, taken once for all of them."""


class Progress(NamedTuple):
    """How far a preparation is; `total_chars` is an estimate, None where the size is unknown."""

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
    """Prepare the folder, resume it, or find it finished. Returns the folder with the manifest (a part has its own).

    A folder made from another corpus, tokenizer or setting is refused, naming what differs. A `segmenter` replaces the
    one that the config names; the folder remembers its qualified name. It is called from other threads, one at a time.
    """
    _check_place(Path(folder), part)
    folder = Path(folder) / part.folder if part else Path(folder)
    tokenizer = load_tokenizer(tokenizer_path)
    _check_tokenizer(tokenizer, tokenizer_path)
    state = read_state(folder)
    known = state.identity["sources"] if state else _noted_sources(folder.parent) if part else ()
    identity = identify(corpus, tokenizer, config, part or Part(), known)
    if segmenter is not None:
        identity["prepare"]["segmenter"] = _name_of(segmenter)
    if state:
        refuse_other(identity, state.identity, folder)
        for split in SPLITS:
            check_files(folder, state.shards[split])
        if state.finished:
            verify_rows(folder)
            return folder
    if corpus.content == "ids" and identity["prepare"]["segmenter"] != "tokenizer":
        raise ValueError(f"segmenter={identity['prepare']['segmenter']} needs text, and content=ids has none")
    if corpus.content == "ids" and config.rows == "sentences":
        raise ValueError("rows=sentences needs text, and content=ids has none")
    if segmenter is None and config.segmenter == "jieba":
        segmenter = jieba_segmenter()
    estimate = _estimate(corpus, tokenizer, part or Part())
    if not state:
        state = PrepareState.start(identity)
        folder.mkdir(parents=True, exist_ok=True)
        state.save(folder)
    _check_disk(folder, estimate, state)
    documents = islice(_read(corpus, tokenizer, part or Part()), state.documents, None)
    filler = ShardFiller(folder, state, tokenizer, config)
    if corpus.content == "text":
        encode = encoder(tokenizer, segmenter, by_sentence=config.rows == "sentences")
    else:
        encode = ids_encoder(tokenizer)
    _fill(filler, documents, encode, estimate, report)
    check_unchanged(corpus, identity["sources"])
    if not part:  # what one part lacks, another may have
        _check_maskable(folder, state.shards, tokenizer, tokenizer_path)
    _finish(folder, tokenizer, identity, state.shards)
    return folder


def merge(folder: Path | str) -> Path:
    """Make one set of the parts in a folder. Every part must be there, finished, and made from the same."""
    folder = Path(folder)
    if (folder / MANIFEST).exists():
        raise ValueError(f"{folder} is already finished")
    found = sorted(path for path in folder.glob("part-*-of-*") if path.is_dir())
    if not found:
        raise ValueError(f"{folder} holds no parts; make them with 'bertkit prepare --part 1/N', 2/N, ...")
    manifests = {path.name: read_manifest(path) for path in found}
    _, of = manifests[found[0].name]["identity"]["part"]
    expected = {Part(number, of).folder: [number, of] for number in range(1, of + 1)}
    if missing := [name for name in expected if name not in manifests]:
        raise ValueError(f"{folder} lacks {len(missing)} of {of} parts: {', '.join(missing[:5])}")
    if foreign := [name for name in manifests if name not in expected]:
        raise ValueError(f"{folder} holds {foreign[0]} in addition to {of} parts; remove it")
    whole = manifests[found[0].name]["identity"]
    shards: dict[str, list] = {split: [] for split in SPLITS}
    for name, manifest in manifests.items():
        refuse_other(whole | {"part": expected[name]}, manifest["identity"], folder / name)
        for split in SPLITS:
            if read_origin(folder / name) is None:
                check_files(folder / name, manifest["shards"][split])
            shards[split] += [entry | {"name": f"{name}/{entry['name']}"} for entry in manifest["shards"][split]]
        remember_hashes_of(name, folder)
    first = load_tokenizer(folder / found[0].name / "tokenizer")
    _check_maskable(folder, shards, first, folder / found[0].name / "tokenizer")
    _finish(folder, first, {key: whole[key] for key in whole if key != "split"} | {"part": list(Part())}, shards)
    return folder


def note_sources(folder: Path, corpus: CorpusConfig) -> None:
    """Hash the files of a corpus once for all parts that `folder` is to hold: they read a file only if it was touched
    since."""
    folder.mkdir(parents=True, exist_ok=True)
    noted = fingerprint_sources(corpus, _noted_sources(folder))
    durable.replace_file(folder / SOURCES, durable.json_bytes(noted))


def _noted_sources(folder: Path) -> list[dict]:
    path = folder / SOURCES
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


def unknown_share(folder: Path | str) -> float:
    """The share of unknown tokens in a finished folder, not counting [CLS] and [SEP]."""
    special = load_tokenizer(Path(folder) / "tokenizer").special
    if special.unk_id is None:
        return 0.0
    counts_V = np.sum([open_rows(folder, split).token_counts() for split in SPLITS], axis=0)
    num_tokens = counts_V.sum() - counts_V[special.cls_id] - counts_V[special.sep_id]
    return float(counts_V[special.unk_id] / max(num_tokens, 1))


def _check_place(folder: Path, part: Part | None) -> None:
    """A folder holds one set, or parts of one, never both."""
    whole = any((folder / name).exists() for name in (MANIFEST, PROGRESS))
    if part and whole and not (folder / part.folder / MANIFEST).exists():
        raise ValueError(f"{folder} holds a complete set, not parts; choose another folder for parts")
    if not part and not whole and next(folder.glob("part-*-of-*"), None):
        raise ValueError(
            f"{folder} holds parts; merge them with 'bertkit prepare --merge {folder}', "
            f"or choose another folder for the whole"
        )


def _name_of(segmenter: Segmenter) -> str:
    """The qualified name of a function, or of the class of a callable object."""
    named = segmenter if hasattr(segmenter, "__qualname__") else type(segmenter)
    return f"{named.__module__}.{named.__qualname__}"


def _check_tokenizer(tokenizer: Tokenizer, path: Path | str) -> None:
    for role in ("cls", "sep", "mask"):
        if getattr(tokenizer.special, f"{role}_id") is None:
            raise ValueError(f"the tokenizer {path} has no {role} token, which masked-language modelling needs")


class Estimate(NamedTuple):
    """What is known beforehand, from the corpus's size and its first documents."""

    chars: float | None
    """None where the size is unknown."""
    tokens_per_char: float
    bytes_per_token: float

    @property
    def num_bytes(self) -> int | None:
        return None if self.chars is None else int(self.chars * self.tokens_per_char * self.bytes_per_token)


def _read(corpus: CorpusConfig, tokenizer: Tokenizer, part: Part) -> Iterator[Document]:
    return read_part(corpus, part) if corpus.content == "text" else read_given(corpus, tokenizer, part)


def _estimate(corpus: CorpusConfig, tokenizer: Tokenizer, part: Part) -> Estimate:
    texts = [document.text for document in next(in_blocks(_read(corpus, tokenizer, Part()), _ESTIMATE_CHARS), [])]
    if not texts:
        raise ValueError(f"the corpus {', '.join(corpus.corpus)} holds no {corpus.content}")
    bytes_per_token = (2 if tokenizer.vocab_size <= 2**16 else 4) + 1 / 8 + 0.2
    if corpus.content == "ids":
        return Estimate(chars=None, tokens_per_char=1.0, bytes_per_token=bytes_per_token)
    chars = sum(map(len, texts))
    tokens = sum(len(encoding) for encoding in tokenizer.backend.encode_batch_fast(texts, add_special_tokens=False))
    bytes_per_char = sum(len(text.encode()) for text in texts) / chars
    size = corpus_bytes(corpus)
    return Estimate(
        chars=None if size is None else size / bytes_per_char / part.of,
        tokens_per_char=tokens / chars,
        bytes_per_token=bytes_per_token,
    )


def _check_disk(folder: Path, estimate: Estimate, state: PrepareState) -> None:
    if estimate.num_bytes is None:
        return
    written = sum(entry["tokens"]["size"] for split in SPLITS for entry in state.shards[split])
    needed, free = estimate.num_bytes - written, shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            f"{folder}: the shards need about {needed:,} bytes, {free:,} are free; make room, or choose another disk"
        )


def _fill(
    filler: ShardFiller,
    documents: Iterator[Document],
    encode: Callable[[list[Document]], Encoded],
    estimate: Estimate,
    report: Callable[[Progress], None],
) -> None:
    """Encode documents on all cores and lay them into shards; report before the first batch and after each."""
    batch_chars, ahead_chars = (int(n / max(estimate.tokens_per_char, 0.01)) for n in (_BATCH_TOKENS, _AHEAD_TOKENS))
    report(_progress(filler, estimate))
    with closing(encode_ahead(in_blocks(documents, batch_chars), encode, ahead_chars)) as encoding:
        for batch, encoded in encoding:
            filler.add(batch, encoded)
            report(_progress(filler, estimate))
    filler.close_shards()


def _progress(filler: ShardFiller, estimate: Estimate) -> Progress:
    total_chars = None if estimate.chars is None else int(estimate.chars)
    return Progress(filler.state.chars, total_chars, filler.num_tokens, estimate.num_bytes)


def _check_maskable(folder: Path, shards: dict[str, list], tokenizer: Tokenizer, path: Path | str) -> None:
    """Refuse rows of special tokens alone, which have nothing to learn: the tokenizer is of another language or
    script."""
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
    """Write the manifest: from then on the folder is finished."""
    tokenizer.save(folder / "tokenizer")
    hashes = {f"tokenizer/{file.name}": file_hash(file) for file in (folder / "tokenizer").iterdir()}
    remember_hashes(folder, hashes)
    manifest = {
        "format": FORMAT,
        "vocab_size": tokenizer.vocab_size,
        "identity": identity,
        "shards": shards,
        "tokenizer": hashes,
    }
    durable.replace_file(folder / MANIFEST, manifest_bytes(manifest))
    (folder / PROGRESS).unlink(missing_ok=True)
