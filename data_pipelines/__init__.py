"""Raw text to masked batches: corpus, tokenizer, shards, sampling plan, masking collator."""

from typing import TYPE_CHECKING

from data_pipelines.table import front_door

if TYPE_CHECKING:
    from data_pipelines.masks.batch import PackedBatch as PackedBatch
    from data_pipelines.masks.collator import MaskingCollator as MaskingCollator
    from data_pipelines.masks.plan import Plan as Plan
    from data_pipelines.rows.shards import open_rows as open_rows
    from data_pipelines.vocab.tokenizer import load_tokenizer as load_tokenizer
    from data_pipelines.vocab.tokenizer import train_tokenizer as train_tokenizer
    from data_pipelines.vocab.words import starts_from_segments as starts_from_segments

# Imported on first use: the collator alone imports little.
_HOMES = {
    "MaskingCollator": "data_pipelines.masks.collator",
    "PackedBatch": "data_pipelines.masks.batch",
    "Plan": "data_pipelines.masks.plan",
    "load_tokenizer": "data_pipelines.vocab.tokenizer",
    "open_rows": "data_pipelines.rows.shards",
    "starts_from_segments": "data_pipelines.vocab.words",
    "train_tokenizer": "data_pipelines.vocab.tokenizer",
}
__all__ = list(_HOMES)
__getattr__, __dir__ = front_door(__name__, _HOMES)
