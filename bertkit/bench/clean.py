"""Cleaning: how many planted near copies are found, how fast, and in how much memory.

Copies of documents with some of their words changed are planted among the documents of a corpus. Of a planted pair one
must go. A document that goes without having been planted is a mistake, unless it really shares text with the one that
stays: as many runs of five words as a copy with every fifth word changed.
"""

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertkit.bench.generated import generated_documents
from bertkit.bench.measure import Row, Told, announce, apart, compare, interleaved, watched_memory
from data_pipelines.clean.clean import clean
from data_pipelines.clean.config import CleanConfig
from data_pipelines.clean.near import NUM_HASHES, ROWS_OF_BAND, find_copies, signature
from data_pipelines.clean.words import joined_words, word_hashes, words_of
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import read_documents

_USUAL = CleanConfig()
_CHANGED = (0.05, 0.1, 0.2)
"""Shares of words that are changed in planted copies."""
_LEAST_SHARED = 0.1
"""Share of runs of five words from which on two documents really are near copies; those of a copy with every fifth word
changed have 0.2 in common, and nearly all above 0.1."""


def bench_clean(
    against: str | None, quick: bool, corpus: str | None = None, sizes: list[float] | None = None
) -> Iterator[Told]:
    """Rows for what is found of planted copies, for the speed of finding them, and for more and more text."""
    announce("clean, planted near copies")
    if corpus is None:
        documents = generated_documents(400_000 if quick else 16_000_000)
    else:
        documents = [document.text for document in read_documents(CorpusConfig(corpus=[corpus]))]
    planted = plant([text for text in documents if len(words_of(text)) >= _USUAL.min_words], seed=1)
    sides: dict[str, Callable[[list[str]], np.ndarray]] = {"ours": find_with_ours}
    if against == "rensa":
        sides["theirs"] = find_with_rensa
    scores = {side: score(planted, find(planted.texts)) for side, find in sides.items()}
    yield f"{len(planted.originals):,} copies planted among {planted.num_natural:,} documents."
    if "theirs" in sides:
        yield "Theirs: rensa's RMinHash and RMinHashLSH, with our number of hashes and bands, n-grams and threshold."
    for what, ours in scores["ours"].items():
        theirs = scores["theirs"][what] if "theirs" in scores else None
        yield Row(workload=what, ours=ours, theirs=theirs, unit="share")
    timings = interleaved(
        {side: lambda find=find: find(planted.texts) for side, find in sides.items()},  # type: ignore[misc]
        rounds=1 if quick else 3,
    )
    megabytes = sum(len(text.encode()) for text in planted.texts) / 1e6
    yield compare(f"near copies, {len(planted.texts):,} documents", megabytes, "MB/s", timings)
    yield from map(_of_size, sorted(sizes or ()))


class Planted(NamedTuple):
    texts: list[str]
    """First the documents as they are, then the copies."""
    num_natural: int
    originals: list[int]
    """The document that each copy was made of."""
    changed: list[float]
    """The share of each copy's words that was changed."""


def plant(documents: list[str], seed: int) -> Planted:
    """Copy a tenth of the documents for each share of words to change. New words are drawn as the corpus has them."""
    generator = random.Random(seed)
    pool = [word for text in documents for word in text.split()]
    copies, originals, changed = [], [], []
    for share in _CHANGED:
        for number in generator.sample(range(len(documents)), max(1, len(documents) // 10)):
            words = documents[number].split(" ")
            copies.append(" ".join(generator.choice(pool) if generator.random() < share else word for word in words))
            originals.append(number)
            changed.append(share)
    return Planted([*documents, *copies], len(documents), originals, changed)


def score(planted: Planted, copy_of_N: np.ndarray) -> dict[str, float]:
    """Recall for each share of changed words, and precision."""
    gone_N = copy_of_N >= 0
    found = gone_N[planted.num_natural :] | gone_N[planted.originals]
    changed = np.array(planted.changed)
    recall = {f"recall, {share:.0%} of words changed": float(found[changed == share].mean()) for share in _CHANGED}
    wrong = [
        number
        for number in np.flatnonzero(gone_N[: planted.num_natural]).tolist()
        if shared_runs(planted.texts[number], planted.texts[copy_of_N[number]]) < _LEAST_SHARED
    ]
    right = int(gone_N[planted.num_natural :].sum())
    return recall | {"precision": right / max(right + len(wrong), 1)}


def shared_runs(one: str, other: str) -> float:
    """Share of runs of five words that two texts have in common, of all that either has."""
    sets = [set(zip(*(words[at:] for at in range(5)), strict=False)) for words in map(words_of, (one, other))]
    return len(sets[0] & sets[1]) / max(len(sets[0] | sets[1]), 1)


def find_with_ours(texts: list[str]) -> np.ndarray:
    rows = [signature(word_hashes(joined_words(text)), _USUAL.near_ngram) for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        return find_copies(np.stack(rows), _USUAL.near_threshold, Path(folder))


def find_with_rensa(texts: list[str]) -> np.ndarray:
    """Each text against those kept before it."""
    from rensa import RMinHash, RMinHashLSH

    index = RMinHashLSH(_USUAL.near_threshold, NUM_HASHES, NUM_HASHES // ROWS_OF_BAND)
    kept, copy_of_N = dict[int, RMinHash](), np.full(len(texts), -1)
    for number, text in enumerate(texts):
        words, made = words_of(text), RMinHash(NUM_HASHES, 0)
        made.update([" ".join(run) for run in zip(*(words[at:] for at in range(_USUAL.near_ngram)), strict=False)])
        like = [other for other in index.query(made) if made.jaccard(kept[other]) >= _USUAL.near_threshold]
        if like:
            copy_of_N[number] = min(like)
        else:
            kept[number] = made
            index.insert(number, made)
    return copy_of_N


def _of_size(megabytes: float) -> Row:
    """All of cleaning in its own process, on text without copies."""
    announce(f"clean, {megabytes:g} MB")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.txt"
        _write_text(path, int(megabytes * 1e6))
        seen = json.loads(apart("bertkit.bench.clean", str(path)))
    return Row(
        workload=f"clean {megabytes:g} MB", ours=megabytes / seen["seconds"], unit="MB/s", peak_memory_mb=seen["mb"]
    )


def _write_text(path: Path, num_chars: int) -> None:
    """Documents of the same words in ever other orders: no two of them are near copies."""
    pool = [np.array(document.split()) for document in generated_documents(min(num_chars, 4_000_000))]
    rng, written, number = np.random.default_rng(0), 0, 0
    with open(path, "w", encoding="utf-8") as file:
        while written < num_chars:
            words = pool[number % len(pool)]
            written += file.write(" ".join(words[rng.permutation(len(words))].tolist()) + "\n\n")
            number += 1


if __name__ == "__main__":
    source = Path(sys.argv[1])
    with watched_memory() as memory:
        start = time.perf_counter()
        clean(CorpusConfig(corpus=[str(source)]), _USUAL, source.with_name("out"), lambda what, done: None)
        seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "mb": memory.most}))
