"""The step bench compares the same work: same weights, same examples, same loss."""

import pytest
import torch
from reference import reference_transformers
from telling import rows_and_notes

from bertkit.bench import step
from bertkit.bench.measure import interleaved
from bertkit.bench.step import WORKLOADS, Workload, flops_of, make_batch, our_step, peak_memory, their_step

torch.set_num_threads(1)
TINY = Workload(layers=2, width=64, vocab_size=100, rows=4, length=16, ragged=True)


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_both_sides_compute_the_same_loss_step_after_step(architecture):
    reference_transformers()
    workload = TINY._replace(architecture=architecture)
    batch = make_batch(workload)
    ours, theirs = our_step(workload, batch.packed), their_step(workload, batch)
    for _ in range(3):
        assert float(ours()) == pytest.approx(float(theirs()), rel=1e-4)


@pytest.mark.parametrize(("rows", "length"), [(8, 128), (16, 512), (32, 128)])
def test_ragged_rows_fill_half_of_the_padded_batch(rows, length):
    batch = make_batch(TINY._replace(rows=rows, length=length))
    assert float(batch.attention_mask_BL.float().mean()) == pytest.approx(0.5, abs=0.01)
    assert batch.packed.max_seqlen == length
    assert len(batch.packed.input_ids) == int(batch.attention_mask_BL.sum())
    assert len(batch.packed.target_ids) == int((batch.labels_BL != -100).sum())


def test_operations_of_a_step_by_hand():
    workload = TINY._replace(layers=1, ragged=False)
    batch = make_batch(workload)
    tokens, targets = 64, len(batch.packed.target_ids)
    keys_and_values = tokens * 2 * 2 * 64 * 64
    block = targets * 2 * (2 * 64 * 64 + 2 * 64 * 256) + targets * 4 * 16 * 64
    head = targets * 2 * 64 * (64 + 100)
    assert flops_of(workload, batch) == pytest.approx(3 * (keys_and_values + block + head))


def test_memory_is_that_of_the_measured_process_alone():
    """A large process that starts the measurement must not hide what it takes."""
    ballast = torch.ones(2**28)
    workload = WORKLOADS[5]
    parameters = workload.vocab_size * workload.width
    assert peak_memory(workload, "ours") > 4 * 4 * parameters / 2**20
    assert ballast[0] == 1


def test_rows_hold_both_sides_and_the_notes_their_memory(monkeypatch):
    reference_transformers()
    monkeypatch.setattr(step, "WORKLOADS", [TINY])
    monkeypatch.setattr(step, "matrix_peak", lambda: 1e12)
    (row,), notes = rows_and_notes(step.bench_step("transformers", quick=True))
    assert row.workload == "step bert 2×64 vocab 100 4×16 ragged"
    assert row.unit == "tokens/s"
    assert row.ratio == pytest.approx(row.ours / row.theirs)
    assert 0 < row.share_of_peak < 1
    assert row.peak_memory_mb > 0
    assert row.theirs_peak_memory_mb > 0
    assert f"Memory of theirs, row by row: {row.theirs_peak_memory_mb:,.0f} MB." in notes
    (row,), notes = rows_and_notes(step.bench_step(None, quick=True))
    assert row.theirs is row.ratio is row.theirs_peak_memory_mb is None
    assert len(notes) == 2


def test_the_peak_is_that_of_the_fastest_product(monkeypatch):
    clock = iter([0, 5, 10, 12, 20, 24, 30, 39, 40, 50])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    timing = interleaved({"product": lambda: None}, rounds=5)["product"]
    assert (timing.fastest, timing.median) == (2, 5)
