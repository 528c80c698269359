"""A recipe enters; the tokenizer and the rows to train on leave, made once and kept for the next run.

This happens before the processes of a run meet: each rank comes here by itself, the first one that takes the lock
does the work, the others wait for the lock and find it done. No collective can time out meanwhile.
"""

import hashlib
import json
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.config.fields import part, plain
from bertkit.config.recipe import Recipe
from bertkit.hf import load_outline
from bertkit.hf.folder import HUB_PREFIX, resolve
from bertkit.hf.matching import check_head, check_vocabulary
from bertkit.run.lock import locked
from bertkit.terminal import Update, progress_bar
from data_pipelines import durable
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.manifest import MANIFEST, read_manifest
from data_pipelines.rows.prepare import prepare
from data_pipelines.rows.shards import Rows, open_rows
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import fingerprint_sources, read_documents
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.extend import extend_tokenizer
from data_pipelines.vocab.tokenizer import Tokenizer, load_tokenizer, train_tokenizer

_EXTEND_DOCUMENTS = 20_000
_REPORT = "extension.txt"


class Inputs(NamedTuple):
    tokenizer: Tokenizer
    train: Rows
    validation: Rows
    corpus: str | None
    """Fingerprint of the text; None where the recipe names rows that were prepared before."""
    old_pieces: dict[int, list[int]]
    """The ids that each token of an extended vocabulary replaces; empty without an extension."""
    init: Path | None
    """Folder of the model to go on from, wherever the recipe says it is; None for a new one."""
    old_domain: Rows | None
    """Rows of the text that an imported model knew before, where the recipe names any."""

    def facts(self) -> dict[str, Any]:
        """What must not change while a run goes on."""
        text = {} if self.corpus is None else {"corpus": self.corpus}
        return text | {"tokenizer": self.tokenizer.fingerprint, "rows": self.train.fingerprint}


def prepare_inputs(recipe: Recipe, loud: bool = True) -> Inputs:
    """Find or make the tokenizer and the shards that the recipe asks for; `loud` shows progress."""
    cache = cache_folder(recipe.data.cache_dir)
    init = None if recipe.model.init is None else resolve(recipe.model.init)
    if init is not None:
        _check_init(init, recipe.data.seq_len)
    if recipe.data.prepared is not None:
        text, rows_folder = None, Path(recipe.data.prepared)
        tokenizer_folder = rows_folder / "tokenizer"
        _check_prepared(rows_folder, init)
    else:
        corpus, config = part(recipe.data, CorpusConfig), part(recipe.data, PrepareConfig)
        text = fingerprint_text(corpus, cache)
        tokenizer_folder = _tokenizer_folder(recipe, init, corpus, text, cache, loud)
        rows_folder = _rows_folder(corpus, text, tokenizer_folder, config, cache, loud)
    extension = tokenizer_folder / "old_pieces.json"
    old_pieces = json.loads(extension.read_bytes()) if extension.is_file() else {}
    return Inputs(
        tokenizer=load_tokenizer(tokenizer_folder),
        train=open_rows(rows_folder, "train"),
        validation=open_rows(rows_folder, "validation"),
        corpus=text,
        old_pieces={int(index): pieces for index, pieces in old_pieces.items()},
        init=init,
        old_domain=_old_domain(recipe, tokenizer_folder, cache, loud),
    )


def fingerprint_text(corpus: CorpusConfig, cache: Path) -> str:
    """What the corpus says, whatever folder its files lie in. A file is read again only if it was touched."""
    path = cache / "texts" / f"{_digest(plain(corpus))}.json"
    with locked(path.with_suffix(".lock"), wait=True):
        known = json.loads(path.read_bytes()) if path.is_file() else []
        sources = fingerprint_sources(corpus, known)
        if sources != known:
            durable.replace_file(path, durable.json_bytes(sources))
    return _digest([[source | {"modified": None} for source in sources], plain(corpus) | {"corpus": None}])


def cache_folder(chosen: str | None) -> Path:
    return Path(chosen or os.environ.get("BERTKIT_CACHE") or "~/.cache/bertkit").expanduser()


def _check_init(folder: Path, seq_len: int) -> None:
    """Refuse a model that cannot be trained on, or not on such rows, before any time goes into preparing them."""
    model = load_outline(folder)
    check_head(model, folder, "bare", "masked-lm")
    check_vocabulary(load_tokenizer(folder), model.config.vocab_size, folder)
    if seq_len > model.config.max_position_embeddings:
        raise ValueError(
            f"data.seq_len={seq_len} is longer than the {model.config.max_position_embeddings} positions of {folder}"
        )


def _check_prepared(folder: Path, init: Path | None) -> None:
    """Refuse rows whose ids mean something else to the tokenizer beside them, or to the model to go on from."""
    made_with = read_manifest(folder)["identity"]["tokenizer"]
    if load_tokenizer(folder / "tokenizer").fingerprint != made_with:
        raise ValueError(f"{folder / 'tokenizer'} is not the tokenizer that the rows beside it were made with")
    if init is not None and load_tokenizer(init).fingerprint != made_with:
        raise ValueError(
            f"data.prepared={folder} was made with another tokenizer than that of model.init={init}; "
            f"prepare the text again with --tokenizer {init}"
        )


def _rows_folder(
    corpus: CorpusConfig, text: str, tokenizer_folder: Path, config: PrepareConfig, cache: Path, loud: bool
) -> Path:
    """The folder of shards for this text, tokenizer and shape of rows."""
    folder = cache / "rows" / _digest([text, load_tokenizer(tokenizer_folder).fingerprint, plain(config)])
    with locked(folder.with_suffix(".lock"), wait=True):
        if not (folder / MANIFEST).is_file():
            with _progress(f"preparing rows of {config.seq_len} tokens", loud) as update:
                prepare(
                    corpus,
                    tokenizer_folder,
                    config,
                    folder,
                    report=lambda now: update(now.chars, now.total_chars, f"{now.tokens / 1e6:.2f} M tokens"),
                )
    return folder


def _tokenizer_folder(
    recipe: Recipe, init: Path | None, corpus: CorpusConfig, text: str, cache: Path, loud: bool
) -> Path:
    """The tokenizer that is given, trained on the corpus, or given and extended by the corpus."""
    given = init or _local(recipe.tokenizer.path)
    if given is not None and not recipe.tokenizer.extend:
        return given
    config = part(recipe.tokenizer, TokenizerConfig)
    how = plain(config) if given is None else [load_tokenizer(given).fingerprint, recipe.tokenizer.extend]
    folder = cache / "tokenizers" / _digest([text, how])
    with locked(folder.with_suffix(".lock"), wait=True):
        if not folder.is_dir():
            with durable.replacing_folder(folder) as unfinished:
                if given is None:
                    with _progress(f"training a {config.kind} tokenizer", loud) as update:
                        train_tokenizer(
                            corpus,
                            config,
                            unfinished,
                            lambda done, total: update(done, total, f"{done / 1e6:.1f} MB read"),
                        )
                else:
                    with _progress(f"adding {recipe.tokenizer.extend} tokens", loud):
                        _extend(load_tokenizer(given), corpus, recipe.tokenizer.extend, unfinished)
    if loud and (folder / _REPORT).is_file():
        print((folder / _REPORT).read_text(), file=sys.stderr, end="")
    return folder


def _local(path: str | None) -> Path | None:
    """Where a given tokenizer lies, fetched if it is one of the hub."""
    if path is None:
        return None
    return resolve(path) if path.startswith(HUB_PREFIX) else Path(path)


def _extend(tokenizer: Tokenizer, corpus: CorpusConfig, num_new: int, folder: Path) -> None:
    texts = (document.text for document in islice(read_documents(corpus), _EXTEND_DOCUMENTS))
    extension = extend_tokenizer(tokenizer, texts, num_new)
    extension.tokenizer.save(folder)
    durable.write_file(folder / "old_pieces.json", durable.json_bytes(extension.old_pieces))
    report = (
        f"{len(extension.old_pieces)} new tokens from the corpus: {extension.pieces_per_word:.2f} pieces per word "
        f"before, {extension.new_pieces_per_word:.2f} after\n"
    )
    durable.write_file(folder / _REPORT, report.encode())


def _old_domain(recipe: Recipe, tokenizer_folder: Path, cache: Path, loud: bool) -> Rows | None:
    if not recipe.model.old_domain:
        return None
    corpus = part(replace(recipe.data, corpus=list(recipe.model.old_domain), prepared=None), CorpusConfig)
    config = replace(part(recipe.data, PrepareConfig), validation_share=0.0)
    text = fingerprint_text(corpus, cache)
    return open_rows(_rows_folder(corpus, text, tokenizer_folder, config, cache, loud), "train")


def _progress(title: str, loud: bool) -> AbstractContextManager[Update]:
    return progress_bar(title) if loud else nullcontext(lambda done, total, note: None)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:24]
