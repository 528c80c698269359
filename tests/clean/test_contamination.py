"""Every sentence of a test set of enough words is found, whatever its case, punctuation and line breaks."""

import random
import re

import pytest

from data_pipelines.clean.contamination import ForbiddenRuns
from data_pipelines.clean.words import words_of

TEST = "On the last day of the fair a tall stranger bought every red balloon that was left."


def test_a_planted_sentence_is_found_however_it_is_written():
    runs = ForbiddenRuns([TEST], 13)
    for planted in (TEST, TEST.upper(), TEST.replace(" ", " -- "), f"He said: “{TEST}” and left."):
        assert runs.remove_from(f"before\n{planted}\nafter") == ("before\nafter", [planted])


def test_letters_that_change_with_their_case_are_found():
    sentence = "Die größte Straße Weißenfels führt seit 1906 am Schloß vorbei, und ihr ﬁndiger Wirt heißt Groß."
    assert ForbiddenRuns([sentence], 13).remove_from(sentence.upper()) == ("", [sentence.upper()])


def test_a_run_that_crosses_lines_takes_all_of_them():
    first, second = TEST[:43], TEST[43:]
    assert ForbiddenRuns([TEST], 13).remove_from(f"a\n{first}\n{second}\nb")[0] == "a\nb"


def test_shorter_runs_and_other_orders_stay():
    runs = ForbiddenRuns([TEST], 13)
    short = " ".join(TEST.split()[:12])
    backwards = " ".join(reversed(TEST.split()))
    assert runs.remove_from(short) == (short, [])
    assert runs.remove_from(backwards) == (backwards, [])
    assert ForbiddenRuns([], 13).remove_from(TEST) == (TEST, [])


def test_of_many_sentences_each_is_found():
    generator = random.Random(0)
    words = [f"w{number}" for number in range(500)]
    test_set = [" ".join(generator.choices(words, k=generator.randint(13, 40))) for _ in range(200)]
    other = [" ".join(generator.choices(words, k=30)) for _ in range(200)]
    runs = ForbiddenRuns(test_set, 13)
    mixed = [line for pair in zip(test_set, other, strict=True) for line in pair]
    kept, removed = runs.remove_from("\n".join(mixed))
    assert kept.split("\n") == other
    assert removed == test_set


SEPARATORS = (" ", "  ", ", ", " -- ", "; ", "… ", "\n", " (", '" ')


def rewritten(sentence, generator):
    """With another case, other punctuation between the words, and the punctuation within words gone or a space."""
    words = sentence.split()
    within = generator.choice(["", " ", "’", "‐"])
    words = [re.sub(r"['-]", within, word) for word in words]
    cased = generator.choice([str.upper, str.title, str.swapcase, str.lower])(
        "".join(word + generator.choice(SEPARATORS) for word in words)
    )
    return f"{generator.choice('“([*')}{cased}{generator.choice('?!.;')}"


@pytest.mark.parametrize("seed", range(4))
def test_every_planted_sentence_of_13_words_is_found_in_whatever_case_and_punctuation(seed):
    generator = random.Random(seed)
    words = [
        f"{stem}{end}" for stem in ("har", "bour", "lan", "tern", "mil") for end in ("s", "ing", "'s", "-old", "ed")
    ]
    words = [f"{word}{number}" if word.isalpha() else word for word in words for number in range(20)]
    test_set = [" ".join(generator.choices(words, k=generator.randint(13, 30))).capitalize() + "." for _ in range(100)]
    others = [" ".join(generator.choices(words, k=30)) for _ in range(100)]
    runs = ForbiddenRuns(test_set, 13)
    for sentence, other in zip(test_set, others, strict=True):
        kept, _ = runs.remove_from(f"{other}\n{rewritten(sentence, generator)}\n{other}")
        assert words_of(kept) == 2 * words_of(other)
