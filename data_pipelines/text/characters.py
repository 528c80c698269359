"""Which characters are Chinese, and which are of a script that writes no spaces between words."""

IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
"""The blocks of CJK unified and compatibility ideographs, as a regular expression's character class holds them."""
KANA = "\u3040-\u30ff"
"""Hiragana and katakana, likewise."""
UNSPACED = f"{IDEOGRAPHS}{KANA}\u3005-\u3007\uff66-\uff9f\u0e00-\u109f\u1780-\u17ff"
"""All scripts that write no spaces between words, likewise: Chinese, Japanese, Thai, Lao, Tibetan, Burmese, Khmer."""

_RANGES = [(IDEOGRAPHS[at], IDEOGRAPHS[at + 2]) for at in range(0, len(IDEOGRAPHS), 3)]


def is_ideograph(character: str) -> bool:
    """Whether it is a Chinese character, as BERT's own tokenizer counts them (kana and hangul are none)."""
    return any(first <= character <= last for first, last in _RANGES)
