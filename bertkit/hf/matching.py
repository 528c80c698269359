"""A model, its tokenizer and its use enter; where they do not match, both sides are named."""

from pathlib import Path
from typing import Any

from bertkit.model.heads import HEADS


def check_head(model: Any, folder: str | Path, *kinds: str, remedy: str = "") -> None:
    """Refuse a model whose head is of no such kind; "bare" stands for an encoder without one."""
    if model.kind not in kinds:
        needed = " or ".join("an encoder without a head" if k == "bare" else f"a {HEADS[k].__name__}" for k in kinds)
        raise ValueError(
            f"{folder} holds a {type(model).__name__}, but {needed} is needed" + (f"; {remedy}" if remedy else "")
        )


def check_vocabulary(tokenizer: Any, vocab_size: int, folder: str | Path) -> None:
    """Refuse a tokenizer that has more tokens than its model knows."""
    if tokenizer.vocab_size > vocab_size:
        raise ValueError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} tokens, but the model knows {vocab_size}; "
            "use the tokenizer that the model was trained with"
        )
