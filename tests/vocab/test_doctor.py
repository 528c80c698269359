"""The doctor's figures are those counted by hand, and every complaint has its cause."""

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors

from data_pipelines.vocab.doctor import check_special_tokens, examine
from data_pipelines.vocab.tokenizer import SPECIAL_TOKENS, load_tokenizer


def tokenizer(folder, tokens=("a", "b", "##b", "."), special=tuple(SPECIAL_TOKENS), framed=True, added=True):
    """A WordPiece tokenizer of these tokens, the special ones first."""
    vocabulary = {token: index for index, token in enumerate([*special, *tokens])}
    backend = Backend(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if added:
        backend.add_special_tokens(list(special))
    if framed:
        ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
        backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    backend.save(str(folder / "tokenizer.json"))
    return load_tokenizer(folder)


def test_figures_counted_by_hand(tmp_path):
    # "ab" is a ##b, "zz" is unknown: 5 words, 6 tokens; of the 4 ordinary tokens "b" does not occur.
    found = examine(tokenizer(tmp_path), ["ab a zz", "a ."])
    assert (found.num_documents, found.num_chars, found.num_bytes) == (2, 10, 10)
    assert (found.num_words, found.num_tokens, found.num_unknown) == (5, 6, 1)
    assert (found.num_ordinary, found.num_used) == (4, 3)
    assert found.unknown_rate == pytest.approx(1 / 6)
    assert found.pieces_per_word == pytest.approx(6 / 5)
    assert found.bytes_per_token == pytest.approx(10 / 6)
    assert found.share_used == pytest.approx(3 / 4)
    assert found.unknown_examples == [("zz", 1)]
    assert found.complaints == []


def test_every_chinese_character_is_a_word(tmp_path):
    found = examine(tokenizer(tmp_path, tokens=["北", "京", "a"]), ["北京a 𠀀"])
    assert found.num_words == 4


@pytest.mark.parametrize("before", [False, True])
def test_the_tokenizer_is_left_as_it_was(tmp_path, before):
    def broken():
        yield "a"
        raise OSError("gone")

    examined = tokenizer(tmp_path)
    examined.backend.encode_special_tokens = before
    with pytest.raises(OSError, match="gone"):
        examine(examined, broken())
    assert examined.backend.encode_special_tokens is before


def test_a_special_token_in_the_text_is_text(tmp_path):
    found = examine(tokenizer(tmp_path), ["a [MASK]"])
    assert found.num_unknown == 3  # "[", "MASK", "]"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"special": ("[PAD]", "[UNK]", "[CLS]", "[SEP]")}, "there is no mask token"),
        ({"special": ("[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]")}, "the padding id is 1, not 0"),
        ({"framed": False}, "does not put a text between its cls and sep"),
        ({"added": False}, "[MASK] written in a text is not read as the mask token"),
    ],
)
def test_each_complaint_has_its_cause(tmp_path, options, complaint):
    (found,) = check_special_tokens(tokenizer(tmp_path, **options))
    assert complaint in found


def test_two_roles_with_one_id_are_named(tmp_path):
    tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "[UNK]"}')
    complaints = check_special_tokens(load_tokenizer(tmp_path))
    assert any("two roles share one id" in complaint for complaint in complaints)
