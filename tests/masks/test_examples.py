"""Examples of every form are read alike, and what is wrong with one is named."""

import numpy as np
import pytest
import torch
from collating import PLAIN, backend, examples, restored

from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.vocab.tokenizer import load_tokenizer

NAN = float("nan")


@pytest.mark.parametrize("form", [list, np.array, torch.tensor])
def test_lists_arrays_and_tensors_are_the_same_input(form):
    given = [example | {"input_ids": form(example["input_ids"])} for example in examples()]
    expected = MaskingCollator(**PLAIN, seed=0)(examples())
    got = MaskingCollator(**PLAIN, seed=0)(given)
    assert all(torch.equal(got[name], expected[name]) for name in expected)


def test_lists_and_tensors_may_stand_side_by_side():
    forms = [list, np.array, torch.tensor, tuple]
    given = [example | {"input_ids": forms[i % 4](example["input_ids"])} for i, example in enumerate(examples())]
    expected = MaskingCollator(**PLAIN, seed=0)(examples())["input_ids"]
    assert torch.equal(MaskingCollator(**PLAIN, seed=0)(given)["input_ids"], expected)


def test_bare_rows_are_examples_too():
    rows = [example["input_ids"] for example in examples(with_ids=False)]
    batch = MaskingCollator(**PLAIN, seed=0)(rows)
    assert restored(batch)[0][batch["attention_mask"][0].bool()].tolist() == rows[0]


def test_encodings_are_examples_too():
    encodings = backend().encode_batch(["agbh ch", "dgeh"])
    for unit in ("token", "word"):
        batch = MaskingCollator(backend(), seed=0, unit=unit)(encodings)
        assert restored(batch)[0].tolist() == encodings[0].ids


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


def test_numpy_integers_are_integers():
    given = [example | {"row_id": np.int64(i), "epoch": np.int32(3)} for i, example in enumerate(examples())]
    got = MaskingCollator(**PLAIN, seed=np.int64(0))(given)["input_ids"]
    assert torch.equal(got, MaskingCollator(**PLAIN, seed=0)(examples())["input_ids"])


@pytest.mark.parametrize(
    ("options", "given", "complaint"),
    [
        ({}, None, "mask_id"),
        (PLAIN | {"unit": "sentence"}, None, "unit must be one of"),
        (
            PLAIN | {"mask_replace_prob": 0.9, "random_replace_prob": 0.3},
            None,
            r"mask_replace_prob.*random_replace_prob.* 0.9.* 0.3",
        ),
        (PLAIN | {"special_ids": [500]}, None, "outside a vocabulary"),
        (PLAIN, [[2, 100, 3]], "outside the vocabulary of 100"),
        (PLAIN, [[2, 5, 3], [2, -1, 3]], "input_ids of example 1.* -1"),
        (PLAIN, [np.array([2, 2**64 - 1], np.uint64)], "input_ids.*64 bits"),
        (PLAIN, [[2, 2**64 - 1]], "input_ids.*64 bits"),
        (PLAIN, [[2, 2**63]], "input_ids.*64 bits"),
        (PLAIN, [], "empty batch"),
        (PLAIN, [{"ids": [1]}], "needs input_ids"),
        (PLAIN | {"unit": "word"}, [[2, 7, 3]], "whole words need a tokenizer"),
        (PLAIN, [{"input_ids": [2, 7, 3], "special_tokens_mask": [1]}], "as long as its input_ids"),
        *(
            (PLAIN, [{"input_ids": [2, 7], name: [1]}, {"input_ids": [3], name: [1, 1]}], f"{name} of example 0")
            for name in ("special_tokens_mask", "attention_mask", "word_ids", "starts_word")
        ),
        (PLAIN, [[2, 7.5, 3]], "input_ids of example 0.*float64"),
        (PLAIN, [torch.tensor([2.0, 7.0])], "input_ids of example 0.*integers"),
        (PLAIN, [["a", "b"]], "input_ids of example 0.*integers"),
        (
            PLAIN,
            [{"input_ids": [2, 7], "attention_mask": [1.0, 0.5]}],
            "attention_mask of example 0.*integers",
        ),
        (PLAIN, [torch.tensor([[2, 7, 3]])], r"has shape \(1, 3\); give one-dimensional"),
        (PLAIN, [[[2, 7, 3]]], r"has shape \(1, 3\); give one-dimensional"),
        (PLAIN, {"input_ids": [[2, 7, 3]]}, "give a list of examples"),
        (PLAIN, [2, 7, 3], "a list of int"),
        (PLAIN, [{"input_ids": [7]}, {"input_ids": [7], "row_id": 1}], "example 1.*example 0.*row_id"),
        (PLAIN, [{"input_ids": [7], "row_id": 1}, {"input_ids": [7]}], "example 1.*example 0.*row_id"),
        (PLAIN, [{"input_ids": [7], "step": 1}, {"input_ids": [7], "step": 2}], "steps 1, 2"),
        (PLAIN, [{"input_ids": [7], "row_id": 1.5}], "row_id must be an integer"),
        (PLAIN | {"mlm_probability": lambda step: 1.2}, [{"input_ids": [7], "step": 3}], "gives 1.2 at step 3"),
        (PLAIN | {"mlm_probability": lambda step: "0.1"}, [{"input_ids": [7], "step": 3}], "gives '0.1' at step 3"),
        (PLAIN | {"tokenizer": backend()}, None, "tokenizer.*mask_id, vocab_size, pad_id"),
        ({"tokenizer": backend(), "special_ids": [500]}, None, "outside a vocabulary"),
    ],
)
def test_mistakes_are_named(options, given, complaint):
    with pytest.raises(ValueError, match=complaint):
        MaskingCollator(**options)(given)


WRONG = {
    "mlm_probability": [None, "0.15", NAN, -0.1, 1.1, 1.5, True],
    "mask_replace_prob": [None, "0.8", NAN, -0.1, 1.1],
    "random_replace_prob": [None, "0.1", NAN, -0.1, 1.1],
    "pad_to_multiple_of": ["8", NAN, 2.5, 0, -8],
    "span_mean": [None, "3.8", NAN, 0.5],
    "span_max": [None, "10", NAN, 2.5, 0, 65],
    "seed": ["a", NAN, 1.5],
    "mask_id": ["4", NAN, 4.0, -1, 100],
    "vocab_size": ["100", NAN, 100.0, 0, -3],
    "pad_id": ["0", NAN, 0.0, -1, 100],
    "special_ids": [None, 3, "012", [1.5], [NAN]],
    "tokenizer": [object(), 7, type(backend()), b"runs/tokenizer"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_a_wrong_argument_is_told_by_the_name_the_caller_used(name, value):
    plain = {} if name == "tokenizer" else PLAIN
    with pytest.raises(ValueError, match=f"^{name} must "):
        MaskingCollator(**plain | {name: value})


def test_the_name_of_a_tokenizer_is_told_how_to_open_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("some/tokenizer", tmp_path / "tokenizer.json"):
        with pytest.raises(ValueError, match=r"load_tokenizer\('.*'\) .*Tokenizer.from_pretrained\('.*'\) .* hub$"):
            MaskingCollator(name)
    backend().save("tokenizer.json")
    with pytest.raises(ValueError, match=r"load_tokenizer\('tokenizer.json'\) opens this one$"):
        MaskingCollator("tokenizer.json")
    MaskingCollator(load_tokenizer("tokenizer.json"))


MAPPING, ENCODING, ROW = {"input_ids": [2, 7, 3]}, backend().encode("agbh ch"), [2, 7, 3]


@pytest.mark.parametrize(
    ("batch", "complaint"),
    [
        (iter([ROW]), "list of examples.*list_iterator"),
        ((row for row in [ROW]), "list of examples.*generator"),
        ({(2, 7, 3)}, "got set"),
        (None, "got NoneType"),
        ([ENCODING, ROW], "example 0.*Encoding.*example 1.*row of ids"),
        ([ENCODING, ENCODING, MAPPING], "example 0.*Encoding.*example 2.*mapping"),
        ([ENCODING, None], "example 0.*Encoding.*example 1.*NoneType"),
        ([MAPPING, ENCODING], "example 0.*mapping.*example 1.*Encoding"),
        ([MAPPING, [7]], "example 0.*mapping.*example 1.*row of ids"),
        ([MAPPING, ROW], "example 0.*mapping.*example 1.*row of ids"),
        ([MAPPING, None], "example 0.*mapping.*example 1.*NoneType"),
        ([ROW, ENCODING], "input_ids of example 1.*Encoding"),
        ([np.array(ROW), ENCODING], "input_ids of example 1.*Encoding"),
        ([ROW, ROW, MAPPING], "input_ids of example 2.*mapping"),
    ],
)
def test_a_batch_of_the_wrong_form_is_named(batch, complaint):
    with pytest.raises(ValueError, match=complaint):
        MaskingCollator(backend(), seed=0)(batch)


@pytest.mark.parametrize("examples", [[[2, 7, 3], 5], [{"input_ids": [2]}, {"input_ids": 5}], [{"input_ids": 5}]])
def test_an_example_without_a_length_is_named(examples):
    with pytest.raises(ValueError, match=r"input_ids of example [01].* 5"):
        MaskingCollator(mask_id=4, vocab_size=30)(examples)
