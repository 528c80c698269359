"""A recipe enters; the tokenizer and the rows to train on leave, made once and kept for the next run.

This happens before the processes of a run meet: each rank comes here by itself, the first one that takes the lock
does the work, the others wait for the lock and find it done. No collective can time out meanwhile.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.fields import part, plain
from bertkit.recipe import ImportedSection, Recipe
from bertkit.training import durable
from bertkit.training.lock import locked
from data_pipelines.config import CorpusConfig, PrepareConfig, TokenizerConfig
from data_pipelines.corpus import fingerprint_sources, read_documents
from data_pipelines.extend import extend_tokenizer
from data_pipelines.prepare import prepare
from data_pipelines.shards import Rows, open_rows
from data_pipelines.tokenizer import Tokenizer, load_tokenizer, train_tokenizer

Say = Callable[[str], None]

_EXTEND_DOCUMENTS = 20_000


class Inputs(NamedTuple):
    tokenizer: Tokenizer
    train: Rows
    validation: Rows
    corpus: str
    """Fingerprint of the text."""
    old_pieces: dict[int, list[int]]
    """The ids that each token of an extended vocabulary replaces; empty without an extension."""
    old_domain: Rows | None
    """Rows of the text that an imported model knew before, where the recipe names any."""

    def facts(self) -> dict[str, Any]:
        """What must not change while a run goes on."""
        return {"corpus": self.corpus, "tokenizer": self.tokenizer.fingerprint, "rows": self.train.fingerprint}


def prepare_inputs(recipe: Recipe, say: Say) -> Inputs:
    """Find or make the tokenizer and the shards that the recipe asks for."""
    corpus, config = part(recipe.data, CorpusConfig), part(recipe.data, PrepareConfig)
    cache = cache_folder(recipe.data.cache_dir)
    tokenizer_folder = _tokenizer_folder(recipe, corpus, cache, say)
    rows_folder = prepared_rows(corpus, tokenizer_folder, config, cache, say)
    extension = tokenizer_folder / "old_pieces.json"
    old_pieces = json.loads(extension.read_bytes()) if extension.is_file() else {}
    return Inputs(
        tokenizer=load_tokenizer(tokenizer_folder),
        train=open_rows(rows_folder, "train"),
        validation=open_rows(rows_folder, "validation"),
        corpus=fingerprint_text(corpus),
        old_pieces={int(index): pieces for index, pieces in old_pieces.items()},
        old_domain=_old_domain(recipe, tokenizer_folder, cache, say),
    )


def prepared_rows(corpus: CorpusConfig, tokenizer_folder: Path, config: PrepareConfig, cache: Path, say: Say) -> Path:
    """The folder of shards for this text, tokenizer and shape of rows."""
    key = _digest([fingerprint_text(corpus), load_tokenizer(tokenizer_folder).fingerprint, plain(config)])
    folder = cache / "rows" / key
    with locked(folder.with_suffix(".lock"), wait=True):
        say(f"preparing rows of {config.seq_len} tokens in {folder}")
        prepare(corpus, tokenizer_folder, config, folder)
    return folder


def fingerprint_text(corpus: CorpusConfig) -> str:
    """What the corpus says, whatever folder its files lie in."""
    sources = [{**source, "modified": None} for source in fingerprint_sources(corpus)]
    return _digest([sources, plain(corpus) | {"corpus": None}])


def cache_folder(chosen: str | None) -> Path:
    return Path(chosen or os.environ.get("BERTKIT_CACHE") or "~/.cache/bertkit").expanduser()


def _tokenizer_folder(recipe: Recipe, corpus: CorpusConfig, cache: Path, say: Say) -> Path:
    """The tokenizer that is given, trained on the corpus, or given and extended by the corpus."""
    given = recipe.model.init if isinstance(recipe.model, ImportedSection) else recipe.tokenizer.path
    if given is not None and not recipe.tokenizer.extend:
        return Path(given)
    config = part(recipe.tokenizer, TokenizerConfig)
    how = plain(config) if given is None else [load_tokenizer(given).fingerprint, recipe.tokenizer.extend]
    folder = cache / "tokenizers" / _digest([fingerprint_text(corpus), how])
    with locked(folder.with_suffix(".lock"), wait=True):
        if not folder.is_dir():
            unfinished = folder.with_suffix(".tmp")
            if unfinished.is_dir():
                durable.remove_folder(unfinished)
            if given is None:
                say(f"training a {config.kind} tokenizer of {config.vocab_size} tokens on {', '.join(corpus.corpus)}")
                train_tokenizer(corpus, config, unfinished)
            else:
                _extend(load_tokenizer(given), corpus, recipe.tokenizer.extend, unfinished, say)
            durable.move(unfinished, folder)
    return folder


def _extend(tokenizer: Tokenizer, corpus: CorpusConfig, num_new: int, folder: Path, say: Say) -> None:
    texts = (document.text for document in islice(read_documents(corpus), _EXTEND_DOCUMENTS))
    extension = extend_tokenizer(tokenizer, texts, num_new)
    say(
        f"{len(extension.old_pieces)} new tokens from the corpus: {extension.pieces_per_word:.2f} pieces per word "
        f"before, {extension.new_pieces_per_word:.2f} after"
    )
    extension.tokenizer.save(folder)
    durable.write_file(folder / "old_pieces.json", durable.json_bytes(extension.old_pieces))


def _old_domain(recipe: Recipe, tokenizer_folder: Path, cache: Path, say: Say) -> Rows | None:
    if not isinstance(recipe.model, ImportedSection) or not recipe.model.old_domain:
        return None
    corpus = replace(part(recipe.data, CorpusConfig), corpus=recipe.model.old_domain)
    config = replace(part(recipe.data, PrepareConfig), validation_share=0.0)
    return open_rows(prepared_rows(corpus, tokenizer_folder, config, cache, say), "train")


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:24]
