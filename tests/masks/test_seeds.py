"""What a seed fixes beside the seeds of others, in one process and in several, as the table in data_pipelines/README.md
says."""

import multiprocessing
import os
import pickle

import pytest
import torch
from collating import LONG, PLAIN, examples
from reference import reference_transformers

from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.processes import process_identity

transformers = reference_transformers()


def test_a_seed_repeats_the_masks_and_the_global_seed_changes_nothing():
    given = [{"input_ids": row["input_ids"]} for row in examples(with_ids=False)]
    batches = []
    for seed in (1, 2):
        transformers.set_seed(seed)
        before = torch.get_rng_state()
        batches.append(MaskingCollator(**PLAIN, seed=0)(given)["input_ids"])
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*batches)


def test_only_the_process_that_made_a_collator_has_its_stream():
    assert process_identity(os.getpid(), copy=1) == (0, 0)
    elsewhere = {process_identity(os.getpid() + 1, copy) for copy in range(1, 100)}
    assert len(elsewhere | {(0, 0)}) == 100


def test_workers_have_masks_of_their_own_which_set_seed_repeats():
    def epoch():
        transformers.set_seed(5)
        loader = torch.utils.data.DataLoader(LONG[:8], 4, num_workers=2, collate_fn=MaskingCollator(**PLAIN, seed=0))
        return [batch["input_ids"] for batch in loader]

    first, again = epoch(), epoch()
    assert not torch.equal(*first)
    assert all(map(torch.equal, first, again))


def _masks(collator):
    return collator([LONG[0]["input_ids"]])["input_ids"].tolist()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_every_process_and_every_task_that_it_gets_has_masks_of_its_own(method):
    """transformers refuses a seed there; where rows are shared among processes, equal masks would be a mistake."""
    collator = MaskingCollator(**PLAIN, seed=0, return_tensors="np")
    context = multiprocessing.get_context(method)
    pools = [context.Pool(1) for _ in range(2)]
    found = [pool.apply(_masks, (collator,)) for pool in (*pools, *pools)]
    for pool in pools:
        pool.terminate()
    found.append(_masks(collator))
    assert len({str(mask) for mask in found}) == 5


def _forks(collator, results):
    """Masks of this process and of two that it forks without any module."""
    collator = pickle.loads(collator) if isinstance(collator, bytes) else collator
    for _ in range(2):
        if not os.fork():
            results.put(_masks(collator))
            results.close()
            results.join_thread()
            os._exit(0)
    results.put(_masks(collator))
    for _ in range(2):
        os.wait()


@pytest.mark.parametrize("sent", [False, True])
def test_a_process_of_a_pool_that_forks_shares_no_masks_with_its_children(sent):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    collator = MaskingCollator(**PLAIN, seed=0, return_tensors="np")
    for _ in range(2):
        process = context.Process(target=_forks, args=(pickle.dumps(collator) if sent else collator, results))
        process.start()
        process.join()
    found = [str(results.get(timeout=60)) for _ in range(6)]
    assert len({*found, str(_masks(collator))}) == 7


def test_rows_of_a_mapped_dataset_are_masked_differently_in_every_process():
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"ids": [LONG[0]["input_ids"]] * 8})
    collator = MaskingCollator(**PLAIN, seed=0, return_tensors="np")
    masked = rows.map(lambda row: {"masked": collator([row["ids"]])["input_ids"][0]}, num_proc=2)
    assert len({str(row["masked"]) for row in masked}) == 8


def test_a_collator_that_was_stored_continues_its_stream():
    collator, twin = (MaskingCollator(**PLAIN, seed=0, return_tensors="np") for _ in range(2))
    assert _masks(pickle.loads(pickle.dumps(collator))) == _masks(twin)
