"""Settings of cleaning: what makes a text not worth training on, every threshold a key."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from data_pipelines.bounds import Range, check_bounds

Share = Annotated[float, Range("[0, 1]")]
Private = Literal["email", "phone", "card"]


@dataclass(frozen=True, kw_only=True)
class CleanConfig:
    unit: Literal["documents", "paragraphs"] = "documents"
    """What is compared with what came before it: whole documents, or each paragraph (line) by itself."""

    exact: bool = True
    """Drop what repeats an earlier one word for word; case, spaces and punctuation do not count."""

    near: bool = True
    """Drop what nearly repeats an earlier one."""

    near_ngram: Annotated[int, Range("[1, 20]")] = 2
    """Words in each n-gram by which two texts are compared."""

    near_threshold: Annotated[float, Range("(0, 1]")] = 0.33
    """Jaccard similarity of the n-grams of two texts from which the later one is a near copy. 0.33 of pairs of words
    finds copies in which one word in five was changed."""

    min_words: Annotated[int, Range("[0, inf)")] = 50
    """Fewest words of a document; an ideograph counts as one."""

    max_words: Annotated[int, Range("[1, inf)")] = 100_000
    """Most words of a document."""

    min_word_length: Annotated[float, Range("[0, inf)")] = 3.0
    """Smallest mean length of words that are not ideographs."""

    max_word_length: Annotated[float, Range("(0, inf)")] = 10.0
    """Largest mean length of words that are not ideographs."""

    min_alphabetic: Share = 0.8
    """Smallest share of words with a letter in them, of all that spaces separate."""

    max_symbols: Annotated[float, Range("[0, inf)")] = 0.1
    """Most '#' and ellipses, as a share of the words."""

    max_bullets: Share = 0.9
    """Largest share of lines that begin with a bullet."""

    max_ellipses: Share = 0.3
    """Largest share of lines that end with an ellipsis."""

    max_repeated_lines: Share = 0.3
    """Largest share of lines that repeat an earlier line of the document."""

    max_top_bigram: Share = 0.2
    """Largest share of a document's words that one pair of neighbours may cover."""

    max_repeated_5grams: Share = 0.3
    """Largest share of a document's words that lie in a run of five words that it repeats."""

    forbidden: list[str] = field(default_factory=lambda: ["lorem ipsum"])
    """Phrases that no kept document may contain; case does not count."""

    languages: list[str] = field(default_factory=list)
    """Languages to keep, by their ISO codes such as en or zh; documents in other languages are dropped. None: all are
    kept. Needs the package py3langid (extra languages)."""

    against: list[str] = field(default_factory=list)
    """Files with text that must not be trained on, such as test sets: lines that share a run of words with them are
    removed. They are read as the corpus is."""

    against_ngram: Annotated[int, Range("[1, 100]")] = 13
    """Words in such a run; case and punctuation do not count."""

    private: list[Private] = field(default_factory=list)
    """Private data to replace by its name in brackets: email, phone, card."""

    def __post_init__(self):
        check_bounds(self)
        if self.min_words > self.max_words:
            raise ValueError(f"min_words must not exceed max_words, got {self.min_words} and {self.max_words}")
        if self.min_word_length > self.max_word_length:
            raise ValueError(
                f"min_word_length must not exceed max_word_length, got {self.min_word_length} and "
                f"{self.max_word_length}"
            )
