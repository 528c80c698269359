"""Raw text to masked batches: corpus, tokenizer, token shards, sampling plan, masking collator."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_pipelines.batch import PackedBatch as PackedBatch
    from data_pipelines.collator import MaskingCollator as MaskingCollator
    from data_pipelines.plan import Plan as Plan
    from data_pipelines.shards import open_rows as open_rows
    from data_pipelines.tokenizer import load_tokenizer as load_tokenizer
    from data_pipelines.tokenizer import train_tokenizer as train_tokenizer
    from data_pipelines.words import starts_from_segments as starts_from_segments

_HOMES = {
    "MaskingCollator": "collator",
    "PackedBatch": "batch",
    "Plan": "plan",
    "load_tokenizer": "tokenizer",
    "open_rows": "shards",
    "starts_from_segments": "words",
    "train_tokenizer": "tokenizer",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Import on first use: who wants the collator alone does not wait for the rest."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
