"""Raw text to masked batches: corpus, tokenizer, shards, sampling plan, masking collator."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data_pipelines.masks.batch import PackedBatch as PackedBatch
    from data_pipelines.masks.collator import MaskingCollator as MaskingCollator
    from data_pipelines.masks.plan import Plan as Plan
    from data_pipelines.rows.shards import open_rows as open_rows
    from data_pipelines.vocab.tokenizer import load_tokenizer as load_tokenizer
    from data_pipelines.vocab.tokenizer import train_tokenizer as train_tokenizer
    from data_pipelines.vocab.words import starts_from_segments as starts_from_segments

_HOMES = {
    "MaskingCollator": "masks.collator",
    "PackedBatch": "masks.batch",
    "Plan": "masks.plan",
    "load_tokenizer": "vocab.tokenizer",
    "open_rows": "rows.shards",
    "starts_from_segments": "vocab.words",
    "train_tokenizer": "vocab.tokenizer",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Import on first use: the collator alone imports little."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
