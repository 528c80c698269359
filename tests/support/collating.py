"""What the tests of the collator share: small vocabularies, tokenizers and examples."""

import numpy as np
import torch
from reference import reference_transformers
from tokenizers import Tokenizer, models, pre_tokenizers

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PLAIN = {"mask_id": 4, "vocab_size": 100, "special_ids": range(5), "pad_id": 0}
LONG = [{"input_ids": [2, *([7, 8, 9, 10] * 25), 3]} for _ in range(200)]


def backend() -> Tokenizer:
    words = [f"{prefix}{a}{b}" for prefix in ("", "##") for a in "abcdef" for b in "ghijkl"]
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, "[unused1]", *words])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def transformers_tokenizer():
    transformers = reference_transformers()
    names = {f"{name[1:-1].lower()}_token": name for name in SPECIAL}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend(), **names)


def examples(count=24, seed=0, longest=40, with_ids=True):
    rng = np.random.default_rng(seed)
    rows = [np.concatenate([[2], rng.integers(6, 70, rng.integers(1, longest)), [3]]) for _ in range(count)]
    return [{"input_ids": row.tolist()} | ({"row_id": i, "epoch": 3} if with_ids else {}) for i, row in enumerate(rows)]


def restored(batch):
    return torch.where(batch["labels"] == -100, batch["input_ids"], batch["labels"])
