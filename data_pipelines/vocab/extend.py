"""Adds tokens of another field to a tokenizer.

The new tokens are what byte-pair merging would make next: again and again, the most frequent pair of neighboring
subwords becomes one. Old ids stay the same, and every new token knows the old subwords that it replaces.
"""

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

from tokenizers import Tokenizer as Backend

from data_pipelines.vocab.tokenizer import Tokenizer

Pair = tuple[str, str]


class Extension(NamedTuple):
    tokenizer: Tokenizer
    old_pieces: dict[int, list[int]]
    """The old ids that each new id replaces."""
    pieces_per_word: float
    """Before the extension, over all words of the texts."""
    new_pieces_per_word: float


def extend_tokenizer(tokenizer: Tokenizer, texts: Iterable[str], num_new: int, min_frequency: int = 2) -> Extension:
    """Add up to `num_new` tokens; fewer where no pair of subwords occurs `min_frequency` times."""
    settings = json.loads(tokenizer.backend.to_str())
    model = settings["model"]
    if model["type"] not in ("WordPiece", "BPE"):
        raise ValueError(f"only WordPiece and BPE tokenizers can be extended, this one is {model['type']}")
    for added in settings["added_tokens"]:  # where they stand in the vocabulary, readers cannot number them anew
        model["vocab"].setdefault(added["content"], added["id"])
    words = count_words(tokenizer, texts)
    prefix = model.get("continuing_subword_prefix") or ""
    next_id = tokenizer.vocab_size
    old_pieces: dict[int, list[int]] = {}
    pieces = {token: [index] for token, index in model["vocab"].items()}
    merges = set(map(tuple, model.get("merges", ())))
    for pair, joined in next_merges(words, prefix, min_frequency):
        if len(old_pieces) == num_new:
            break
        pieces.setdefault(joined, pieces[pair[0]] + pieces[pair[1]])
        if joined not in model["vocab"]:
            model["vocab"][joined] = next_id + len(old_pieces)
            old_pieces[model["vocab"][joined]] = pieces[joined]
        if "merges" in model and pair not in merges:
            model["merges"].append(list(pair))
            merges.add(pair)
    backend = Backend.from_str(json.dumps(settings))
    extended = Tokenizer(backend, tokenizer.special, tokenizer.max_length, tokenizer.settings)
    return Extension(extended, old_pieces, _mean_pieces(words), _mean_pieces(_again(words, extended, prefix)))


def count_words(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[tuple[str, ...]]:
    """How often each word occurs, as a tuple of subwords; words with an unknown subword are left out."""
    unknown = {tokenizer.backend.id_to_token(index) for index in tokenizer.special.special_ids}
    words: Counter[tuple[str, ...]] = Counter()
    for text in texts:
        encoding = tokenizer.backend.encode(text, add_special_tokens=False)
        tokens, start = encoding.tokens, 0  # every reading of encoding.tokens makes the whole list anew
        for place, (before, after) in enumerate(pairwise([*encoding.word_ids, None]), 1):
            if before != after:
                word = tuple(tokens[start:place])
                start = place
                if not unknown.intersection(word):
                    words[word] += 1
    return words


def next_merges(words: Counter[tuple[str, ...]], prefix: str, min_frequency: int) -> Iterable[tuple[Pair, str]]:
    """The most frequent pair of neighboring subwords and what it becomes, again and again; ties go by the alphabet."""
    pieces = [list(word) for word in words]
    counts = list(words.values())
    frequency: Counter[Pair] = Counter()
    places: defaultdict[Pair, set[int]] = defaultdict(set)
    for index, word in enumerate(pieces):
        for pair in pairwise(word):
            frequency[pair] += counts[index]
            places[pair].add(index)
    heap = [(-count, pair) for pair, count in frequency.items()]
    heapq.heapify(heap)
    while heap:
        count, pair = heapq.heappop(heap)
        if -count != frequency[pair]:
            if frequency[pair] > 0:
                heapq.heappush(heap, (-frequency[pair], pair))
            continue
        if -count < min_frequency:
            return
        joined = pair[0] + pair[1].removeprefix(prefix)
        yield pair, joined
        changed: set[Pair] = set()
        for index in sorted(places.pop(pair)):
            before = pieces[index]
            after = _join(before, pair, joined)
            for old in pairwise(before):
                frequency[old] -= counts[index]
            for new in pairwise(after):
                frequency[new] += counts[index]
                places[new].add(index)
                changed.add(new)
            pieces[index] = after
        for new in sorted(changed):
            heapq.heappush(heap, (-frequency[new], new))


def _join(word: list[str], pair: Pair, joined: str) -> list[str]:
    result: list[str] = []
    for piece in word:
        if result and (result[-1], piece) == pair:
            result[-1] = joined
        else:
            result.append(piece)
    return result


def _again(words: Counter[tuple[str, ...]], tokenizer: Tokenizer, prefix: str) -> Counter[tuple[str, ...]]:
    """The same words in the subwords of another tokenizer."""
    model: Any = tokenizer.backend.model
    again: Counter[tuple[str, ...]] = Counter()
    for word, count in words.items():
        text = word[0] + "".join(piece.removeprefix(prefix) for piece in word[1:])
        again[tuple(token.value for token in model.tokenize(text))] += count
    return again


def _mean_pieces(words: Counter[tuple[str, ...]]) -> float:
    return sum(len(word) * count for word, count in words.items()) / max(words.total(), 1)
