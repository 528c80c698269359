"""Every behaviour that transformers documents for its masked-LM collator, case by case: the same here, or different as
the table in data_pipelines/README.md says."""

import sys

import numpy as np
import pytest
import torch
from collating import LONG, PLAIN, backend, examples, restored, transformers_tokenizer
from reference import reference_transformers
from tokenizers import AddedToken

from data_pipelines.masks.arguments import check_tensors
from data_pipelines.masks.collator import MaskingCollator

transformers = reference_transformers()


def both(given, **options):
    """What transformers and we make of the examples."""
    tokenizer = transformers_tokenizer()
    theirs = transformers.DataCollatorForLanguageModeling(tokenizer, seed=0, **options)
    return theirs([dict(example) for example in given]), MaskingCollator(tokenizer, seed=0, **options)(given)


# Inputs


@pytest.mark.parametrize("form", ["dicts", "lists", "arrays", "tensors", "encodings"])
def test_examples_of_every_documented_form_are_padded_to_the_longest(form):
    tokenizer = transformers_tokenizer()
    texts = ["ag ah ai", "bg bh"]
    encoded = [tokenizer(text) for text in texts]
    rows = [encoding["input_ids"] for encoding in encoded]
    given = {
        "dicts": [{"input_ids": row, "attention_mask": [1] * len(row)} for row in rows],
        "lists": rows,
        "arrays": [np.array(row) for row in rows],
        "tensors": [torch.tensor(row) for row in rows],
        "encodings": encoded,
    }[form]
    batch = MaskingCollator(tokenizer, seed=0)(given)
    expected = tokenizer.pad({"input_ids": rows}, return_tensors="pt")
    assert torch.equal(restored(batch), expected["input_ids"])
    assert torch.equal(batch["attention_mask"], expected["attention_mask"])


def test_the_batch_has_the_keys_and_types_of_transformers():
    given = [{"input_ids": [2, 7, 8, 3], "token_type_ids": [0, 0, 1, 1], "special_tokens_mask": [1, 0, 0, 1]}] * 2
    theirs, ours = both(given)
    assert set(ours) == set(theirs)
    for name in theirs:
        assert ours[name].dtype == theirs[name].dtype
        assert ours[name].shape == theirs[name].shape


def test_token_types_are_padded_with_the_number_of_the_tokenizer():
    tokenizer = transformers_tokenizer()
    tokenizer._pad_token_type_id = 3  # as XLNet's
    given = [
        {"input_ids": [2, 7, 3], "token_type_ids": [0, 1, 2]},
        {"input_ids": [2, 7, 7, 3], "token_type_ids": [0] * 4},
    ]
    theirs, ours = (
        collator(tokenizer)([dict(example) for example in given])
        for collator in (transformers.DataCollatorForLanguageModeling, MaskingCollator)
    )
    assert torch.equal(ours["token_type_ids"], theirs["token_type_ids"])
    assert ours["token_type_ids"][0, -1] == 3


def test_a_batch_has_an_attention_mask_and_is_a_dict_whatever_the_examples_hold():
    """transformers makes no mask for plain lists, and a BatchEncoding of dicts."""
    theirs, ours = both([{"input_ids": [2, 7, 3]}])
    assert (type(theirs), type(ours)) == (transformers.BatchEncoding, dict)
    tokenizer = transformers_tokenizer()
    theirs, ours = (
        collator(tokenizer)([[2, 7, 3], [2, 3]])
        for collator in (transformers.DataCollatorForLanguageModeling, MaskingCollator)
    )
    assert set(ours) - set(theirs) == {"attention_mask"}
    assert ours["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]


def test_unknown_tokens_are_never_chosen_though_a_mask_may_allow_it():
    """The mask of a fast tokenizer does not name [UNK]; transformers then chooses it."""
    theirs, ours = both([{"input_ids": [2, 1, 7, 3], "special_tokens_mask": [1, 0, 0, 1]}], mlm_probability=1.0)
    assert theirs["labels"].tolist() == [[-100, 1, 7, -100]]
    assert ours["labels"].tolist() == [[-100, -100, 7, -100]]


def test_other_fields_are_stacked_padded_or_kept_where_transformers_refuses_them():
    ragged = [{"input_ids": [2, 7, 3]}, {"input_ids": [2, 7, 7, 3]}]
    for name, values, kept in (
        ("label", [1, 0], torch.tensor([1, 0])),
        ("position_ids", [[0, 1, 2], [0, 1, 2, 3]], torch.tensor([[0, 1, 2, 0], [0, 1, 2, 3]])),
        ("text", ["a", "b"], ["a", "b"]),
    ):
        given = [example | {name: value} for example, value in zip(ragged, values, strict=True)]
        found = MaskingCollator(transformers_tokenizer())(given)[name]
        assert torch.equal(found, kept) if isinstance(kept, torch.Tensor) else found == kept
        if name != "label":
            with pytest.raises(ValueError, match="Unable to create tensor"):
                transformers.DataCollatorForLanguageModeling(transformers_tokenizer())(given)


def test_a_special_tokens_mask_protects_and_is_dropped():
    _, ours = both([{"input_ids": [7, 7, 7, 7], "special_tokens_mask": [1, 1, 1, 0]}] * 50, mlm_probability=0.9)
    assert (ours["labels"][:, :3] == -100).all()
    assert "special_tokens_mask" not in ours


def test_labels_of_the_examples_are_replaced_by_the_targets():
    for batch in both([{"input_ids": [2, 7, 8, 3], "labels": [9, 9, 9, 9]}] * 50):
        chosen = batch["labels"] != -100
        assert chosen.any()
        assert set(batch["labels"][chosen].tolist()) <= {7, 8}


def test_tokens_that_are_not_attended_are_never_chosen():
    batch = MaskingCollator(transformers_tokenizer(), mlm_probability=0.9, seed=0)(
        [{"input_ids": [7, 7, 7, 7], "attention_mask": [1, 1, 0, 0]}] * 50
    )
    assert (batch["labels"][:, 2:] == -100).all()


@pytest.mark.parametrize("unit", ["token", "word"])
def test_an_offset_mapping_is_dropped(unit):
    tokenizer = transformers_tokenizer()
    given = [tokenizer("ag ah ai", return_offsets_mapping=True) for _ in range(3)]
    assert "offset_mapping" not in MaskingCollator(tokenizer, seed=0, unit=unit)(given)
    plain = [{key: value for key, value in one.items() if key != "offset_mapping"} for one in given]
    with_offsets, without = (MaskingCollator(tokenizer, seed=0, unit=unit)(one) for one in (given, plain))
    assert torch.equal(with_offsets["input_ids"], without["input_ids"])


def test_pad_to_multiple_of_is_the_same():
    for theirs_and_ours in zip(
        *(batch["input_ids"].shape for batch in both(LONG[:2], pad_to_multiple_of=64)), strict=True
    ):
        assert len(set(theirs_and_ours)) == 1


def test_padding_goes_to_the_side_of_the_tokenizer():
    tokenizer = transformers_tokenizer()
    tokenizer.padding_side = "left"
    given = [{"input_ids": [2, 7, 3]}, {"input_ids": [2, 7, 7, 7, 3]}]
    theirs = transformers.DataCollatorForLanguageModeling(tokenizer)([dict(example) for example in given])
    assert torch.equal(MaskingCollator(tokenizer)(given)["attention_mask"], theirs["attention_mask"])


# Arguments


def test_mlm_and_whole_word_mask_are_taken_by_name():
    given = examples()
    same = [
        MaskingCollator(backend(), seed=0, **options)(given)
        for options in ({"unit": "word"}, {"mlm": True, "whole_word_mask": True})
    ]
    assert torch.equal(same[0]["input_ids"], same[1]["input_ids"])
    with pytest.raises(ValueError, match="mlm=False"):
        MaskingCollator(backend(), mlm=False)
    with pytest.raises(ValueError, match=r"whole_word_mask=True.*unit='span'"):
        MaskingCollator(backend(), whole_word_mask=True, unit="span")
    with pytest.raises(ValueError, match=r"mlm_probability.*True.*by name"):
        MaskingCollator(backend(), True)


@pytest.mark.parametrize("probability", [0, 0.0, 1, 1.0])
def test_no_token_or_every_token_can_be_chosen(probability):
    for batch in both(LONG[:3], mlm_probability=probability):
        chosen = batch["labels"] != -100
        assert chosen[:, 1:-1].all() if probability else not chosen.any()
        assert not chosen[:, [0, -1]].any()


@pytest.mark.parametrize(("mask", "random"), [(0.8, 0.1), (1.0, 0.0), (0.0, 1.0), (0.5, 0.4)])
def test_the_documented_shares(mask, random):
    for batch in both(LONG, mask_replace_prob=mask, random_replace_prob=random):
        was, now = batch["labels"], batch["input_ids"]
        chosen = was != -100
        assert chosen[:, 1:-1].float().mean().item() == pytest.approx(0.15, abs=0.01)
        assert (now[chosen] == 4).float().mean().item() == pytest.approx(mask, abs=0.03)
        kept = (now[chosen] == was[chosen]).float().mean().item()
        assert kept == pytest.approx(1 - mask - random + random / 77, abs=0.03)


@pytest.mark.parametrize(
    "options",
    [
        {"mlm_probability": None}, {"mlm_probability": -0.1}, {"mlm_probability": 1.1}, {"mask_replace_prob": 1.1},
        {"random_replace_prob": -0.1}, {"mask_replace_prob": 0.8, "random_replace_prob": 0.3},
    ],
)  # fmt: skip
def test_what_transformers_refuses_is_refused_by_the_same_name(options):
    tokenizer = transformers_tokenizer()
    with pytest.raises(ValueError, match=next(iter(options))):
        transformers.DataCollatorForLanguageModeling(tokenizer, **options)
    with pytest.raises(ValueError, match=next(iter(options))):
        MaskingCollator(tokenizer, **options)


def test_a_tokenizer_without_mask_token_is_refused():
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend(), pad_token="[PAD]")
    for collator in (transformers.DataCollatorForLanguageModeling, MaskingCollator):
        with pytest.raises(ValueError, match="mask token"):
            collator(tokenizer)


def test_rows_that_need_padding_need_a_pad_token():
    names = {"mask_token": "[MASK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend(), **names)
    ragged = [{"input_ids": [2, 7, 3]}, {"input_ids": [2, 7, 7, 3]}]
    with pytest.raises(ValueError, match="pad"):
        transformers.DataCollatorForLanguageModeling(tokenizer)(ragged)
    with pytest.raises(ValueError, match=r"tokenizer.pad_token.*pad_id"):
        MaskingCollator(tokenizer)(ragged)
    assert MaskingCollator(tokenizer)(ragged[:1])["input_ids"].shape == (1, 3)
    assert MaskingCollator(tokenizer, pad_id=0, mlm_probability=0)(ragged)["input_ids"].tolist()[0] == [2, 7, 3, 0]
    with pytest.raises(ValueError, match=r"defines pad_id"):
        MaskingCollator(transformers_tokenizer(), pad_id=0)


def test_arguments_can_be_read_again_but_not_set():
    """Set there, a rate would count from the next batch on; here it is a function of the step."""
    options = {"mlm_probability": 0.3, "mask_replace_prob": 0.7, "random_replace_prob": 0.2, "pad_to_multiple_of": 8}
    tokenizer = transformers_tokenizer()
    theirs, ours = (
        collator(tokenizer, return_tensors="np", seed=4, **options)
        for collator in (transformers.DataCollatorForLanguageModeling, MaskingCollator)
    )
    for name in (*options, "tokenizer", "mlm", "whole_word_mask", "return_tensors", "seed"):
        assert getattr(ours, name) == getattr(theirs, name), name
    with pytest.raises(AttributeError, match="mlm_probability"):
        ours.mlm_probability = 0.5


def test_a_trainer_saves_the_tokenizer_of_its_collator(tmp_path):
    config = transformers.BertConfig(
        vocab_size=78, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    for tokenizer, saved in ((transformers_tokenizer(), True), (backend(), False)):
        trainer = transformers.Trainer(
            model=transformers.BertForMaskedLM(config),
            args=transformers.TrainingArguments(str(tmp_path), report_to=[], use_cpu=True),
            data_collator=MaskingCollator(tokenizer),
        )
        trainer.save_model(str(tmp_path / str(saved)))
        assert (tmp_path / str(saved) / "tokenizer.json").is_file() == saved


# Outputs


def test_tensors_are_numpy_or_torch_by_argument_and_by_call():
    for kind, expected in (("np", np.ndarray), ("pt", torch.Tensor)):
        collators = [MaskingCollator(**PLAIN, seed=0, return_tensors=other) for other in ("np", "pt")]
        for batch in (collators[0](examples(), return_tensors=kind), collators[1](examples(), kind)):
            assert all(isinstance(value, expected) for value in batch.values())
    with pytest.raises(ValueError, match=r"return_tensors.*'tf'"):
        collators[0](examples(), return_tensors="tf")


def test_a_batch_encoding_gives_a_batch_encoding():
    tokenizer = transformers_tokenizer()
    given = [tokenizer(text) for text in ("ag ah", "bg")]
    batch = MaskingCollator(tokenizer)(given)
    assert isinstance(batch, transformers.BatchEncoding)
    assert batch.to("cpu").input_ids.shape == (2, 2)
    assert type(MaskingCollator(tokenizer)([dict(one) for one in given])) is dict
    assert type(MaskingCollator(tokenizer, layout="packed")(given)).__name__ == "PackedBatch"


def test_torch_that_is_not_installed_is_told_at_construction(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr("data_pipelines.masks.arguments.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"torch.*return_tensors=\"np\""):
        MaskingCollator(**PLAIN)
    check_tensors("np")


def test_whole_words_keep_the_shares():
    """transformers masks every chosen word; here 80/10/10 holds for words too."""
    with pytest.warns(UserWarning, match="mask_replace_prob"):
        transformers.DataCollatorForLanguageModeling(transformers_tokenizer(), whole_word_mask=True)
    batch = MaskingCollator(transformers_tokenizer(), whole_word_mask=True, seed=0)(LONG)
    chosen = batch["labels"] != -100
    assert (batch["input_ids"][chosen] == 4).float().mean().item() == pytest.approx(0.8, abs=0.05)


# Special tokens


def test_tokens_that_any_tokenizer_marks_special_are_never_chosen_or_drawn():
    marked = backend()
    marked.add_tokens([AddedToken("<ent>", special=True), AddedToken("plain")])
    ent, plain = marked.token_to_id("<ent>"), marked.token_to_id("plain")
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    for tokenizer in (marked, transformers.PreTrainedTokenizerFast(tokenizer_object=marked, **names)):
        vocabulary = MaskingCollator(tokenizer).vocabulary
        assert not vocabulary.maskable_V[ent]
        assert ent not in vocabulary.drawable
        assert vocabulary.maskable_V[plain]


def test_padding_settings_of_a_tokenizer_count():
    tokenizer = backend()
    tokenizer.enable_padding(direction="left", pad_id=3, pad_token="[SEP]")
    batch = MaskingCollator(tokenizer, mlm_probability=0)([[7, 8], [7, 8, 9]])
    assert batch["input_ids"].tolist() == [[3, 7, 8], [7, 8, 9]]


def test_it_shows_what_it_does():
    shown = repr(MaskingCollator(**PLAIN, seed=3, unit="word"))
    assert all(part in shown for part in ("seed=3", "unit='word'", "mlm_probability=0.15", "layout='padded'"))
