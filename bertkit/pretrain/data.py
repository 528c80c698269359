"""The tokenizer and the rows that a recipe trains on, made once and kept for the next run.

This happens before the ranks of a run are connected: each comes here by itself, the first one that takes the lock
does the work, the others wait for the lock and find it done. No collective operation can time out in the meantime.
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.config.fields import part, plain
from bertkit.config.model_section import ModelSection
from bertkit.config.recipe import DataSection, TokenizerSection, read_recipe
from bertkit.config.sections import RunConfig
from bertkit.hf import load_outline
from bertkit.hf.folder import check_vocabulary, is_remote, resolve
from bertkit.hf.models import check_head
from bertkit.pretrain.stored_rows import open_prepared, order_of_shards, prepared_folder
from bertkit.run.folder import RECIPE, read_facts
from bertkit.run.lock import locked
from bertkit.terminal import Update, progress_bar
from data_pipelines import durable
from data_pipelines.places import cache_folder
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.manifest import MANIFEST, read_manifest
from data_pipelines.rows.prepare import prepare
from data_pipelines.rows.shards import Rows, open_rows, verify_rows
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import check_unchanged, fingerprint_sources, read_documents
from data_pipelines.text.digest import check_hashes, file_hash, files_hash
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.extend import extend_tokenizer
from data_pipelines.vocab.tokenizer import Tokenizer, check_no_gaps, load_tokenizer, train_tokenizer

_EXTEND_DOCUMENTS = 20_000
_REPORT = "extension.txt"
_HASHES = "sha256.json"


class PretrainingData(NamedTuple):
    tokenizer: Tokenizer
    train: Rows
    counted: Rows
    """Rows that may be counted before the first step: all of `train`, or of mixed shards the first."""
    validation: Rows
    corpus: str | None
    """Fingerprint of the text; None where the recipe names rows that were prepared before."""
    old_pieces: dict[int, list[int]]
    """The ids that each token of an extended vocabulary replaces; empty without an extension."""
    init: Path | None
    """Folder of the model to continue with, wherever the recipe says it is; None for a new one."""
    old_domain: Rows | None
    """Rows of the text that an imported model knew before, where the recipe names any."""

    def facts(self) -> dict[str, Any]:
        """What must be the same when a run resumes."""
        text = {} if self.corpus is None else {"corpus": self.corpus}
        return text | {"tokenizer": self.tokenizer.fingerprint, "rows": self.train.fingerprint}

    def facts_of_ranks(self) -> dict[str, Any]:
        """What must be the same on every rank."""
        init = None if self.init is None else files_hash(self.init.glob("*.safetensors"))
        old_domain = None if self.old_domain is None else self.old_domain.fingerprint
        return self.facts() | {"init": init, "old_domain": old_domain}


def open_data(
    data: DataSection, tokenizer: TokenizerSection, model: ModelSection, run: RunConfig, loud: bool = True
) -> PretrainingData:
    """Find or make the tokenizer and the shards that a recipe asks for; `loud` shows progress. What comes from a store
    is kept for this run alone."""
    cache = Cache(cache_folder(data.cache_dir), loud)
    init = None if model.init is None else resolve(model.init)
    if init is not None:
        _check_init(init, data.seq_len)
    if data.prepared is not None:
        text, rows_folder = None, open_prepared(data, run, cache.folder, cache.progress)
        tokenizer_folder = rows_folder / "tokenizer"
        _check_prepared(rows_folder, init)
    else:
        corpus = part(data, CorpusConfig)
        sources = _sources(corpus, cache.folder)
        text = _fingerprint(sources, corpus)
        tokenizer_folder = _tokenizer_folder(tokenizer, init, corpus, sources, cache)
        rows_folder = _rows_folder(corpus, text, tokenizer_folder, part(data, PrepareConfig), cache)
    extension = tokenizer_folder / "old_pieces.json"
    old_pieces = json.loads(extension.read_bytes()) if extension.is_file() else {}
    train = open_rows(rows_folder, "train")
    order = order_of_shards(train, data, run.seed)
    return PretrainingData(
        tokenizer=load_tokenizer(tokenizer_folder),
        train=train,
        counted=train if order is None else train.of_shard(order.spans(0)[0].shard),
        validation=open_rows(rows_folder, "validation"),
        corpus=text,
        old_pieces={int(index): pieces for index, pieces in old_pieces.items()},
        init=init,
        old_domain=_old_domain(data, model.old_domain, tokenizer_folder, cache),
    )


def rows_of_run(folder: Path) -> Path:
    """The folder of shards that a run was trained on, known by its fingerprint."""
    if not (folder / RECIPE).is_file():
        raise ValueError(f"{folder} holds no {RECIPE}")
    data = read_recipe(str(folder / RECIPE)).data
    cache = cache_folder(data.cache_dir)
    given = [] if data.prepared is None else [prepared_folder(data, str(folder), cache) / MANIFEST]
    for manifest in given or sorted(cache.glob(f"rows/*/{MANIFEST}")):
        with suppress(ValueError, KeyError, TypeError):
            if json.loads(manifest.read_bytes())["fingerprint"] == (read_facts(folder) or {})["rows"]:
                return manifest.parent
    raise ValueError(f"the prepared rows of the run are no longer in {data.prepared or cache}")


class Cache(NamedTuple):
    """Where tokenizers and rows are kept, and whether making them is shown."""

    folder: Path
    loud: bool

    def progress(self, title: str) -> AbstractContextManager[Update]:
        return progress_bar(title) if self.loud else nullcontext(lambda done, total, note: None)


def _check_init(folder: Path, seq_len: int) -> None:
    """Refuse a model that cannot be trained on, or not on such rows, before any time goes into preparing them."""
    model = load_outline(folder)
    check_head(model, folder, "bare", "masked-lm")
    check_vocabulary(load_tokenizer(folder), model.config.vocab_size, folder)
    if seq_len > model.config.max_position_embeddings:
        raise ValueError(
            f"data.seq_len={seq_len} is longer than the {model.config.max_position_embeddings} positions of {folder}"
        )


def _sources(corpus: CorpusConfig, cache: Path) -> list[dict[str, Any]]:
    """The files of the corpus with their hashes. A file is read again only if it was touched, or if what was noted of
    it is damaged."""
    path = cache / "texts" / f"{_digest(plain(corpus))}.json"
    with locked(path.with_suffix(".lock"), wait=True):
        known: list[dict[str, Any]] = []
        with suppress(OSError, ValueError, KeyError, TypeError):
            noted = json.loads(path.read_bytes())
            known = noted["sources"] if noted["digest"] == _digest(noted["sources"]) else []
        sources = fingerprint_sources(corpus, known)
        if sources != known:
            durable.replace_file(path, durable.json_bytes({"sources": sources, "digest": _digest(sources)}))
    return sources


def _fingerprint(sources: list[dict[str, Any]], corpus: CorpusConfig) -> str:
    """What the corpus says, whatever folder its files lie in."""
    return _digest([[source | {"modified": None} for source in sources], corpus.options() | {"corpus": None}])


def _check_prepared(folder: Path, init: Path | None) -> None:
    """Refuse rows whose ids mean something else to the tokenizer next to them, or to the model to continue with."""
    made_with = read_manifest(folder)["identity"]["tokenizer"]
    if load_tokenizer(folder / "tokenizer").fingerprint != made_with:
        raise ValueError(f"{folder / 'tokenizer'} is not the tokenizer that the rows next to it were made with")
    if init is not None and load_tokenizer(init).fingerprint != made_with:
        raise ValueError(
            f"data.prepared={folder} was made with another tokenizer than that of model.init={init}; "
            f"prepare the text again with --tokenizer {init}"
        )
    verify_rows(folder)


def _rows_folder(corpus: CorpusConfig, text: str, tokenizer_folder: Path, config: PrepareConfig, cache: Cache) -> Path:
    """The folder of shards for this text, tokenizer and shape of rows."""
    folder = cache.folder / "rows" / _digest([text, load_tokenizer(tokenizer_folder).fingerprint, plain(config)])
    with locked(folder.with_suffix(".lock"), wait=True):
        if not (folder / MANIFEST).is_file():
            with cache.progress(f"preparing rows of {config.seq_len} tokens") as update:
                prepare(
                    corpus,
                    tokenizer_folder,
                    config,
                    folder,
                    report=lambda now: update(now.chars, now.total_chars, f"{now.tokens / 1e6:.2f} M tokens"),
                )
        verify_rows(folder)
    return folder


def _tokenizer_folder(
    section: TokenizerSection, init: Path | None, corpus: CorpusConfig, sources: list[dict[str, Any]], cache: Cache
) -> Path:
    """The tokenizer that is given, trained on the corpus, or given and extended by the corpus."""
    given = init or _local(section.path)
    if given is not None and init is None:
        check_no_gaps(load_tokenizer(given), given)
    if given is not None and not section.extend:
        return given
    config = part(section, TokenizerConfig)
    how = plain(config) if given is None else [load_tokenizer(given).fingerprint, section.extend]
    folder = cache.folder / "tokenizers" / _digest([_fingerprint(sources, corpus), how])
    with locked(folder.with_suffix(".lock"), wait=True):
        if not folder.is_dir():
            with durable.replacing_folder(folder) as unfinished:
                if given is None:
                    with cache.progress(f"training a {config.kind} tokenizer") as update:
                        train_tokenizer(
                            corpus,
                            config,
                            unfinished,
                            lambda done, total: update(done, total, f"{done / 1e6:.1f} MB read"),
                        )
                else:
                    with cache.progress(f"adding {section.extend} tokens") as update:
                        _extend(load_tokenizer(given), corpus, section.extend, unfinished, update)
                check_unchanged(corpus, sources)
                hashes = {file.name: file_hash(file) for file in unfinished.iterdir()}
                durable.write_file(unfinished / _HASHES, durable.json_bytes(hashes))
        elif (folder / _HASHES).is_file():  # an older version wrote none
            check_hashes(folder, _read_hashes(folder))
    if cache.loud and (folder / _REPORT).is_file():
        print((folder / _REPORT).read_text(), file=sys.stderr, end="")
    return folder


def _read_hashes(folder: Path) -> dict[str, str]:
    try:
        return {str(name): str(sha256) for name, sha256 in json.loads((folder / _HASHES).read_bytes()).items()}
    except (ValueError, AttributeError):
        raise ValueError(f"{folder / _HASHES} is damaged; remove {folder} and run again") from None


def _local(path: str | None) -> Path | None:
    """Where a given tokenizer lies, fetched if it is on the hub or a store."""
    if path is None:
        return None
    return resolve(path) if is_remote(path) else Path(path)


def _extend(tokenizer: Tokenizer, corpus: CorpusConfig, num_new: int, folder: Path, update: Update) -> None:
    def texts() -> Iterator[str]:
        for number, document in enumerate(islice(read_documents(corpus), _EXTEND_DOCUMENTS), start=1):
            yield document.text
            update(number, _EXTEND_DOCUMENTS, f"words of {number:,} documents counted")

    extension = extend_tokenizer(tokenizer, texts(), num_new)
    extension.tokenizer.save(folder)
    durable.write_file(folder / "old_pieces.json", durable.json_bytes(extension.old_pieces))
    report = (
        f"{len(extension.old_pieces)} new tokens from the corpus: {extension.pieces_per_word:.2f} pieces per word "
        f"before, {extension.new_pieces_per_word:.2f} after\n"
    )
    durable.write_file(folder / _REPORT, report.encode())


def _old_domain(data: DataSection, sources: Sequence[str], tokenizer_folder: Path, cache: Cache) -> Rows | None:
    if not sources:
        return None
    corpus = part(replace(data, corpus=list(sources), prepared=None), CorpusConfig)
    config = replace(part(data, PrepareConfig), validation_share=0.0)
    text = _fingerprint(_sources(corpus, cache.folder), corpus)
    return open_rows(_rows_folder(corpus, text, tokenizer_folder, config, cache), "train")


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:24]
