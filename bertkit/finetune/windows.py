"""Words to rows of subwords; long sentences are cut into overlapping windows, and no word is ever lost.

The same rows serve training, evaluation and prediction. A word is answered in exactly one of them, the one where it
has most context.
"""

# P subwords of a sentence, W its words (in the encoder: of all sentences), S sentences, L subwords of a row, M answers,
# K labels

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, groupby, pairwise
from typing import Any, NamedTuple

import numpy as np

from bertkit.model.config import EncoderConfig
from data_pipelines.labels.sentence import Sentence
from data_pipelines.vocab.tokenizer import Tokenizer

_MAX_KNOWN, _LONGEST_KNOWN = 1 << 17, 64
"""Words that an encoder remembers, at the beginning of sentences and inside, and the characters of the longest."""


class Encoded(NamedTuple):
    """A sentence in subwords."""

    ids_P: np.ndarray
    word_P: np.ndarray
    """The word each subword belongs to; every word has at least one."""
    first_W: np.ndarray
    """Each word's first subword."""


class Row(NamedTuple):
    """What the encoder reads at once: a sentence or a window of one, between its special tokens."""

    ids_L: np.ndarray
    index_M: np.ndarray
    """Where in the row answers are read, ascending."""
    word_M: np.ndarray
    """The word that each of them answers for; several answers for one word count as their mean."""
    sentence: int
    """Whose row this is, as a place in the list of sentences; of a document, the place of its first."""
    target_M: np.ndarray | None = None
    """The right answers, in training: one for each word that is answered for."""
    type_L: np.ndarray | None = None
    """Which of two texts each subword is of, 0 or 1, where a task reads pairs."""
    lengths: tuple[int, ...] | None = None
    """How long its windows are, where it holds several that answer together."""
    position_L: np.ndarray | None = None
    """Positions, where they do not simply count."""
    prefix: int | None = None
    """Of a row that is written left to right: its first tokens, which all of it sees; later ones only what came before
    them."""
    room: int = 0
    """Tokens that may be written after it."""

    @property
    def num_windows(self) -> int:
        return len(self.lengths or (0,))


LONGEST_DOCUMENT = 256
"""Sentences of a document that are read together, counted from its first: a file of any length is read in parts."""
MAX_TOKENS = 4096
"""Subwords computed at once in prediction: they fit the caches of a CPU, and a GPU does not mind."""

Ask = Callable[[Sequence[Row]], Iterator[tuple[list[int], Any]]]
"""Computes rows in batches of equal length: the indices of a batch's rows, and the logits (M, K) of their answers in
that order, a tensor of torch or an array."""


class RowForm(NamedTuple):
    """What rows are like: the special tokens at their ends, and the most subwords with them."""

    before: np.ndarray
    after: np.ndarray
    max_length: int
    all_subwords: bool = False
    """Whether all subwords of a word answer, not just the first."""
    stride: int = 0
    """Subwords from one window to the next; 0 for half a window."""
    between: np.ndarray = np.zeros(0, np.int64)
    """The ids between two texts."""
    has_types: bool = False
    """Whether the encoder distinguishes the second text from the first."""
    is_rotary: bool = False
    """Whether positions only tell how far tokens are from each other, however far that is."""
    context: bool = False
    """Whether the sentences of a document are read together."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, config: EncoderConfig, max_length: int, stride: int = 0) -> "RowForm":
        special = tokenizer.special
        ends = ([] if index is None else [index] for index in (special.cls_id, special.sep_id))
        before, after = (np.array(end, np.int64) for end in ends)
        return cls(
            before=before,
            after=after,
            max_length=min(max_length, config.max_position_embeddings),
            stride=stride,
            between=_between(tokenizer, after),
            has_types=config.has_token_types,
            is_rotary=config.is_rotary,
        )

    @property
    def room(self) -> int:
        return self.max_length - len(self.before) - len(self.after)

    @property
    def step(self) -> int:
        """Subwords from one window to the next. Further apart they would leave out what lies between them."""
        return min(self.stride, self.room) or max(self.room // 2, 1)

    def row_ids(self, ids: np.ndarray) -> np.ndarray:
        return np.concatenate((self.before, ids, self.after))


def _between(tokenizer: Tokenizer, usual: np.ndarray) -> np.ndarray:
    """The special tokens that a tokenizer puts between two texts: BERT one, RoBERTa two."""
    encoding = tokenizer.backend.encode("a", "b")
    texts = encoding.sequence_ids
    if None not in texts or not {0, 1} <= set(texts):
        return usual
    return np.array(encoding.ids[texts.index(1) - texts[: texts.index(1)][::-1].index(0) : texts.index(1)], np.int64)


class WordEncoder:
    """Turns words into subwords as the encoder saw them in running text: every word but the first after a space.

    Tokenizers never join what a space separates, so each word is encoded once and then remembered.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._backend = tokenizer.backend
        # "[SEP]" in somebody's text is five characters, not the end of the sentence.
        self._backend.encode_special_tokens = True
        special = tokenizer.special
        # A word that the tokenizer makes nothing of (empty, zero-width) is an unknown one: it still gets a tag.
        self.stand_in = next(
            [index] for index in (special.unk_id, special.mask_id, special.sep_id, 0) if index is not None
        )
        self._first: dict[str, list[int]] = {}
        self._later: dict[str, list[int]] = {}

    def __call__(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        """All sentences in a few operations on arrays; the results are views of these."""
        subwords = self._subwords(sentences)
        length_W = np.fromiter(map(len, subwords), np.int64, len(subwords))
        ids_P = np.fromiter(chain.from_iterable(subwords), np.int64, int(length_W.sum()))
        first_W = np.cumsum(length_W) - length_W
        # Where the words and the subwords of each sentence begin, and then index and word counted from there.
        words_S = np.fromiter(map(len, sentences), np.int64, len(sentences))
        word_S = np.append(0, np.cumsum(words_S))
        subword_S = np.append(first_W, len(ids_P))[word_S]
        word_P = np.repeat(np.arange(len(subwords)) - np.repeat(word_S[:-1], words_S), length_W)
        first_W -= np.repeat(subword_S[:-1], words_S)
        borders = zip(pairwise(word_S.tolist()), pairwise(subword_S.tolist()), strict=True)
        return [Encoded(ids_P[at:to], word_P[at:to], first_W[word:end]) for (word, end), (at, to) in borders]

    def _subwords(self, sentences: Sequence[Sequence[str]]) -> list[list[int]]:
        """Those of every word of all sentences, one word after the other."""
        first, later = self._first, self._later
        new_first = list({words[0] for words in sentences if words} - first.keys())
        new_later = list(set(chain.from_iterable(words[1:] for words in sentences)) - later.keys())
        encodings = self._backend.encode_batch_fast(
            [*new_first, *(f" {word}" for word in new_later)], add_special_tokens=False
        )
        found = iter([encoding.ids or self.stand_in for encoding in encodings])
        first.update(zip(new_first, found, strict=False))
        later.update(zip(new_later, found, strict=True))
        subwords: list[list[int]] = []
        for words in sentences:
            if words:
                subwords.append(first[words[0]])
                subwords.extend(map(later.__getitem__, words[1:]))
        self._forget(new_first, new_later)
        return subwords

    def _forget(self, new_first: list[str], new_later: list[str]) -> None:
        """Bounds the memory: very long words, which hardly come again, are dropped, and all words once it is full."""
        for known, new in ((self._first, new_first), (self._later, new_later)):
            for word in new:
                if len(word) > _LONGEST_KNOWN:
                    del known[word]
            if len(known) > _MAX_KNOWN:
                known.clear()


def word_rows(sentences: Sequence[Sentence], encode: WordEncoder, form: RowForm) -> list[Row]:
    """Rows that answer for each word. Those of a document count its words from its first sentence on."""
    together = documents(sentences, form)
    encoded = encode([joined(sentences[each.start : each.stop]).words for each in together])
    return [
        row for each, one in zip(together, encoded, strict=True) for row in _windows_of_words(one, each.start, form)
    ]


def documents(sentences: Sequence[Sentence], form: RowForm) -> list[range]:
    """Which sentences are read together: those of a document, of a very long one in parts; without context each by
    itself."""
    if not form.context:
        return [range(index, index + 1) for index in range(len(sentences))]
    starts: list[int] = []
    for index, sentence in enumerate(sentences):
        if not (starts and sentence.follows and index - starts[-1] < LONGEST_DOCUMENT):
            starts.append(index)
    return [range(*ends) for ends in pairwise([*starts, len(sentences)])]


def joined(sentences: Sequence[Sentence]) -> Sentence:
    """All words of sentences, with their tags, as of one."""
    first, *others = sentences
    if not others:
        return first
    words = [word for sentence in sentences for word in sentence.words]
    tags = None if first.tags is None else [tag for sentence in sentences for tag in sentence.tags or ()]
    return Sentence(words, tags, first.source, [line for sentence in sentences for line in sentence.lines])


def text_rows(sentences: Sequence[Sentence], encode: WordEncoder, form: RowForm) -> list[Row]:
    """Rows that answer for a whole text at their first token, one for each window."""
    return [
        Row(form.row_ids(one.ids_P[start : start + form.room]), np.zeros(1, int), np.zeros(1, int), index)
        for index, one in enumerate(encode([sentence.words for sentence in sentences]))
        for start in window_starts(len(one.ids_P), form)
    ]


def pair_rows(sentences: Sequence[Sentence], encode: WordEncoder, form: RowForm) -> list[Row]:
    """A row for each pair of texts, which answers at its first token. What is too long is cut at the end of the longer
    text."""
    encoded = encode([[text] for sentence in sentences for text in sentence.words])
    room = form.room - len(form.between)
    rows = []
    for index in range(len(sentences)):
        first, second = (one.ids_P for one in encoded[2 * index : 2 * index + 2])
        second = second[: max(room - len(first), room // 2)]
        parts = [form.before, first[: room - len(second)], form.between, second, form.after]
        type_L = np.repeat([0, 0, 0, 1, 1], list(map(len, parts))) if form.has_types else None
        rows.append(Row(np.concatenate(parts), np.zeros(1, int), np.zeros(1, int), index, type_L=type_L))
    return rows


def joined_rows(rows: Sequence[Row]) -> list[Row]:
    """One row for each sentence, which holds its windows one after the other."""
    return [_joined(list(windows)) for _, windows in groupby(rows, lambda row: row.sentence)]


def some_windows(row: Row, chosen: Sequence[int]) -> Row:
    """The row with these of its windows, each of which answers once."""
    borders = np.cumsum([0, *(row.lengths or (len(row.ids_L),))])
    windows = [
        row._replace(
            ids_L=row.ids_L[borders[i] : borders[i + 1]],
            index_M=row.index_M[i : i + 1] - borders[i],
            word_M=row.word_M[i : i + 1],
            lengths=None,
        )
        for i in chosen
    ]
    return _joined(windows)


def _joined(windows: Sequence[Row]) -> Row:
    if len(windows) == 1:
        return windows[0]
    lengths = tuple(len(row.ids_L) for row in windows)
    starts = np.cumsum([0, *lengths[:-1]])
    return windows[0]._replace(
        ids_L=np.concatenate([row.ids_L for row in windows]),
        index_M=np.concatenate([row.index_M + start for row, start in zip(windows, starts, strict=True)]),
        word_M=np.concatenate([row.word_M for row in windows]),
        lengths=lengths,
    )


def text_target(row: Row, text: Sentence, number: Mapping[str, int], settings: Mapping[str, Any]) -> np.ndarray:
    """The label of a text."""
    assert text.tags is not None
    return np.array([number[text.tags[0]]], np.int64)


def label_targets(row: Row, sentence: Sentence, number: Mapping[str, int], settings: Mapping[str, Any]) -> np.ndarray:
    """The labels of the words that a row answers for."""
    assert sentence.tags is not None
    return np.array([number[sentence.tags[word]] for word in dict.fromkeys(row.word_M.tolist())], np.int64)


def _windows_of_words(encoded: Encoded, sentence: int, form: RowForm) -> Iterator[Row]:
    size, room, before = len(encoded.ids_P), form.room, len(form.before)
    asked = np.arange(size) if form.all_subwords else encoded.first_W
    if 0 < size <= room:
        word_M = encoded.word_P if form.all_subwords else np.arange(len(asked))
        yield Row(form.row_ids(encoded.ids_P), asked + before, word_M, sentence)
    elif size:
        starts = window_starts(size, form)
        # A word's subwords answer in the window where the first of them has most context, as far as they lie inside.
        owner_P = owners(encoded.first_W, starts, room, size)[encoded.word_P]
        for index, start in enumerate(starts):
            here = asked[(owner_P[asked] == index) & (asked < start + room)]
            if len(here):
                ids_L = form.row_ids(encoded.ids_P[start : start + room])
                yield Row(ids_L, here - start + before, encoded.word_P[here], sentence)


def window_starts(size: int, form: RowForm) -> np.ndarray:
    """Where windows begin: each a stride after the one before it, the last so that it ends with the text."""
    room = form.room
    if size <= room:
        return np.zeros(1, np.int64)
    return np.append(np.arange(0, size - room, form.step), size - room)


def owners(first_W: np.ndarray, starts: np.ndarray, room: int, size: int) -> np.ndarray:
    """The window that answers for each word: the one with most subwords on the word's poorer side."""
    best_W = np.full(len(first_W), -1, np.int64)
    owner_W = np.zeros(len(first_W), np.int64)
    for index, start in enumerate(starts):
        end = start + room
        left = np.where(start == 0, size, first_W - start)  # nothing is missing before the first subword of all
        right = np.where(end >= size, size, end - 1 - first_W)
        context_W = np.where((first_W >= start) & (first_W < end), np.minimum(left, right), -1)
        better = context_W > best_W
        owner_W[better], best_W[better] = index, context_W[better]
    return owner_W


def by_length(rows: Sequence[Row], max_tokens: int, max_padding: float | None = None) -> Iterator[list[int]]:
    """Indices of rows, short ones first, as many at once as `max_tokens` subwords allow; where rows are padded to the
    longest, as many as keep the padding below this share of their subwords."""
    held: list[int] = []
    size = 0
    for index in np.argsort([len(row.ids_L) for row in rows], kind="stable").tolist():
        length = len(rows[index].ids_L)
        real, padded = size + length, (len(held) + 1) * length
        if max_padding is None:
            is_full = real > max_tokens
        else:
            is_full = padded > max_tokens or padded - real > max_padding * real
        if held and is_full:
            yield held
            held, real = [], length
        held.append(index)
        size = real
    if held:
        yield held
