"""Words tagged a second, beside transformers' token-classification pipeline with the same weights."""

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertkit.bench.generated import generated_documents
from bertkit.bench.measure import Row, announce, compare, interleaved
from bertkit.finetune.predict.tagger import Tagger
from bertkit.finetune.predict.tagging import Tagging
from bertkit.hf import save
from bertkit.model import BertConfig, ModernBertConfig, TokenTagger, build_encoder
from bertkit.model.config import EncoderConfig
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import Tokenizer, train_tokenizer

_LABELS = ["O", *(f"{prefix}-{kind}" for kind in ("PER", "LOC", "ORG", "MISC") for prefix in "BI")]
_SHAPES: dict[str, EncoderConfig] = {
    "bert 4×256": BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024),
    "modernbert 4×256": ModernBertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512
    ),
}


def bench_tag(against: str | None, quick: bool) -> tuple[list[Row], list[str]]:
    """One row for each encoder: sentences with the lengths of web text, raw text in and tags out."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        sentences = _sentences(300 if quick else 1500)
        text = Path(name) / "corpus.txt"
        text.write_text("\n".join(sentences), encoding="utf-8")
        corpus = CorpusConfig(corpus=[str(text)], documents="line")
        tokenizer = train_tokenizer(corpus, TokenizerConfig(vocab_size=8192), Path(name) / "tokenizer")
        for shape, config in _SHAPES.items():
            folder = Path(name) / shape.partition(" ")[0]
            _save_tagger(config, tokenizer, folder)
            rows.append(_measure(f"tag {shape}", folder, sentences, against, quick))
    threads = torch.get_num_threads()
    notes = [f"{len(sentences)} sentences of 1 to 150 words, half of them below 12; float32, {threads} threads."]
    if against:
        notes.append("Theirs: pipeline('token-classification', batch_size=32). Checked before timing: the same tags.")
    return rows, notes


def _measure(name: str, folder: Path, sentences: list[str], against: str | None, quick: bool) -> Row:
    announce(name)
    torch.set_flush_denormal(True)  # as `bertkit tag` does, for both sides
    tagger = Tagger.load(folder)
    num_words = sum(len(sentence.split()) for sentence in sentences)
    candidates: dict[str, Any] = {"ours": lambda: [tagging.tags for tagging in tagger.tag_all(sentences)]}
    if against:
        pipeline = _their_pipeline(folder)
        candidates["theirs"] = lambda: pipeline(sentences, batch_size=32)
        _check_same_tags(list(tagger.tag_all(sentences)), candidates["theirs"]())
    return compare(name, num_words, "words/s", interleaved(candidates, rounds=3 if quick else 7))


def _sentences(count: int) -> list[str]:
    """Words without punctuation, so that both sides agree on what a word is."""
    rng = np.random.default_rng(0)
    letters = "".join(char for char in " ".join(generated_documents(400 * count)) if char.isalpha() or char == " ")
    words = letters.lower().split()
    # As in treebanks of web text: half of the sentences shorter than 12 words, one in twenty longer than 40.
    lengths = np.clip(rng.lognormal(2.5, 0.75, count), 1, 150).astype(int)
    borders = np.cumsum([0, *lengths]).tolist()
    return [" ".join(words[start:end]) for start, end in pairwise(borders)]


def _save_tagger(config: EncoderConfig, tokenizer: Tokenizer, folder: Path) -> None:
    """Random weights, with a head far larger than usual: near a tie, rounding would decide the tag."""
    sized = replace(config, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.special.pad_id)
    model = TokenTagger(build_encoder(sized, 0), _LABELS, 0)
    with torch.no_grad():
        model.head.classifier.weight.mul_(50)
    save(model, folder, tokenizer)


def _their_pipeline(folder: Path) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    # A tag for every subword is the cheapest that it offers; joining subwords to words would cost it more.
    return transformers.pipeline("token-classification", model=str(folder), ignore_labels=[])


def _check_same_tags(ours: list[Tagging], theirs: list[list[dict[str, Any]]]) -> None:
    for tagging, pieces in zip(ours, theirs, strict=True):
        assert tagging.offsets is not None
        starts = {piece["start"]: piece["entity"] for piece in reversed(pieces)}
        assert tagging.tags == [starts[start] for start, _ in tagging.offsets], tagging.text
