"""Settings beside a tokenizer leave as they came; a new tokenizer gets what its model needs."""

import json

import pytest
from reference import reference_transformers
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from data_pipelines.vocab.extend import extend_tokenizer
from data_pipelines.vocab.tokenizer import SPECIAL_TOKENS, load_tokenizer

WORDS = [*SPECIAL_TOKENS, "the", "cat", "##s", "t", "##h", "##e"]


def write(folder, config=None, special_map=None, backend=None):
    if backend is None:
        backend = Tokenizer(models.WordPiece({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.save(str(folder / "tokenizer.json"))
    for name, content in (("tokenizer_config.json", config), ("special_tokens_map.json", special_map)):
        if content is not None:
            (folder / name).write_text(json.dumps(content))
    return folder


def saved(folder, **model):
    load_tokenizer(folder).save(folder / "saved", **model)
    return {file.stem: json.loads(file.read_text()) for file in (folder / "saved").glob("*.json")}


@pytest.mark.parametrize("special_map", [None, {"additional_special_tokens": ["t"], "pad_token": {"content": "[PAD]"}}])
def test_what_a_folder_says_is_written_again(special_map, tmp_path):
    config = {"tokenizer_class": "BertTokenizer", "padding_side": "left", "strip_accents": None, "note": {"a": [1]}}
    files = saved(write(tmp_path, config, special_map), token_types=True)
    assert files["tokenizer_config"] == config
    assert files.get("special_tokens_map") == special_map


@pytest.mark.parametrize("key", ["additional_special_tokens", "extra_special_tokens"])
@pytest.mark.parametrize("form", [["t", {"content": "##h"}], {"a": "t", "b": "##h"}])
def test_further_special_tokens_are_special(key, form, tmp_path):
    assert {8, 9} <= load_tokenizer(write(tmp_path, {key: form})).special.special_ids


def test_the_length_of_the_model_is_told_where_the_tokenizer_tells_none(tmp_path):
    assert saved(write(tmp_path), max_length=24)["tokenizer_config"]["model_max_length"] == 24
    assert saved(write(tmp_path, {"model_max_length": 9}), max_length=24)["tokenizer_config"]["model_max_length"] == 9


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_a_new_tokenizer_makes_token_types_for_models_that_have_them(before, after, tmp_path):
    saved(write(tmp_path), token_types=before)
    names = saved(tmp_path / "saved", token_types=after)["tokenizer_config"]["model_input_names"]
    assert ("token_type_ids" in names) == after


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"tokenizer_class": "BertTokenizer"}, ["input_ids", "attention_mask"]),
        ({"tokenizer_class": "RobertaTokenizerFast"}, None),
        ({"tokenizer_class": "X", "model_input_names": ["input_ids", "token_type_ids"]}, ["input_ids"]),
    ],
)
def test_a_model_without_token_types_is_given_none(config, names, tmp_path):
    written = saved(write(tmp_path, config), token_types=False)["tokenizer_config"]
    assert written.get("model_input_names") == names


def test_a_vocabulary_with_gaps_or_line_breaks_is_no_list_of_lines(tmp_path):
    for name, token, index in (("gap", "x", len(WORDS) + 1), ("break", "a\nb", len(WORDS))):
        vocab = {word: place for place, word in enumerate(WORDS)} | {token: index}
        folder = tmp_path / name
        folder.mkdir()
        saved(write(folder, backend=Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))))
        assert not (folder / "saved" / "vocab.txt").exists()


@pytest.mark.parametrize("class_name", ["BertTokenizer", "PreTrainedTokenizerFast"])
def test_an_extended_vocabulary_means_the_same_to_every_reader(class_name, tmp_path):
    """Tokens that were added behind the vocabulary keep their ids when more come after them."""
    transformers = reference_transformers()
    write(tmp_path, {"tokenizer_class": class_name, "unk_token": "[UNK]"})
    before = load_tokenizer(tmp_path)
    before.backend.add_special_tokens([AddedToken("<ent>", special=True)])
    before.save(tmp_path / "added")
    extension = extend_tokenizer(load_tokenizer(tmp_path / "added"), ["thes cats thes"] * 9, num_new=2)
    extension.tokenizer.save(tmp_path / "extended")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "extended")
    assert len(extension.old_pieces) == 2
    assert theirs.get_vocab() == extension.tokenizer.backend.get_vocab()
    for text in ("thes <ent> cats", "the cat"):
        ours = extension.tokenizer.backend.encode(text, add_special_tokens=False).ids
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours
    lines = (tmp_path / "extended" / "vocab.txt").read_text().splitlines()
    assert {line: index for index, line in enumerate(lines)} == extension.tokenizer.backend.get_vocab()
