"""Generated text that looks like language to a tokenizer, the same on every machine: what the benches run on."""

import numpy as np

_ONSETS = [*"bcdfghjklmnprstvw", "br", "cl", "dr", "fl", "gr", "pl", "pr", "sh", "sl", "st", "th", "tr"]
_VOWELS = ["a", "e", "i", "o", "u", "ai", "ea", "ee", "ia", "io", "ou"]
_CODAS = ["", "", "l", "m", "n", "r", "s", "t", "nd", "ng", "rt", "st"]


def generated_documents(num_chars: int, seed: int = 0, num_words: int = 20_000) -> list[str]:
    """Documents of a few hundred words each, the words drawn by Zipf's law, with punctuation."""
    rng = np.random.default_rng(seed)
    words = np.array(_words(num_words, rng))
    weights = 1.0 / np.arange(3, num_words + 3)
    weights /= weights.sum()
    documents, size = [], 0
    while size < num_chars:
        drawn = words[rng.choice(num_words, int(rng.integers(50, 600)), p=weights)].tolist()
        for place in range(int(rng.integers(6, 14)), len(drawn), 12):
            drawn[place] += rng.choice([",", ".", ".", ";"])
        documents.append(" ".join(drawn).capitalize() + ".")
        size += len(documents[-1]) + 2
    return documents


def _words(count: int, rng: np.random.Generator) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        syllables = int(rng.integers(1, 5))
        found["".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(syllables))] = None
    return sorted(found, key=len)
