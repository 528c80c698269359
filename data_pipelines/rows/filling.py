"""Encoded documents to shards. A preparation that was killed resumes after its last full shards."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_pipelines import durable
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.cutting import RowBuilder
from data_pipelines.rows.encode import Encoded
from data_pipelines.rows.manifest import MANIFEST, PROGRESS, SPLITS, read_manifest
from data_pipelines.rows.shards import ShardWriter
from data_pipelines.text.corpus import Document, document_hash
from data_pipelines.vocab.tokenizer import Tokenizer

_WRITTEN_TOKENS = 1 << 17
"""Tokens written at once, about."""


@dataclass
class PrepareState:
    """How far a preparation is: the content of progress.json."""

    identity: dict[str, Any]
    """What the shards are made from."""
    documents: int
    """Documents, or parts of long ones, that the full shards hold."""
    chars: int
    """Characters in them."""
    shards: dict[str, list[dict[str, Any]]]
    """The full shards of each split, as the manifest lists them."""
    validation: bool = False
    """Whether the last document was held out; the rest of a long one goes the same way."""
    finished: bool = False

    @classmethod
    def start(cls, identity: dict[str, Any]) -> "PrepareState":
        return cls(identity, documents=0, chars=0, shards={split: [] for split in SPLITS})

    def save(self, folder: Path) -> None:
        durable.replace_file(folder / PROGRESS, durable.json_bytes(vars(self)))


def read_state(folder: Path) -> PrepareState | None:
    """How far the preparation in a folder is; None where it starts from the beginning."""
    if (folder / MANIFEST).exists():
        manifest = read_manifest(folder)
        return replace(PrepareState.start(manifest["identity"]), shards=manifest["shards"], finished=True)
    if (folder / PROGRESS).exists():
        try:
            state = PrepareState(**json.loads((folder / PROGRESS).read_text(encoding="utf-8")))
            state.identity["sources"]
            # Without a full shard there is nothing to resume, and no reason to refuse another corpus.
            return state if any(state.shards[split] for split in SPLITS) else None
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{folder / PROGRESS} is damaged ({error}); remove {folder} and start again") from None
    first = durable.temporary_path(folder / PROGRESS)  # a kill before any file is complete leaves this one
    if folder.is_file() or (folder.is_dir() and any(path.name != first.name for path in folder.iterdir())):
        raise ValueError(f"{folder} holds something other than prepared data; choose another folder")
    return None


class ShardFiller:
    """Lays encoded documents into the shards of both splits, and records every full shard in the state."""

    def __init__(self, folder: Path, state: PrepareState, tokenizer: Tokenizer, config: PrepareConfig):
        self.folder, self.state = folder, state
        self._vocab_size, self._config = tokenizer.vocab_size, config
        self._builders = {split: RowBuilder(tokenizer.special, config) for split in SPLITS}
        self._writers: dict[str, ShardWriter] = {}
        self._full_tokens = sum(entry["num_tokens"] for split in SPLITS for entry in state.shards[split])

    @property
    def num_tokens(self) -> int:
        """All tokens, also those of shards that are not full yet."""
        return self._full_tokens + self._open_tokens

    def add(self, batch: list[Document], encoded: Encoded) -> None:
        for split, flags in self._split(batch).items():
            builder = self._builders[split]
            chosen = encoded.choose(flags)
            builder.add(chosen.lengths, chosen.ids_T, chosen.starts_word_T)
            if builder.num_tokens >= _WRITTEN_TOKENS:
                self._write(split)
        self.state.documents += len(batch)
        self.state.chars += sum(len(document.text) for document in batch)
        if self._open_tokens >= self._config.shard_tokens:
            self.close_shards()

    def close_shards(self) -> None:
        """Complete the open shards; a killed preparation resumes from here."""
        for split, builder in self._builders.items():
            if builder.num_tokens:
                self._write(split)
            if split in self._writers:
                entry = self._writers.pop(split).close()
                self.state.shards[split].append(entry)
                self._full_tokens += entry["num_tokens"]
                builder.end_row()
        self.state.save(self.folder)

    def _split(self, batch: list[Document]) -> dict[str, list[bool]]:
        """Which documents belong to each split; a repeated document is held out once."""
        flags: dict[str, list[bool]] = {split: [] for split in SPLITS}
        for document in batch:
            if not document.continued:
                bound = self._config.validation_share * 2**64
                self.state.validation = document_hash(document.text, "validation") < bound
            flags["train"].append(not self.state.validation)
            flags["validation"].append(self.state.validation and not document.repeat)
        return flags

    def _write(self, split: str) -> None:
        if split not in self._writers:
            name = f"{split}-{len(self.state.shards[split]):05d}"
            self._writers[split] = ShardWriter(self.folder, name, self._vocab_size)
        self._writers[split].add(self._builders[split].take())

    @property
    def _open_tokens(self) -> int:
        written = sum(writer.num_tokens for writer in self._writers.values())
        return written + sum(builder.num_tokens for builder in self._builders.values())
