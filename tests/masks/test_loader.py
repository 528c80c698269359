"""The loader: the same batches whatever the workers, ranks and restarts, and nobody else's randomness touched."""

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from grammar import write_corpus

from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.loader import evaluation_batches, load_steps
from data_pipelines.masks.plan import Plan
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.prepare import prepare
from data_pipelines.rows.shards import open_rows
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import load_tokenizer, train_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("loader")
    corpus = CorpusConfig(corpus=[str(write_corpus(folder / "corpus.txt", count=60))])
    train_tokenizer(corpus, TokenizerConfig(vocab_size=200), folder / "tokenizer")
    return prepare(corpus, folder / "tokenizer", PrepareConfig(seq_len=32), folder / "data")


def collator(folder, **options):
    tokenizer = load_tokenizer(folder / "tokenizer")
    return MaskingCollator.from_config(tokenizer, MaskConfig(**options), seed=5, layout="packed", total_steps=20)


def load(folder, first=0, last=12, **options):
    rows = open_rows(folder)
    plan, settings = Plan(len(rows), 12, seed=1), {"micro_batch": 4} | options
    return list(load_steps(rows, plan, collator(folder, final_rate=0.3), range(first, last), **settings))


def plain(batch):
    values = [getattr(batch, field.name) for field in fields(batch)]
    return [value for value in values if value is not None]


def assert_same(one, other):
    assert [step for step, _ in one] == [step for step, _ in other]
    for (_, mine), (_, theirs) in zip(one, other, strict=True):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs, strict=True):
            assert all(
                torch.equal(torch.as_tensor(x), torch.as_tensor(y)) for x, y in zip(plain(a), plain(b), strict=True)
            )


@pytest.fixture(scope="module")
def expected(folder):
    return load(folder)


def test_a_step_comes_in_micro_batches_and_epochs_follow_each_other(folder, expected):
    rows = open_rows(folder)
    assert len(rows) < 12 * 12  # several epochs
    assert [step for step, _ in expected] == list(range(12))
    plan = Plan(len(rows), 12, seed=1)
    for step, batches in expected:
        assert len(batches) == 3
        found = torch.cat([batch.input_ids.scatter(0, batch.target_index, batch.target_ids) for batch in batches])
        assert np.array_equal(found.numpy(), rows.gather(plan.rows_of_step(step).row_ids).ids_T)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_workers_change_nothing(folder, expected, num_workers):
    assert_same(load(folder, num_workers=num_workers), expected)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_two_ranks_together_have_the_batches_of_one(folder, num_workers):
    whole = load(folder, micro_batch=6)
    ranks = [load(folder, micro_batch=6, rank=rank, world_size=2, num_workers=num_workers) for rank in range(2)]
    joined = [(step, first + second) for (step, first), (_, second) in zip(*ranks, strict=True)]
    assert_same(joined, whole)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_resume_is_a_slice(folder, expected, num_workers):
    for first in (1, 5, 11, 12):
        assert_same(load(folder, first=first, num_workers=num_workers), expected[first:])


def test_micro_batches_do_not_change_what_is_masked(folder, expected):
    for (_, small), (_, large) in zip(expected, load(folder, micro_batch=12), strict=True):
        assert torch.equal(torch.cat([batch.input_ids for batch in small]), large[0].input_ids)
        assert torch.equal(torch.cat([batch.target_ids for batch in small]), large[0].target_ids)


def test_a_short_last_micro_batch_is_kept(folder):
    assert [len(batch.cu_seqlens) > 1 for batch in load(folder, last=1, micro_batch=5)[0][1]] == [True] * 3


@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_global_generators_are_left_alone(folder, num_workers):
    torch.manual_seed(3)
    np.random.seed(3)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    load(folder, num_workers=num_workers)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)


SPAWNED = """
import sys
import torch
from pathlib import Path
from test_loader import load

if __name__ == "__main__":
    torch.multiprocessing.set_start_method("spawn")
    found = load(Path(sys.argv[1]), last=3, num_workers=1)
    print(*[int(batch.input_ids.sum()) for _, batches in found for batch in batches])
"""


def test_workers_that_start_afresh_do_too(folder, expected, tmp_path):
    (tmp_path / "spawned.py").write_text(SPAWNED)
    path = os.pathsep.join([str(Path.cwd()), str(Path.cwd() / "tests/support"), str(Path(__file__).parent)])
    command = [sys.executable, tmp_path / "spawned.py", folder]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=200)
    sums = [str(int(batch.input_ids.sum())) for _, batches in expected[:3] for batch in batches]
    assert done.stdout.split() == sums, done.stderr


def test_many_small_batches_ahead_need_no_file_each(folder):
    """Tensors handed over by a worker would each hold a file open, and 1,024 are soon reached."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        assert len(load(folder, last=40, micro_batch=1, num_workers=2)) == 40
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_evaluation_sees_every_row_once_over_all_ranks_with_fixed_masks(folder):
    rows, masks = open_rows(folder), collator(folder)
    whole = list(evaluation_batches(rows, masks, micro_batch=5))
    assert sum(len(batch.input_ids) for batch in whole) == rows.num_tokens
    again = list(evaluation_batches(rows, masks, micro_batch=5))
    assert_same([(0, whole)], [(0, again)])
    for world_size in (2, 3):
        parts = [
            evaluation_batches(rows, masks, micro_batch=1, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        found = sorted(tuple(batch.input_ids.tolist()) for part in parts for batch in part)
        assert found == sorted(tuple(b.input_ids.tolist()) for b in evaluation_batches(rows, masks, micro_batch=1))
    assert len(list(evaluation_batches(rows, masks, micro_batch=1, max_rows=7))) == 7
