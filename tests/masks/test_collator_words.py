"""Where the collator takes the words of whole-word masking from."""

import numpy as np
from collating import PLAIN, SPECIAL, backend
from reference import reference_transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from data_pipelines.masks.collator import MaskingCollator


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
    transformers = reference_transformers()
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
    transformers = reference_transformers()
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
    words = collator.word_starts(np.array(encoding.ids))
    exact = [i == 0 or encoding.word_ids[i] != encoding.word_ids[i - 1] for i in range(len(encoding.ids))]
    assert words.tolist() == exact
