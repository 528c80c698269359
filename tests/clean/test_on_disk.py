"""What is decided on disk, a few numbers at a time, is what would be decided with all of them in memory."""

import random
import tracemalloc

import numpy as np
import pytest

from data_pipelines.clean import near, on_disk
from data_pipelines.clean.near import NUM_HASHES, ROWS_OF_BAND, find_copies
from data_pipelines.clean.on_disk import earlier_equals, unique_numbers


@pytest.fixture(params=[3, 1 << 16])
def at_once(request, monkeypatch):
    monkeypatch.setattr(on_disk, "AT_ONCE", request.param)
    monkeypatch.setattr(near, "_AT_ONCE", max(request.param, 32))


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("kinds", [1, 3, 60, 10**9])
@pytest.mark.parametrize("count", [0, 1, 2, 61])
def test_equal_numbers_are_found_with_the_first_and_the_last_before_them(kinds, count, tmp_path):
    numbers = np.random.default_rng(count).integers(0, kinds, count).astype(np.uint64) * np.uint64(2**34 - 1)
    places, expected = {}, []
    for place, number in enumerate(numbers.tolist()):
        known = places.setdefault(number, [])
        if known:
            expected.append((known[0], known[-1], place))
        known.append(place)
    found = [row for equals in earlier_equals(numbers, tmp_path) for row in zip(*equals, strict=True)]
    assert sorted(found) == sorted(expected)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("kinds", [1, 20, 10**9])
def test_numbers_that_repeat_are_held_once(kinds, tmp_path):
    generator = np.random.default_rng(0)
    pieces = [generator.integers(0, kinds, size).astype(np.uint64) for size in (0, 5, 40, 1, 30)]
    assert unique_numbers(tmp_path / "numbers", pieces).tolist() == np.unique(np.concatenate(pieces)).tolist()
    assert unique_numbers(tmp_path / "numbers", []).tolist() == []


def compared_in_memory(signatures, threshold):
    """For each text the first kept one that it nearly repeats: in each band it meets the first and the last before."""
    pairs = set()
    for start in range(0, NUM_HASHES, ROWS_OF_BAND):
        known = {}
        for place, row in enumerate(signatures):
            group = known.setdefault(row[start : start + ROWS_OF_BAND].tobytes(), [])
            pairs |= {(place, other) for other in (group[:1] + group[-1:])}
            group.append(place)
    copy_of = [-1] * len(signatures)
    for later, earlier in sorted(pairs):
        alike = (signatures[later] == signatures[earlier]).mean() >= threshold
        if alike and copy_of[later] < 0 and copy_of[earlier] < 0:
            copy_of[later] = earlier
    return copy_of


def unrelated(generator, count):
    return generator.integers(0, 2**32, (count, NUM_HASHES), dtype=np.uint32)


def changed(row, share, generator):
    return np.where(generator.random(NUM_HASHES) < share, unrelated(generator, 1)[0], row)


def chain(generator, length=20, share=0.3):
    """Each nearly repeats the one before it, and hardly the one before that."""
    rows = [unrelated(generator, 1)[0]]
    for _ in range(length - 1):
        rows.append(changed(rows[-1], share, generator))
    return np.stack(rows)


def families(generator, members=10):
    """Near copies of a few texts, and of these copies, in any order."""
    rows = list(unrelated(generator, 4))
    for _ in range(3 * members):
        rows.append(changed(rows[generator.integers(len(rows))], generator.choice([0.0, 0.2, 0.5, 0.65]), generator))
    return np.stack(rows)[generator.permutation(len(rows))]


ROWS = {
    "unrelated": lambda generator: unrelated(generator, 50),
    "all alike": lambda generator: np.repeat(unrelated(generator, 1), 50, axis=0),
    "few numbers": lambda generator: generator.integers(0, 3, (60, NUM_HASHES), dtype=np.uint32),
    "chain": chain,
    "chain backwards": lambda generator: chain(generator)[::-1],
    "chains in turn": lambda generator: np.stack([chain(generator), chain(generator)], axis=1).reshape(-1, NUM_HASHES),
    "families": families,
}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("threshold", [0.1, 0.33, 1.0])
@pytest.mark.parametrize("rows", ROWS)
def test_copies_are_those_that_memory_would_find(rows, threshold, tmp_path):
    signatures = ROWS[rows](np.random.default_rng(1))
    expected = compared_in_memory(signatures, threshold)
    assert find_copies(signatures, threshold, tmp_path).tolist() == expected
    assert any(copy >= 0 for copy in expected) == (rows != "unrelated") or threshold > 0.1


def test_more_texts_take_no_more_memory(tmp_path, monkeypatch):
    """Whether or not they repeat each other."""
    monkeypatch.setattr(on_disk, "AT_ONCE", 256)
    monkeypatch.setattr(near, "_AT_ONCE", 256)
    most = []
    for count in (600, 2400):
        rows = unrelated(np.random.default_rng(0), count // 4)
        order = random.Random(0).sample(range(count), count)
        signatures = np.concatenate([rows, rows, unrelated(np.random.default_rng(1), count // 2)])[order]
        tracemalloc.start()
        find_copies(signatures, 0.5, tmp_path)
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert most[1] < 1.1 * most[0]
