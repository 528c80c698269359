"""The collator in projects of others: transformers' tokenizers, its Trainer, and the collator it replaces."""

import numpy as np
import pytest
import torch
from collating import PLAIN, backend, examples, restored, transformers_tokenizer
from reference import reference_transformers

from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.collator import MaskingCollator


def test_any_tokenizer_object_describes_the_vocabulary():
    from data_pipelines.vocab.tokenizer import SpecialIds
    from data_pipelines.vocab.tokenizer import Tokenizer as Ours

    given = examples()
    ours = Ours(backend(), SpecialIds(0, 1, 2, 3, 4, frozenset(range(5))))
    batches = [MaskingCollator(t, seed=0)(given) for t in (backend(), transformers_tokenizer(), ours)]
    for batch in batches[1:]:
        assert all(torch.equal(batch[name], batches[0][name]) for name in batch)


def test_left_padding_of_a_transformers_tokenizer_is_kept():
    tokenizer = transformers_tokenizer()
    tokenizer.padding_side = "left"
    given = examples()
    batch = MaskingCollator(tokenizer, seed=0)(given)
    assert (batch["attention_mask"][:, -1] == 1).all()
    assert restored(batch)[0][-len(given[0]["input_ids"]) :].tolist() == given[0]["input_ids"]


def test_it_serves_a_transformers_trainer(tmp_path):
    transformers = reference_transformers()
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    given, read = examples(16), set()

    class Rows(list):
        def __getitem__(self, index):
            read.add(index)
            return super().__getitem__(index)

    trainer = transformers.Trainer(
        model=transformers.BertForMaskedLM(config),
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=4, report_to=[], use_cpu=True,
            disable_tqdm=True, remove_unused_columns=False,
        ),
        train_dataset=Rows(given),
        data_collator=MaskingCollator(**PLAIN, seed=0),
    )  # fmt: skip
    assert np.isfinite(trainer.train().training_loss)
    assert len(read) >= 8


def test_it_means_what_the_collator_of_transformers_means():
    transformers = reference_transformers()
    tokenizer = transformers_tokenizer()
    given = [{"input_ids": [2, *([7] * 100), 3]} for _ in range(200)]
    theirs = transformers.DataCollatorForLanguageModeling(tokenizer)([dict(example) for example in given])
    ours = MaskingCollator(tokenizer, seed=0)(given)
    for batch in (ours, theirs):
        chosen = batch["labels"] != -100
        assert batch["labels"].shape == (200, 102)
        assert abs(chosen.float().mean().item() - 0.15 * 100 / 102) < 0.01
        assert abs((batch["input_ids"][chosen] == 4).float().mean().item() - 0.8) < 0.03
    assert set(ours) <= set(theirs) | {"labels"}


def test_accelerate_dispatches_padded_batches():
    accelerate = pytest.importorskip("accelerate")
    from torch.utils.data import DataLoader

    def batches(dispatch, **options):
        collator = MaskingCollator(**PLAIN, seed=0, **options)
        settings = accelerate.DataLoaderConfiguration(dispatch_batches=dispatch)
        accelerator = accelerate.Accelerator(cpu=True, dataloader_config=settings)
        return list(accelerator.prepare(DataLoader(examples(), batch_size=4, collate_fn=collator)))

    for dispatched, own in zip(*(batches(dispatch) for dispatch in (True, False)), strict=True):
        assert all(torch.equal(dispatched[name], own[name]) for name in own)
    assert isinstance(batches(False, layout="packed")[0], PackedBatch)
    with pytest.raises(TypeError, match="PackedBatch"):
        batches(True, layout="packed")


@pytest.mark.parametrize("pads_left", [False, True])
def test_what_accelerate_dispatched_to_a_process_is_packed_there(pads_left):
    """By the steps of its dispatcher: the batches of all processes are joined, and each takes its rows."""
    operations = pytest.importorskip("accelerate.utils.operations")
    tokenizer = transformers_tokenizer()
    tokenizer.padding_side = "left" if pads_left else "right"
    given, num_processes, size = examples(8), 2, 4
    collate = MaskingCollator(tokenizer, seed=0, pad_to_multiple_of=64)
    joined = operations.concatenate([collate(given[:size]), collate(given[size:])])
    for process in range(num_processes):
        rows = slice(process * size, (process + 1) * size)
        packed = PackedBatch.from_padded(operations.slice_tensors(joined, rows, process, num_processes))
        expected = MaskingCollator(tokenizer, seed=0, layout="packed")(given[rows])
        for name in ("input_ids", "position_ids", "cu_seqlens", "target_index", "target_ids"):
            assert torch.equal(getattr(packed, name), getattr(expected, name)), name
            assert getattr(packed, name).dtype == getattr(expected, name).dtype
        assert packed.max_seqlen == expected.max_seqlen


def test_token_types_are_packed_too():
    given = [
        {"input_ids": [2, 7, 8, 3], "token_type_ids": [0, 0, 1, 1]},
        {"input_ids": [2, 3], "token_type_ids": [0, 1]},
    ]
    packed = PackedBatch.from_padded(MaskingCollator(**PLAIN, seed=0)(given))
    assert packed.token_type_ids.tolist() == [0, 0, 1, 1, 0, 1]
