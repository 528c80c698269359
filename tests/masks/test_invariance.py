"""Masks are a function of seed, epoch, row, position and step alone: nothing about the machinery shows in a batch."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.collator import LinearRate, MaskingCollator
from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.loader import load_steps
from data_pipelines.masks.plan import Plan
from data_pipelines.rows.batch import RowBatch

NUM_STEPS = 6


class HeldRows:
    """Rows of random lengths held in memory, each of one or two sequences, as shards would hand them out."""

    origin = None  # on no store

    def __init__(self, num_rows: int, seed: int):
        rng = np.random.default_rng(seed)
        self.ids = [rng.integers(5, 100, rng.integers(1, 30)) for _ in range(num_rows)]
        self.words = [rng.random(len(ids)) < 0.6 for ids in self.ids]
        self.rows_of_shards = [num_rows]

    def waiting(self) -> "HeldRows":
        return self

    def gather(self, row_ids: np.ndarray) -> RowBatch:
        ids = [self.ids[row] for row in row_ids]
        starts = np.cumsum([0, *map(len, ids)])
        halves = starts[:-1] + np.diff(starts) // 2
        sequences = np.unique(np.concatenate([starts, halves]))
        return RowBatch(np.concatenate(ids), starts, sequences, np.concatenate([self.words[row] for row in row_ids]))


def collator(mask: MaskConfig) -> MaskingCollator:
    """A new one each time, as after a restart."""
    rate = mask.rate if mask.final_rate is None else LinearRate(mask.rate, mask.final_rate, NUM_STEPS)
    return MaskingCollator(
        mask_id=4, vocab_size=100, special_ids=range(5), pad_id=0, seed=3, layout="packed",
        mlm_probability=rate, unit=mask.unit, count=mask.count,
    )  # fmt: skip


def laid_end_to_end(batches: list[PackedBatch]) -> dict[str, list]:
    """Batches as if they had been one."""
    before = np.cumsum([0] + [len(batch.input_ids) for batch in batches])
    joined = {
        name: torch.cat([getattr(batch, name) for batch in batches]).tolist()
        for name in ("input_ids", "position_ids", "target_ids", "target_kind", "target_starts_word")
    }
    shifted = [batch.target_index + int(first) for batch, first in zip(batches, before[:-1], strict=True)]
    return joined | {"target_index": torch.cat(shifted).tolist()}


@given(
    num_rows=st.integers(1, 20),
    batch_of_a_rank=st.integers(1, 6),
    micro_batch=st.integers(1, 8),
    world_size=st.sampled_from([1, 2]),
    num_workers=st.sampled_from([0, 1, 2]),
    first_step=st.integers(0, NUM_STEPS - 1),
    unit=st.sampled_from(["token", "word", "span"]),
    count=st.sampled_from(["bernoulli", "exact"]),
    final_rate=st.sampled_from([None, 0.5]),
    seed=st.integers(0, 100),
)
@settings(max_examples=20, deadline=None)
def test_workers_ranks_batches_and_resumes_do_not_change_a_mask(
    num_rows, batch_of_a_rank, micro_batch, world_size, num_workers, first_step, unit, count, final_rate, seed
):
    rows, plan = HeldRows(num_rows, seed), Plan(num_rows, batch_of_a_rank * world_size, seed)
    mask = MaskConfig(unit=unit, count=count, final_rate=final_rate)
    ranks = [
        load_steps(
            rows, plan, collator(mask), range(first_step, NUM_STEPS),
            rank=rank, world_size=world_size, micro_batch=micro_batch, num_workers=num_workers,
        )
        for rank in range(world_size)
    ]  # fmt: skip
    for step, parts in zip(range(first_step, NUM_STEPS), zip(*ranks, strict=True), strict=True):
        assert {part[0] for part in parts} == {step}
        row_ids, epochs = plan.rows_of_step(step)
        each_alone = [
            collator(mask).collate_rows(rows.gather(row_ids[here]), row_ids[here], epochs[here], step)
            for here in (slice(place, place + 1) for place in range(len(row_ids)))
        ]
        assert laid_end_to_end([batch for _, batches in parts for batch in batches]) == laid_end_to_end(each_alone)
