"""Models with random weights, to be shipped: the answers of taggers are clear, so that rounding decides none."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from tiny import TINY, TINY_MODERN

import bertkit
from bertkit.hf.config import read_config, write_config
from bertkit.hf.model_types import MODEL_TYPES
from bertkit.model import build_encoder
from bertkit.model.heads import HEADS
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
WORDS = (
    *("Anna", "Émile", "paints", "draws", "the", "old", "new", "house", "houses", "near", "station", "in", "Wien,"),
    *("Zürich;", "don't", "12.5", "U.S.", "—", "東京", "naïve"),
)


def config_of(model_type):
    """A small one, with all that is special to the type."""
    base = TINY if MODEL_TYPES[model_type].config is type(TINY) else TINY_MODERN
    values = write_config(replace(base, model_type=model_type, pad_token_id=1))
    told = {key: value for key, value in values.items() if value is not None}
    return read_config(told, model_type, Path("config.json"))


def model_of(config, kind):
    """With weights far from their small beginnings, so that a wrong sign or scale would show."""
    encoder = build_encoder(config, 0)
    model = encoder
    if kind != "bare":
        model = HEADS[kind](encoder, ["a", "b", "c"]) if HEADS[kind].takes_labels else HEADS[kind](encoder)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def generated_sentences(count: int, longest: int = 60, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, longest))) for _ in range(count)]


def save_tagger(folder: Path, config, head: str = "tagger", max_length: int = 32, **tokenizing) -> Path:
    """With windows shorter than the longest sentences, and tags that are often against the rules of their scheme."""
    folder.mkdir(parents=True)
    text = folder / "text.txt"
    text.write_text("\n".join(generated_sentences(200)), encoding="utf-8")
    corpus = CorpusConfig(corpus=[str(text)], documents="line")
    tokenizer = train_tokenizer(corpus, TokenizerConfig(**{"vocab_size": 300, **tokenizing}), folder)
    text.unlink()
    sized = replace(config, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.special.pad_id)
    model = HEADS[head](build_encoder(sized, 0), LABELS, 0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Far from their small beginnings, so that tags depend on what stands around a word.
            parameter.mul_(16 if parameter.ndim == 2 and "layers" in name else 1)
        for parameter in model.head.parameters():
            parameter.mul_(50 if parameter.ndim == 2 else 1)
    bertkit.save(model, folder, tokenizer)
    if head == "tagger":
        settings = {"format": 1, "task": "tagging", "max_length": max_length, "scheme": "iob2", "legal_spans": True}
        (folder / "tagging.json").write_text(json.dumps(settings))
    return folder
