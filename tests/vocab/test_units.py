"""Tokenizers of characters and bytes: every text comes back, and no text is taken for a special token."""

import pytest

from data_pipelines.vocab.tokenizer import load_tokenizer
from data_pipelines.vocab.units import has_units, unit_tokenizer

TEXTS = ["Häuser gehen", "日本  x"]


@pytest.mark.parametrize("kind", ["character", "byte"])
def test_every_unit_is_a_token_and_texts_come_back(kind, tmp_path):
    unit_tokenizer(kind, TEXTS, ["<PL>"]).save(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    backend = tokenizer.backend
    backend.encode_special_tokens = True
    for text in TEXTS:
        ids = backend.encode(text, add_special_tokens=False).ids
        assert len(ids) == len(text if kind == "character" else text.encode())
        assert backend.decode(ids) == text
    plural = backend.token_to_id("<PL>")
    assert plural in tokenizer.special.special_ids
    assert plural not in backend.encode("a <PL> b").ids
    assert has_units(tokenizer, kind)
    assert not has_units(tokenizer, "byte" if kind == "character" else "character")


def test_an_unknown_character_is_one_token():
    tokenizer = unit_tokenizer("character", ["ab"])
    unknown = tokenizer.special.unk_id
    assert tokenizer.backend.encode("axxb", add_special_tokens=False).ids == [5, unknown, unknown, 6]
