"""What a tokenizer is trained on: a sample of the corpus, the same for any number of workers, or its words counted."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers

from data_pipelines import durable
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import corpus_bytes, find_sources, version_of
from data_pipelines.text.digest import text_hash
from data_pipelines.text.parts import WHOLE, Part, read_blocks
from data_pipelines.vocab.config import TokenizerConfig

_PART_CHARS = 1 << 14
_REPEATS = 1000


def untrained(config: TokenizerConfig) -> Backend:
    """A tokenizer without vocabulary, which already splits a text into words: BERT's kind, or RoBERTa's, which merges
    bytes, so that nothing is unknown."""
    if config.kind == "wordpiece":
        backend = Backend(models.WordPiece(unk_token="[UNK]"))
        backend.normalizer = normalizers.BertNormalizer(strip_accents=config.lowercase, lowercase=config.lowercase)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return backend
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return backend


def sample(
    corpus: CorpusConfig,
    config: TokenizerConfig,
    part: Part = WHOLE,
    report: Callable[[int, int | None], None] = lambda done, total: None,
) -> Iterator[str]:
    """Documents taken evenly from every block of the corpus, as many as the cap allows, with overlong words cut; of a
    part those in its own blocks. `report` gets the bytes so far and in all."""
    size, cap = corpus_bytes(corpus), config.sample_mb << 20
    share = min(1.0, cap / size) if size else 1.0
    expected = None if size is None else int(size * share / part.of)
    overlong = re.compile(rf"\S{{{config.max_word_chars}}}(?=\S)")
    done = 0
    for _, documents in read_blocks(corpus, part):
        due = 0.0
        for document in documents:
            text = document.text
            num_bytes = len(text.encode())
            due += num_bytes * share
            if due <= 0:
                continue
            due -= num_bytes
            done += num_bytes
            report(done, expected)
            # Most documents have no such word, and this check is faster than the regular expression.
            if max(map(len, text.split())) > config.max_word_chars:
                text = overlong.sub(r"\g<0> ", text)
            yield from _parts(text)
            if size is None and done >= cap:
                return


@dataclass
class Counted:
    """Words and characters of a sample, as often as they occur."""

    words: Counter[str] = field(default_factory=Counter)
    letters: Counter[str] = field(default_factory=Counter)
    """Normalized characters."""
    inside: set[str] = field(default_factory=set)
    """Characters that occur inside a word, after its first."""

    def add_words(self, texts: Iterable[str], backend: Backend) -> None:
        """Words are what the backend would learn from."""
        for text in texts:
            normalized = text if backend.normalizer is None else backend.normalizer.normalize_str(text)
            self.words.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normalized))

    def add_letters(self, texts: Iterable[str], backend: Backend) -> None:
        letters, inside = count_letters(texts, backend)
        self.letters.update(letters)
        self.inside |= inside

    def add(self, other: "Counted") -> None:
        self.words.update(other.words)
        self.letters.update(other.letters)
        self.inside |= other.inside

    def repeated_words(self) -> Iterator[str]:
        """Every word as often as it was counted, between spaces. No word holds one."""
        for word, count in self.words.items():
            for start in range(0, count, _REPEATS):
                yield " ".join([word] * min(_REPEATS, count - start))

    def save(self, path: Path) -> None:
        facts = {"words": self.words, "letters": self.letters, "inside": sorted(self.inside)}
        durable.publish_file(path, durable.json_line(facts).encode(), path.parent)

    @classmethod
    def load(cls, path: Path) -> "Counted":
        facts = json.loads(path.read_text(encoding="utf-8"))
        return cls(Counter(facts["words"]), Counter(facts["letters"]), set(facts["inside"]))


def counting_folder(corpus: CorpusConfig, config: TokenizerConfig, out: Path) -> Path:
    """Where workers leave the counts of their parts for the tokenizer `out`: beside it, another folder for every text
    and setting."""
    files = [(str(path), version_of(path)) for source in find_sources(corpus) for path in source.files]
    told = repr([corpus, config, files])
    return out.with_name(f".counting-{out.name}-{text_hash(told, 'counting'):016x}")


def count_part(
    corpus: CorpusConfig, config: TokenizerConfig, part: Part, report: Callable[[int, int | None], None]
) -> Counted:
    """The words of one part of the sample."""
    counted, backend = Counted(), untrained(config)
    counted.add_words(sample(corpus, config, part, report), backend)
    if config.kind == "wordpiece":
        counted.add_letters(sample(corpus, config, part), backend)
    return counted


def count_letters(texts: Iterable[str], backend: Backend) -> tuple[Counter[str], set[str]]:
    """How often each normalized character occurs, and which of them occur inside a word, after its first."""

    def joins(char: str) -> bool:
        """Whether the characters around it stay one word; so for characters that the normalizer drops."""
        return len(backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(f"a{char}a"))) == 1

    counts, inside = np.zeros((2, sys.maxunicode + 1), np.int64)
    known, joining = np.zeros((2, sys.maxunicode + 1), bool)
    for text in texts:
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        for code in np.unique(codes[~known[codes]]):
            known[code], joining[code] = True, joins(chr(code))
        joined = joining[codes]
        for total, some in ((counts, codes), (inside, codes[1:][joined[1:] & joined[:-1]])):
            here = np.bincount(some)
            total[: len(here)] += here
    letters, inner = Counter[str](), set[str]()
    for code in np.flatnonzero(counts):
        normalised = backend.normalizer.normalize_str(chr(code)).strip()
        inner.update(normalised if inside[code] else normalised[1:])
        for letter in normalised:
            letters[letter] += int(counts[code])
    return letters, inner


def _parts(text: str) -> Iterator[str]:
    """A text in parts, cut before white space: the library holds some hundred texts at a time."""
    start = 0
    while len(text) - start > _PART_CHARS:
        end = max(text.rfind(space, start + 1, start + _PART_CHARS) for space in (" ", "\n"))
        end = end if end > start else start + _PART_CHARS
        yield text[start:end]
        start = end
    yield text[start:]
