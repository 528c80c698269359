"""The collator: drop-in for other projects, the same masks whatever the workers, ranks and batch sizes."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader

from data_pipelines.collator import LinearRate, MaskingCollator
from data_pipelines.config import MaskConfig

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PLAIN = {"mask_id": 4, "vocab_size": 100, "special_ids": range(5), "pad_id": 0}


def backend() -> Tokenizer:
    words = [f"{prefix}{a}{b}" for prefix in ("", "##") for a in "abcdef" for b in "ghijkl"]
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, "[unused1]", *words])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def transformers_tokenizer():
    transformers = pytest.importorskip("transformers")
    names = {f"{name[1:-1].lower()}_token": name for name in SPECIAL}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend(), **names)


def examples(count=24, seed=0, longest=40, with_ids=True):
    rng = np.random.default_rng(seed)
    rows = [np.concatenate([[2], rng.integers(6, 70, rng.integers(1, longest)), [3]]) for _ in range(count)]
    return [{"input_ids": row.tolist()} | ({"row_id": i, "epoch": 3} if with_ids else {}) for i, row in enumerate(rows)]


def restored(batch):
    return torch.where(batch["labels"] == -100, batch["input_ids"], batch["labels"])


def test_padded_batches_restore_to_the_input():
    given = examples()
    batch = MaskingCollator(**PLAIN, seed=0)(given)
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert all(tensor.dtype == torch.int64 for tensor in batch.values())
    for row, mask, example in zip(restored(batch), batch["attention_mask"], given, strict=True):
        assert row[mask.bool()].tolist() == example["input_ids"]
        assert mask.sum() == len(example["input_ids"])
        assert (row[~mask.bool()] == 0).all()


def test_packed_and_padded_batches_hold_the_same():
    given = examples()
    padded = MaskingCollator(**PLAIN, seed=0)(given)
    packed = MaskingCollator(**PLAIN, seed=0, layout="packed")(given)
    attended = padded["attention_mask"].bool()
    assert torch.equal(padded["input_ids"][attended], packed.input_ids)
    labels = padded["labels"][attended]
    assert torch.equal((labels != -100).nonzero().flatten(), packed.target_index)
    assert torch.equal(labels[packed.target_index], packed.target_ids)
    lengths = torch.tensor([len(example["input_ids"]) for example in given])
    assert torch.equal(packed.cu_seqlens.diff().long(), lengths)
    assert packed.max_seqlen == lengths.max()
    assert torch.equal(packed.position_ids, torch.cat([torch.arange(length) for length in lengths]))


@pytest.mark.parametrize("form", [list, np.array, torch.tensor])
def test_lists_arrays_and_tensors_are_the_same_input(form):
    given = [example | {"input_ids": form(example["input_ids"])} for example in examples()]
    expected = MaskingCollator(**PLAIN, seed=0)(examples())
    got = MaskingCollator(**PLAIN, seed=0)(given)
    assert all(torch.equal(got[name], expected[name]) for name in expected)


def test_bare_rows_are_examples_too():
    rows = [example["input_ids"] for example in examples(with_ids=False)]
    batch = MaskingCollator(**PLAIN, seed=0)(rows)
    assert restored(batch)[0][batch["attention_mask"][0].bool()].tolist() == rows[0]


def test_any_tokenizer_object_describes_the_vocabulary():
    from data_pipelines.tokenizer import SpecialIds
    from data_pipelines.tokenizer import Tokenizer as Ours

    given = examples()
    ours = Ours(backend(), SpecialIds(0, 1, 2, 3, 4, frozenset(range(5))))
    batches = [MaskingCollator(t, seed=0)(given) for t in (backend(), transformers_tokenizer(), ours)]
    for batch in batches[1:]:
        assert all(torch.equal(batch[name], batches[0][name]) for name in batch)


def test_unused_slots_are_never_drawn():
    vocabulary = MaskingCollator(backend(), seed=0).vocabulary
    assert 5 not in vocabulary.masking.drawable
    assert set(range(5)).isdisjoint(vocabulary.masking.drawable)


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


def test_special_tokens_mask_and_attention_mask_protect():
    given = [
        {"input_ids": [2, *range(6, 26), 3, 0, 0], "special_tokens_mask": [1] * 12 + [0] * 10 + [1] * 2,
         "attention_mask": [1] * 18 + [0] * 6}
    ]  # fmt: skip
    collator = MaskingCollator(**PLAIN, mlm_probability=0.99, seed=0)
    batch = collator(given)
    chosen = (batch["labels"][0] != -100).nonzero().flatten().tolist()
    assert chosen
    assert set(chosen) <= set(range(12, 18))
    assert batch["attention_mask"][0].tolist() == given[0]["attention_mask"]


def test_further_fields_are_stacked_or_padded():
    given = [example | {"token_type_ids": [1] * len(example["input_ids"]), "weight": 0.5} for example in examples(4)]
    batch = MaskingCollator(**PLAIN, seed=0)(given)
    assert torch.equal(batch["token_type_ids"], batch["attention_mask"])
    assert batch["weight"].tolist() == [0.5] * 4
    assert "row_id" not in batch


def test_further_fields_keep_their_type():
    given = [
        {"input_ids": [2, *range(6, 6 + n), 3], "weights": [0.5] * (n + 2), "half": np.full(n + 2, 0.25, np.float32),
         "seen": [True] * (n + 2), "pieces": ["a"] * (n + 2), "ragged": [1] * (n + 9), "pair": [1, 2], "name": "x"}
        for n in (3, 5)
    ]  # fmt: skip
    batch = MaskingCollator(**PLAIN, seed=0)(given)
    assert batch["weights"][0].tolist() == [0.5] * 5 + [0.0] * 2
    assert batch["half"].dtype == torch.float32
    assert batch["seen"].dtype == torch.bool
    assert batch["pieces"] == [["a"] * 5, ["a"] * 7]
    assert batch["ragged"] == [[1] * 12, [1] * 14]
    assert batch["pair"].tolist() == [[1, 2]] * 2
    assert batch["name"] == ["x", "x"]


@pytest.mark.parametrize("left", [False, True])
def test_a_pack_drops_unattended_tokens_and_keeps_the_masks(left):
    given = []
    for example in examples():
        ids, padding = example["input_ids"], [0] * (45 - len(example["input_ids"]))
        mask = [0] * len(padding) + [1] * len(ids) if left else [1] * len(ids) + [0] * len(padding)
        given.append(example | {"input_ids": padding + ids if left else ids + padding, "attention_mask": mask})
    padded = MaskingCollator(**PLAIN, seed=0)(given)
    packed = MaskingCollator(**PLAIN, seed=0, layout="packed")(given)
    attended = padded["attention_mask"].bool()
    assert torch.equal(padded["input_ids"][attended], packed.input_ids)
    labels = padded["labels"][attended]
    assert torch.equal((labels != -100).nonzero().flatten(), packed.target_index)
    assert torch.equal(labels[packed.target_index], packed.target_ids)
    assert packed.cu_seqlens.diff().tolist() == attended.sum(1).tolist()
    assert packed.max_seqlen == attended.sum(1).max()


def test_lists_and_tensors_may_stand_side_by_side():
    forms = [list, np.array, torch.tensor, tuple]
    given = [example | {"input_ids": forms[i % 4](example["input_ids"])} for i, example in enumerate(examples())]
    expected = MaskingCollator(**PLAIN, seed=0)(examples())["input_ids"]
    assert torch.equal(MaskingCollator(**PLAIN, seed=0)(given)["input_ids"], expected)


def test_encodings_are_examples_too():
    encodings = backend().encode_batch(["agbh ch", "dgeh"])
    for unit in ("token", "word"):
        batch = MaskingCollator(backend(), seed=0, unit=unit)(encodings)
        assert restored(batch)[0].tolist() == encodings[0].ids


def chosen_together(collator, example):
    """Whether tokens 0 and 1 of the example are always chosen together."""
    draws = [collator([example])["labels"][0] != -100 for _ in range(60)]
    return all(draw[0] == draw[1] for draw in draws)


def test_starts_word_comes_before_any_other_source_of_words():
    collator = MaskingCollator(backend(), unit="word", seed=0, mlm_probability=0.5)
    example = {"input_ids": [10, 11, 12, 13]}  # four words in the vocabulary
    assert not chosen_together(collator, example)
    assert chosen_together(collator, example | {"starts_word": [True, False, True, True]})
    example |= {"word_ids": [0, 1, 2, 3]}
    assert chosen_together(collator, example | {"starts_word": np.array([True, False, True, True])})


def test_words_of_fast_encodings_are_used_but_for_chinese():
    transformers = pytest.importorskip("transformers")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]", pad_token="[PAD]")
    collator = MaskingCollator(wrapped, unit="word", seed=0, mlm_probability=0.5)
    assert chosen_together(collator, wrapped("'s a b"))  # a contraction, which the vocabulary alone does not show
    draws = [collator([wrapped("我来")])["labels"][0] != -100 for _ in range(60)]
    assert all(draw[0] == draw[1] == draw[2] and draw[3] == draw[5] for draw in draws)
    assert any(draw[0] != draw[3] for draw in draws)


def test_special_ids_beside_a_tokenizer_add_to_its_own():
    vocabulary = MaskingCollator(backend(), special_ids=[9], seed=0).vocabulary
    assert np.flatnonzero(vocabulary.masking.special_V).tolist() == [0, 1, 2, 3, 4, 9]
    assert 9 not in vocabulary.masking.drawable


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


def test_pad_to_multiple_of():
    batch = MaskingCollator(**PLAIN, seed=0, pad_to_multiple_of=16)(examples())
    assert batch["input_ids"].shape[1] % 16 == 0


def test_left_padding_of_a_transformers_tokenizer_is_kept():
    tokenizer = transformers_tokenizer()
    tokenizer.padding_side = "left"
    given = examples()
    batch = MaskingCollator(tokenizer, seed=0)(given)
    assert (batch["attention_mask"][:, -1] == 1).all()
    assert restored(batch)[0][-len(given[0]["input_ids"]) :].tolist() == given[0]["input_ids"]


def test_numpy_output_never_imports_torch():
    code = (
        "import sys; from data_pipelines import MaskingCollator;"
        "c = MaskingCollator(mask_id=4, vocab_size=100, special_ids=range(5), pad_id=0, return_tensors='np', seed=0);"
        "b = c([[2, 7, 8, 3], [2, 9, 3]]); assert b['input_ids'].shape == (2, 4); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_words_come_from_word_ids_when_given():
    # tokens 1..6 are two words of three pieces each, whatever the vocabulary says
    given = [{"input_ids": [2, 6, 7, 8, 9, 10, 11, 3], "word_ids": [None, 0, 0, 0, 1, 1, 1, None], "row_id": i}
             for i in range(200)]  # fmt: skip
    batch = MaskingCollator(**PLAIN, unit="word", seed=0, mlm_probability=0.5)(given)
    chosen = batch["labels"] != -100
    assert (chosen[:, 1] == chosen[:, 2]).all()
    assert (chosen[:, 2] == chosen[:, 3]).all()
    assert (chosen[:, 4] == chosen[:, 6]).all()
    assert (chosen[:, 1] != chosen[:, 4]).any()


def test_words_of_a_byte_level_vocabulary_break_at_punctuation():
    transformers = pytest.importorskip("transformers")
    text = "Hello world, it is 2024! (really) naïve words:"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    from tokenizers import trainers

    tokenizer.train_from_iterator(
        [text] * 3,
        trainers.BpeTrainer(
            vocab_size=300, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        ),
    )
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, mask_token="[MASK]", pad_token="[PAD]", unk_token="[UNK]"
    )
    encoding = tokenizer.encode(text)
    collator = MaskingCollator(wrapped, unit="word", seed=0)
    words = collator._word_starts(np.array(encoding.ids))
    exact = [i == 0 or encoding.word_ids[i] != encoding.word_ids[i - 1] for i in range(len(encoding.ids))]
    assert words.tolist() == exact


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


@pytest.mark.parametrize(
    ("options", "given", "complaint"),
    [
        ({}, None, "mask_id"),
        (PLAIN | {"unit": "sentence"}, None, "unit must be one of"),
        (PLAIN | {"mlm_probability": 1.5}, None, "rate must lie"),
        (PLAIN | {"mask_replace_prob": 0.9, "random_replace_prob": 0.3}, None, "must not exceed 1"),
        (PLAIN | {"special_ids": [500]}, None, "outside a vocabulary"),
        (PLAIN, [[2, 100, 3]], "outside the vocabulary of 100"),
        (PLAIN, [[2, -1, 3]], "outside the vocabulary of 100"),
        (PLAIN, [], "empty batch"),
        (PLAIN, [{"ids": [1]}], "needs input_ids"),
        (PLAIN | {"unit": "word"}, [[2, 7, 3]], "whole words need a tokenizer"),
        (PLAIN, [{"input_ids": [2, 7, 3], "special_tokens_mask": [1]}], "as long as its input_ids"),
        *(
            (PLAIN, [{"input_ids": [2, 7], name: [1]}, {"input_ids": [3], name: [1, 1]}], f"{name} of example 0")
            for name in ("special_tokens_mask", "attention_mask", "word_ids", "starts_word")
        ),
        (PLAIN, [[2, 7.5, 3]], "input_ids of example 0 must hold integers, got float64s"),
        (PLAIN, [torch.tensor([2.0, 7.0])], "input_ids of example 0 must hold integers"),
        (PLAIN, [["a", "b"]], "input_ids of example 0 must hold integers"),
        (
            PLAIN,
            [{"input_ids": [2, 7], "attention_mask": [1.0, 0.5]}],
            "attention_mask of example 0 must hold integers",
        ),
        (PLAIN, [torch.tensor([[2, 7, 3]])], r"has shape \(1, 3\); give one-dimensional"),
        (PLAIN, [[[2, 7, 3]]], r"has shape \(1, 3\); give one-dimensional"),
        (PLAIN, {"input_ids": [[2, 7, 3]]}, "give a list of examples"),
        (PLAIN, [2, 7, 3], "a list of int"),
        (PLAIN, [{"input_ids": [7]}, {"input_ids": [7], "row_id": 1}], "example 1 and example 0 do not share row_id"),
        (PLAIN, [{"input_ids": [7], "row_id": 1}, {"input_ids": [7]}], "example 1 and example 0 do not share row_id"),
        (PLAIN, [{"input_ids": [7], "step": 1}, {"input_ids": [7], "step": 2}], "one step, got examples of steps 1, 2"),
        (PLAIN, [{"input_ids": [7], "row_id": 1.5}], "row_id must be an integer"),
        (PLAIN | {"seed": "a"}, None, "seed must be an integer"),
        (PLAIN | {"mlm_probability": None}, None, "mlm_probability must be a number"),
        (PLAIN | {"mlm_probability": lambda step: 1.2}, [{"input_ids": [7], "step": 3}], "gives 1.2 at step 3"),
        (PLAIN | {"pad_to_multiple_of": 0}, None, "pad_to_multiple_of must be at least 1"),
        (PLAIN | {"span_mean": float("nan")}, None, "span_mean must be at least 1"),
        (PLAIN | {"tokenizer": backend()}, None, "the tokenizer tells mask_id, vocab_size, pad_id already"),
        ({"tokenizer": backend(), "special_ids": [500]}, None, "outside a vocabulary"),
        ({"tokenizer": "runs/tokenizer"}, None, r"load_tokenizer\('runs/tokenizer'\)"),
    ],
)
def test_mistakes_are_named(options, given, complaint):
    with pytest.raises(ValueError, match=complaint):
        MaskingCollator(**options)(given)


def test_numpy_integers_are_integers():
    given = [example | {"row_id": np.int64(i), "epoch": np.int32(3)} for i, example in enumerate(examples())]
    got = MaskingCollator(**PLAIN, seed=np.int64(0))(given)["input_ids"]
    assert torch.equal(got, MaskingCollator(**PLAIN, seed=0)(examples())["input_ids"])


def test_it_serves_a_transformers_trainer(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    collator, row_ids = MaskingCollator(**PLAIN, seed=0), []

    def collate(batch):
        row_ids.extend(example["row_id"] for example in batch)
        return collator(batch)

    trainer = transformers.Trainer(
        model=transformers.BertForMaskedLM(config),
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=4, report_to=[], use_cpu=True,
            disable_tqdm=True, remove_unused_columns=False,
        ),
        train_dataset=examples(16),
        data_collator=collate,
    )  # fmt: skip
    assert np.isfinite(trainer.train().training_loss)
    assert len(set(row_ids)) >= 8


def test_it_means_what_the_collator_of_transformers_means():
    transformers = pytest.importorskip("transformers")
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
