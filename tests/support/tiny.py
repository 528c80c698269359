"""The smallest encoders that have every part, and a change to the config.json of a folder."""

import json
from pathlib import Path

import pytest

from bertkit.model import BertConfig, ModernBertConfig

TINY = BertConfig(
    vocab_size=200, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
    max_position_embeddings=24,
)  # fmt: skip
TINY_MODERN = ModernBertConfig(
    vocab_size=200, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24
)
both = pytest.mark.parametrize("config", [TINY, TINY_MODERN], ids=["bert", "modernbert"])


def edit_config(folder: Path, **values) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
