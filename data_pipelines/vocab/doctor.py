"""Examines how well a tokenizer fits a text."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np

from data_pipelines.text.characters import IDEOGRAPHS
from data_pipelines.vocab.tokenizer import Tokenizer

_WORD = re.compile(rf"[{IDEOGRAPHS}]|[^\W{IDEOGRAPHS}]+|[^\w\s]")
_BATCH = 256


@dataclass
class Diagnosis:
    """What was counted."""

    num_documents: int = 0
    num_chars: int = 0
    num_bytes: int = 0
    num_words: int = 0
    """Runs of letters and digits, single Chinese characters and other signs. Every tokenizer has the same, so that
    figures compare."""
    num_tokens: int = 0
    num_unknown: int = 0
    num_ordinary: int = 0
    """Tokens of the vocabulary that are not special."""
    num_used: int = 0
    """Ordinary tokens that occurred."""
    unknown_examples: list[tuple[str, int]] = field(default_factory=list)
    """The most frequent strings that became the unknown token."""
    complaints: list[str] = field(default_factory=list)
    """What is wrong with the special tokens."""

    @property
    def unknown_rate(self) -> float:
        return self.num_unknown / max(self.num_tokens, 1)

    @property
    def pieces_per_word(self) -> float:
        return self.num_tokens / max(self.num_words, 1)

    @property
    def bytes_per_token(self) -> float:
        return self.num_bytes / max(self.num_tokens, 1)

    @property
    def share_used(self) -> float:
        return self.num_used / max(self.num_ordinary, 1)

    def facts(self) -> dict[str, Any]:
        """All of it, for programs."""
        shares = ("unknown_rate", "pieces_per_word", "bytes_per_token", "share_used")
        return asdict(self) | {name: getattr(self, name) for name in shares}


def examine(tokenizer: Tokenizer, texts: Iterable[str]) -> Diagnosis:
    """Encode the texts and count, in constant memory."""
    backend, unknown = tokenizer.backend, tokenizer.special.unk_id
    special = list(tokenizer.special.special_ids)
    num_ordinary = len(set(backend.get_vocab().values()).difference(special))
    found = Diagnosis(num_ordinary=num_ordinary, complaints=check_special_tokens(tokenizer))
    used_V = np.zeros(tokenizer.vocab_size, bool)
    examples: Counter[str] = Counter()
    before = backend.encode_special_tokens
    backend.encode_special_tokens = True  # "[MASK]" in the text is text
    texts = iter(texts)
    try:
        while batch := list(islice(texts, _BATCH)):
            encodings = backend.encode_batch(batch, add_special_tokens=False)
            for text, encoding in zip(batch, encodings, strict=True):
                found.num_documents += 1
                found.num_chars += len(text)
                found.num_bytes += len(text.encode("utf-8", "replace"))
                found.num_words += sum(1 for _ in _WORD.finditer(text))
                found.num_tokens += len(encoding)
                if unknown is not None and unknown in encoding.ids:
                    missed = [
                        place for place, index in zip(encoding.offsets, encoding.ids, strict=True) if index == unknown
                    ]
                    found.num_unknown += len(missed)
                    examples.update(text[start:end] for start, end in missed)
            ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int64)
            used_V[ids] = True
    finally:
        backend.encode_special_tokens = before
    used_V[special] = False
    found.num_used = int(used_V.sum())
    found.unknown_examples = examples.most_common(10)
    return found


def check_special_tokens(tokenizer: Tokenizer) -> list[str]:
    """What is wrong for masked-language modelling, one sentence each."""
    special, backend = tokenizer.special, tokenizer.backend
    roles = {role: getattr(special, f"{role}_id") for role in ("pad", "unk", "cls", "sep", "mask")}
    complaints = [
        f"there is no {role} token" for role, index in roles.items() if index is None and role not in ("unk", "pad")
    ]
    present = [index for index in roles.values() if index is not None]
    if len(set(present)) < len(present):
        complaints.append(f"two roles share one id: {roles}")
    if roles["pad"] not in (0, None):
        complaints.append(f"the padding id is {roles['pad']}, not 0 (allowed, but some code assumes 0)")
    framed = backend.encode("a").ids
    if roles["cls"] is not None and (framed[:1] != [roles["cls"]] or framed[-1:] != [roles["sep"]]):
        complaints.append("the tokenizer does not put a text between its cls and sep tokens")
    if roles["mask"] is not None:
        name = backend.id_to_token(roles["mask"])
        if roles["mask"] not in backend.encode(f"a {name} b").ids:
            complaints.append(f"{name} written in a text is not read as the mask token")
    return complaints
