"""Token shards on disk: arrays enter on one side, memory-mapped rows leave on the other.

A shard is five raw little-endian files. `tokens` holds the ids (uint16 or uint32), `words` one bit a token (1: first
of its word), `sequences` where each sequence starts among the tokens, `rows` where each row starts among the
sequences (uint32 both, with the end appended), `counts` how often each id occurs (int64). The folder's manifest.json
names them all with sizes and hashes; a folder without it is unfinished.
"""

import hashlib
import shutil
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_pipelines import durable
from data_pipelines.rows.batch import RowBatch
from data_pipelines.rows.manifest import SPLITS, read_manifest
from data_pipelines.rows.stored import drop_shard, fetch_counts, fetch_shard, is_here, read_origin, shard_bytes
from data_pipelines.text.digest import begin_hashing, check_hashes, remember_hashes

# T tokens, S sequences, R rows, B rows of a batch, V vocabulary

_POLL_SECONDS = 0.02
FILES = ("tokens", "words", "sequences", "rows", "counts")


class ShardWriter:
    """Writes rows a few at a time; `close` completes the shard and waits for the disk."""

    def __init__(self, folder: Path, name: str, vocab_size: int):
        self.folder, self.name = folder, name
        self.num_tokens = self._num_sequences = self._num_rows = 0
        self._type, self._counts = token_type(vocab_size), np.zeros(vocab_size, "<i8")
        self._loose_bits = np.empty(0, bool)
        """Bits of the last tokens that do not fill a byte yet."""
        self._sizes = dict.fromkeys(FILES, 0)
        self._hashes = {kind: hashlib.sha256() for kind in FILES}

    def add(self, rows: RowBatch) -> None:
        """Append rows; sequences before the first row start belong to the last row written."""
        words = np.concatenate([self._loose_bits, rows.starts_word_T])
        whole = len(words) // 8 * 8
        self._loose_bits = words[whole:]
        self._append("tokens", rows.ids_T.astype(self._type, copy=False))
        self._append("words", np.packbits(words[:whole]))
        self._append("sequences", (rows.sequence_starts[:-1] + self.num_tokens).astype("<u4"))
        opening = np.searchsorted(rows.sequence_starts, rows.row_starts[:-1])
        self._append("rows", (opening + self._num_sequences).astype("<u4"))
        self._counts += np.bincount(rows.ids_T, minlength=len(self._counts))
        self.num_tokens += len(rows.ids_T)
        self._num_sequences += len(rows.sequence_starts) - 1
        self._num_rows += len(opening)

    def close(self) -> dict[str, Any]:
        """Write the ends, wait for the disk, and return the shard's entry for the manifest. The files were hashed as
        they were written, so a start need not do it again."""
        self._append("words", np.packbits(self._loose_bits))
        self._append("sequences", np.array([self.num_tokens], "<u4"))
        self._append("rows", np.array([self._num_sequences], "<u4"))
        self._append("counts", self._counts)
        # Five files wait for the disk together as long as one alone.
        with ThreadPoolExecutor(len(FILES)) as threads:
            list(threads.map(self._sync, FILES))
        entries = {kind: {"size": self._sizes[kind], "sha256": self._hashes[kind].hexdigest()} for kind in FILES}
        entry = {"name": self.name, "num_rows": self._num_rows, "num_tokens": self.num_tokens} | entries
        remember_hashes(self.folder, _hashes([entry], FILES))
        return entry

    def _append(self, kind: str, values: np.ndarray) -> None:
        data = values.tobytes()
        try:
            durable.append_file(self._path(kind), data, anew=not self._sizes[kind])
        except OSError as error:
            raise self._disk_error(kind, error, len(data)) from error
        self._sizes[kind] += len(data)
        self._hashes[kind].update(data)

    def _sync(self, kind: str) -> None:
        try:
            durable.sync(self._path(kind))
        except OSError as error:
            raise self._disk_error(kind, error, self._sizes[kind]) from error

    def _disk_error(self, kind: str, error: OSError, needed: int) -> OSError:
        free = shutil.disk_usage(self.folder).free
        return OSError(f"{self._path(kind)}: {error.strerror}; {needed:,} bytes are needed, {free:,} are free")

    def _path(self, kind: str) -> Path:
        return self.folder / f"{self.name}.{kind}"


def token_type(vocab_size: int) -> str:
    """The smallest type that holds every id."""
    return "<u2" if vocab_size <= 2**16 else "<u4"


def check_files(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Refuse shards with a file that is missing or has another size than when it was written."""
    for entry in entries:
        for kind in FILES:
            path, expected = folder / f"{entry['name']}.{kind}", entry[kind]["size"]
            size = path.stat().st_size if path.is_file() else None
            if size != expected:
                state = "is missing" if size is None else f"is damaged: {size:,} bytes, expected {expected:,}"
                raise ValueError(f"{path} {state}; remove {folder} and prepare again")


def verify_rows(folder: Path) -> None:
    """Refuse a prepared folder whose rows, or the tokenizer next to them, are not what was written."""
    for split in SPLITS:
        open_rows(folder, split).verify()
    check_hashes(folder, read_manifest(folder).get("tokenizer", {}))  # an older version wrote none


def begin_to_verify(folder: Path) -> None:
    """Let a later `verify_rows` find most of its work done, by a thread beside whatever comes first. What is wrong with
    the folder is left for it to tell."""
    with suppress(OSError, ValueError):
        entries = chain.from_iterable(read_manifest(folder)["shards"].values())
        begin_hashing(folder, _hashes(entries, FILES))


class _Shard(NamedTuple):
    tokens: np.ndarray
    words: np.ndarray
    sequences: np.ndarray
    rows: np.ndarray


def open_rows(folder: Path | str, split: str = "train") -> "Rows":
    """Open the rows of one split of a prepared folder."""
    return Rows(folder, split)


class Rows:
    """The rows of one split, memory-mapped. Opening takes the same time for any number of rows; shards that lie on a
    store are fetched when their rows are asked for."""

    def __init__(self, folder: Path | str, split: str = "train"):
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
        self.folder, self.split = Path(folder), split
        manifest = read_manifest(self.folder)
        self.vocab_size: int = manifest["vocab_size"]
        self.seq_len: int = manifest["identity"]["prepare"]["seq_len"]
        self.fingerprint: str = manifest["fingerprint"]
        self._set_shards(manifest["shards"][split])
        self._waits = False
        self.origin = read_origin(self.folder)
        """The store that the shards come from; None where they are all here."""
        if self.origin is None:
            check_files(self.folder, self._entries)

    def _set_shards(self, entries: list[dict[str, Any]]) -> None:
        self._entries, self._open = entries, dict[int, _Shard]()
        self.num_tokens = sum(entry["num_tokens"] for entry in entries)
        # Four bytes for each start, and for the end of the last sequence.
        self.num_sequences = sum(entry["sequences"]["size"] // 4 - 1 for entry in entries)
        self.rows_of_shards: list[int] = [entry["num_rows"] for entry in entries]
        self.bytes_of_shards = [shard_bytes(entry) for entry in entries]
        self._first_row = np.cumsum([0] + self.rows_of_shards)

    @property
    def num_files(self) -> int:
        """Files that stay open once rows were read: all but the counts."""
        num_shards = len(self._entries)
        if self.origin is not None and num_shards:
            num_shards = min(num_shards, self.origin.max_bytes // max(min(self.bytes_of_shards), 1) + 1)
        return 4 * num_shards

    def __len__(self) -> int:
        return int(self._first_row[-1])

    def gather(self, row_ids: np.ndarray) -> RowBatch:
        """The rows of these ids laid end to end, in the order given."""
        assert len(row_ids) == 0 or (row_ids.min() >= 0 and row_ids.max() < len(self)), "a row that is not there"
        shard_of_row = self.shards_of(row_ids)
        parts = [
            (np.flatnonzero(shard_of_row == shard), self._shard(int(shard)), int(self._first_row[shard]))
            for shard in np.unique(shard_of_row)
        ]
        num_rows = len(row_ids)
        row_lengths, sequence_counts = np.empty(num_rows, np.int64), np.empty(num_rows, np.int64)
        for here, shard, first in parts:
            local = row_ids[here] - first
            begin, end = shard.rows[local].astype(np.int64), shard.rows[local + 1].astype(np.int64)
            sequence_counts[here] = end - begin
            row_lengths[here] = shard.sequences[end].astype(np.int64) - shard.sequences[begin]
        row_starts = _borders(row_lengths)
        first_sequence = _borders(sequence_counts)
        ids_T = np.empty(row_starts[-1], np.int64)
        words_T = np.empty(row_starts[-1], bool)
        sequence_starts = np.empty(first_sequence[-1] + 1, np.int64)
        sequence_starts[-1] = row_starts[-1]
        for here, shard, first in parts:
            begin = shard.rows[row_ids[here] - first].astype(np.int64)
            source, target = _ranges(begin, first_sequence[here], sequence_counts[here])
            token = shard.sequences[begin].astype(np.int64)
            shift = np.repeat(row_starts[here] - token, sequence_counts[here])
            sequence_starts[target] = shard.sequences[source].astype(np.int64) + shift
            source, target = _ranges(token, row_starts[here], row_lengths[here])
            ids_T[target] = shard.tokens[source]
            words_T[target] = (shard.words[source >> 3] >> (7 - (source & 7)).astype(np.uint8)) & 1
        return RowBatch(ids_T, row_starts, sequence_starts, words_T)

    def shards_of(self, row_ids: np.ndarray) -> np.ndarray:
        """The shard of each row."""
        return np.searchsorted(self._first_row, row_ids, side="right") - 1

    def token_counts(self) -> np.ndarray:
        """(V,) how often each id occurs."""
        if self.origin is not None:
            fetch_counts(self.folder, self.origin, self._entries)
        counts = np.zeros(self.vocab_size, np.int64)
        for entry in self._entries:
            counts += np.fromfile(self.folder / f"{entry['name']}.counts", "<i8")
        return counts

    def verify(self) -> None:
        """Compare the hash of every file with the manifest's; one that was not touched since is not read again."""
        if self.origin is None:
            check_hashes(self.folder, _hashes(self._entries, FILES))
            return
        for entry in self._entries:
            try:
                if is_here(self.folder, entry):
                    check_hashes(self.folder, _hashes([entry], _Shard._fields))
            except ValueError:  # it is fetched again
                drop_shard(self.folder, entry)

    def is_here(self, shard: int) -> bool:
        return self.origin is None or is_here(self.folder, self._entries[shard])

    def fetch(self, shard: int) -> None:
        """Copy a shard from its store, if it is not here."""
        if self.origin is not None and not self.is_here(shard):
            fetch_shard(self.folder, self.origin, self._entries[shard])

    def drop(self, shard: int) -> None:
        """Make room for another shard."""
        assert self.origin is not None, "these rows have no other copy"
        drop_shard(self.folder, self._entries[shard])

    def of_shard(self, shard: int) -> "Rows":
        """The rows of one shard."""
        some = copy(self)
        some._set_shards([self._entries[shard]])
        return some

    def waiting(self) -> "Rows":
        """These rows for a process that waits for shards which another one fetches."""
        waiting = copy(self)
        waiting._open, waiting._waits = {}, True
        return waiting

    def _shard(self, shard: int) -> _Shard:
        if shard not in self._open:
            # A file that was removed takes room until it is no longer mapped.
            self._open = {number: opened for number, opened in self._open.items() if self.is_here(number)}
            while (opened := self._mapped(shard)) is None:
                time.sleep(_POLL_SECONDS)
            self._open[shard] = opened
        return self._open[shard]

    def _mapped(self, shard: int) -> _Shard | None:
        """The files of a shard; None where another process has yet to fetch them, or is removing them: those of an
        earlier epoch may still be here when the next one asks for them."""
        if not self._waits:
            self.fetch(shard)
        types = {"tokens": token_type(self.vocab_size), "words": "u1", "sequences": "<u4", "rows": "<u4"}
        path = self.folder / self._entries[shard]["name"]
        try:
            return _Shard(**{kind: _map(Path(f"{path}.{kind}"), types[kind]) for kind in types})
        except FileNotFoundError:
            if not self._waits or self.origin is None:
                raise
            return None

    def __getstate__(self) -> dict[str, Any]:
        # A loader worker maps the files itself: maps are pickled as copies.
        return {**self.__dict__, "_open": {}}


def _hashes(entries: Iterable[dict[str, Any]], kinds: Iterable[str]) -> dict[str, str]:
    return {f"{entry['name']}.{kind}": entry[kind]["sha256"] for entry in entries for kind in kinds}


def _map(path: Path, kind: str) -> np.ndarray:
    return np.memmap(path, kind, mode="r") if path.stat().st_size else np.empty(0, kind)


def _borders(lengths: np.ndarray) -> np.ndarray:
    borders = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=borders[1:])
    return borders


def _ranges(source: np.ndarray, target: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices that copy runs of `lengths` from `source` to `target`."""
    steps = np.arange(int(lengths.sum())) - np.repeat(_borders(lengths)[:-1], lengths)
    return np.repeat(source, lengths) + steps, np.repeat(target, lengths) + steps
