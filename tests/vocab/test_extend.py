"""New tokens are those the texts would merge next; old ids stay; pieces per word go down."""

from collections import Counter

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, trainers

from data_pipelines.vocab.extend import count_words, extend_tokenizer, next_merges
from data_pipelines.vocab.tokenizer import Tokenizer, _special_ids

OLD = ["the cat sat on the mat", "a cat and a dog sat"] * 20
NEW = ["the transistor and the resistor", "transistors, resistors: the transistor"] * 20
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def wordpiece() -> Tokenizer:
    letters = "abcdefghijklmnopqrstuvwxyz,:."
    tokens = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), "the", "cat", "sat", "and", "##at", "on"]
    backend = Backend(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return Tokenizer(backend, _special_ids(backend, {}))


def bpe() -> Tokenizer:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(OLD, trainer)
    return Tokenizer(backend, _special_ids(backend, {}))


def test_the_most_frequent_pair_is_merged_first_and_then_counts_as_one():
    words = Counter({("a", "##b", "##c"): 3, ("a", "##b"): 2, ("x", "##c"): 4})
    merges = list(next_merges(words, "##", min_frequency=2))
    assert merges == [(("a", "##b"), "ab"), (("x", "##c"), "xc"), (("ab", "##c"), "abc")]


def test_a_pair_inside_a_run_of_one_letter_is_counted_as_it_is_merged():
    merges = list(next_merges(Counter({("a", "a", "a", "a"): 5}), "", min_frequency=2))
    assert merges == [(("a", "a"), "aa"), (("aa", "aa"), "aaaa")]


@pytest.mark.parametrize("make", [wordpiece, bpe])
def test_new_tokens_shorten_the_new_texts_and_keep_every_old_id(make):
    old = make()
    extension = extend_tokenizer(old, NEW, num_new=9)
    vocab = extension.tokenizer.backend.get_vocab()
    assert vocab.items() >= old.backend.get_vocab().items()
    assert sorted(extension.old_pieces) == list(range(old.vocab_size, old.vocab_size + 9))
    assert extension.new_pieces_per_word < extension.pieces_per_word - 1
    assert len(extension.tokenizer.backend.encode(NEW[0]).ids) < len(old.backend.encode(NEW[0]).ids)


@pytest.mark.parametrize("make", [wordpiece, bpe])
def test_the_old_pieces_of_a_new_token_spell_it(make):
    old = make()
    extension = extend_tokenizer(old, NEW, num_new=9)
    name = extension.tokenizer.backend.id_to_token
    for index, pieces in extension.old_pieces.items():
        assert len(pieces) > 1
        first, *rest = map(name, pieces)
        assert name(index) == first + "".join(piece.removeprefix("##") for piece in rest)
        assert max(pieces) < old.vocab_size


def test_texts_that_hold_nothing_new_add_nothing():
    extension = extend_tokenizer(wordpiece(), ["the cat sat"] * 3, num_new=10)
    assert extension.old_pieces == {}
    assert extension.new_pieces_per_word == extension.pieces_per_word


def test_a_long_document_is_read_once():
    """The library makes the list of tokens anew at every reading; inside a loop that is quadratic."""
    real, readings = wordpiece(), []

    class Encoding:
        word_ids = real.backend.encode(NEW[0]).word_ids

        @property
        def tokens(self):
            readings.append(1)
            return real.backend.encode(NEW[0]).tokens

    class Once:
        id_to_token = real.backend.id_to_token
        encode = staticmethod(lambda text, add_special_tokens: Encoding())

    once = Tokenizer.__new__(Tokenizer)
    once.backend, once.special = Once(), real.special
    assert count_words(once, NEW[:1]) == count_words(real, NEW[:1])
    assert len(readings) == 1
