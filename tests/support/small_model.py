"""A small model with a tokenizer of its own, as others publish them: a text enters, a Hugging Face folder leaves."""

from pathlib import Path

import bertkit
from bertkit.model import BertConfig, MaskedLM, build_encoder
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer


def save_small_model(folder: Path, text: Path, *, vocab_size: int, positions: int) -> Path:
    """Trained on nothing yet."""
    tokenizer = train_tokenizer(CorpusConfig(corpus=[str(text)]), TokenizerConfig(vocab_size=vocab_size), folder)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=positions,
    )
    bertkit.save(MaskedLM(build_encoder(config, 0), 0), folder, tokenizer)
    return folder
