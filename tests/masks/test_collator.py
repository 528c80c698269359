"""The collator: what a batch holds in either layout, and where its randomness comes from."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from collating import PLAIN, backend, examples, restored
from torch.utils.data import DataLoader

from data_pipelines.masks.collator import LinearRate, MaskingCollator
from data_pipelines.masks.config import MaskConfig


def test_padded_batches_restore_to_the_input():
    given = examples()
    batch = MaskingCollator(**PLAIN, seed=0)(given)
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert all(tensor.dtype == torch.int64 for tensor in batch.values())
    for row, mask, example in zip(restored(batch), batch["attention_mask"], given, strict=True):
        assert row[mask.bool()].tolist() == example["input_ids"]
        assert mask.sum() == len(example["input_ids"])
        assert (row[~mask.bool()] == 0).all()


def assert_same_tokens_and_targets(padded, packed) -> torch.Tensor:
    """Returns where the padded batch is attended."""
    attended = padded["attention_mask"].bool()
    assert torch.equal(padded["input_ids"][attended], packed.input_ids)
    labels = padded["labels"][attended]
    assert torch.equal((labels != -100).nonzero().flatten(), packed.target_index)
    assert torch.equal(labels[packed.target_index], packed.target_ids)
    return attended


def test_packed_and_padded_batches_hold_the_same():
    given = examples()
    padded = MaskingCollator(**PLAIN, seed=0)(given)
    packed = MaskingCollator(**PLAIN, seed=0, layout="packed")(given)
    assert_same_tokens_and_targets(padded, packed)
    lengths = torch.tensor([len(example["input_ids"]) for example in given])
    assert torch.equal(packed.cu_seqlens.diff().long(), lengths)
    assert packed.max_seqlen == lengths.max()
    assert torch.equal(packed.position_ids, torch.cat([torch.arange(length) for length in lengths]))


@pytest.mark.parametrize("left", [False, True])
def test_a_pack_drops_unattended_tokens_and_keeps_the_masks(left):
    given = []
    for example in examples():
        ids, padding = example["input_ids"], [0] * (45 - len(example["input_ids"]))
        mask = [0] * len(padding) + [1] * len(ids) if left else [1] * len(ids) + [0] * len(padding)
        given.append(example | {"input_ids": padding + ids if left else ids + padding, "attention_mask": mask})
    padded = MaskingCollator(**PLAIN, seed=0)(given)
    packed = MaskingCollator(**PLAIN, seed=0, layout="packed")(given)
    attended = assert_same_tokens_and_targets(padded, packed)
    assert packed.cu_seqlens.diff().tolist() == attended.sum(1).tolist()
    assert packed.max_seqlen == attended.sum(1).max()


def test_the_attention_mask_comes_from_the_lengths_and_not_from_the_ids():
    """Where id 0 is an ordinary token, it stands in the rows and is drawn as a replacement."""
    given = [{"input_ids": [0] * (4 + i % 3), "row_id": i} for i in range(90)]
    everything_random = {"mlm_probability": 0.9, "mask_replace_prob": 0.0, "random_replace_prob": 1.0}
    batch = MaskingCollator(mask_id=2, vocab_size=3, pad_id=1, seed=0, **everything_random)(given)
    assert batch["attention_mask"].sum(1).tolist() == [4 + i % 3 for i in range(90)]
    was_drawn = (batch["labels"] != -100) & (batch["input_ids"] == 0)
    assert was_drawn.any()
    assert (batch["attention_mask"][was_drawn] == 1).all()


def test_pad_to_multiple_of():
    batch = MaskingCollator(**PLAIN, seed=0, pad_to_multiple_of=16)(examples())
    assert batch["input_ids"].shape[1] % 16 == 0


def test_masks_are_the_same_for_any_batch_size_workers_and_ranks():
    given = examples(24)

    def masked_rows(collator, batch_size, workers, share=slice(None)):
        loader = DataLoader(given[share], batch_size=batch_size, num_workers=workers, collate_fn=collator)
        return [
            row[mask.bool()].tolist()
            for batch in loader
            for row, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
        ]

    for unit in ("token", "word", "span"):
        collator = MaskingCollator(backend(), seed=5, unit=unit)
        expected = masked_rows(collator, 24, 0)
        for batch_size, workers in ((1, 0), (5, 1), (7, 2)):
            assert masked_rows(collator, batch_size, workers) == expected
        ranks = [masked_rows(collator, 4, 0, slice(rank, None, 2)) for rank in (0, 1)]
        assert [row for pair in zip(*ranks, strict=True) for row in pair] == expected
        # going on after a stop: a new collator, the later rows alone
        resumed = MaskingCollator(backend(), seed=5, unit=unit)
        assert masked_rows(resumed, 6, 0, slice(12, None)) == expected[12:]


def test_without_row_ids_workers_ranks_and_epochs_draw_different_masks(monkeypatch):
    rows = [[2, *range(6, 66), 3]] * 16
    collator = MaskingCollator(**PLAIN, seed=5)
    loader = DataLoader(rows, batch_size=1, num_workers=2, collate_fn=collator)
    drawn = [tuple(batch["input_ids"][0].tolist()) for _ in range(2) for batch in loader]
    assert len(set(drawn)) == 32
    first = [MaskingCollator(**PLAIN, seed=5)(rows)["input_ids"].tolist()]
    monkeypatch.setenv("RANK", "1")
    assert MaskingCollator(**PLAIN, seed=5)(rows)["input_ids"].tolist() not in first


def test_a_seed_makes_the_stream_repeatable_and_none_does_not():
    rows = [[2, *range(6, 66), 3]] * 4
    draw = lambda seed: MaskingCollator(**PLAIN, seed=seed)(rows)["input_ids"].tolist()  # noqa: E731
    assert draw(3) == draw(3) != draw(4)
    assert draw(None) != draw(None)


def test_the_rank_is_that_of_the_process_group(monkeypatch):
    rows = [[2, *range(6, 66), 3]] * 4
    draw = lambda: MaskingCollator(**PLAIN, seed=5)(rows)["input_ids"].tolist()  # noqa: E731
    monkeypatch.setenv("RANK", "1")
    by_environment = draw()
    monkeypatch.delenv("RANK")
    assert draw() != by_environment
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    assert draw() == by_environment


def test_unused_slots_are_never_drawn():
    vocabulary = MaskingCollator(backend(), seed=0).vocabulary
    assert 5 not in vocabulary.drawable
    assert set(range(5)).isdisjoint(vocabulary.drawable)


def test_special_ids_beside_a_tokenizer_add_to_its_own():
    vocabulary = MaskingCollator(backend(), special_ids=[9], seed=0).vocabulary
    assert np.flatnonzero(~vocabulary.maskable_V).tolist() == [0, 1, 2, 3, 4, 9]
    assert 9 not in vocabulary.drawable


def test_the_rate_can_follow_the_step():
    given = [{"input_ids": [2, *range(6, 56), 3], "row_id": i} for i in range(400)]
    collator = MaskingCollator(**PLAIN, mlm_probability=LinearRate(0.4, 0.1, 100), seed=0)
    for step, rate in ((0, 0.4), (50, 0.25), (100, 0.1), (900, 0.1)):
        batch = collator([example | {"step": step} for example in given])
        share = (batch["labels"] != -100).sum().item() / (400 * 50)
        assert abs(share - rate) < 0.02
    with pytest.raises(ValueError, match="step"):
        collator(given)


def test_a_recipe_describes_the_same_collator():
    config = MaskConfig(rate=0.3, final_rate=0.1, unit="span", count="exact", mask_share=0.5, random_share=0.5)
    collator = MaskingCollator.from_config(backend(), config, seed=1, total_steps=10)
    assert collator.config == MaskConfig(unit="span", count="exact", mask_share=0.5, random_share=0.5)
    assert [collator.rate(step) for step in (0, 10)] == pytest.approx([0.3, 0.1])


def test_of_third_parties_numpy_output_imports_numpy_alone():
    code = (
        "import sys; from data_pipelines import MaskingCollator;"
        "c = MaskingCollator(mask_id=4, vocab_size=100, special_ids=range(5), pad_id=0, return_tensors='np', seed=0);"
        "b = c([[2, 7, 8, 3], [2, 9, 3]]); assert b['input_ids'].shape == (2, 4);"
        "print(*{module.partition('.')[0] for module in sys.modules})"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    others = {"torch", "transformers", "tokenizers", "datasets", "huggingface_hub", "bertkit", "rich", "yaml"}
    assert "numpy" in told.split()
    assert not others & set(told.split())
