"""Words tagged per second by each backend, against transformers' pipeline with the same weights."""

import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertkit.bench.generated import generated_documents
from bertkit.bench.measure import Row, Told, announce, compare, interleaved
from bertkit.cpu import multiplies_in_bf16
from bertkit.finetune.answers import LEGAL_SPANS
from bertkit.finetune.predict.settings import SETTINGS, settings_bytes
from bertkit.finetune.predict.tagger import Tagger
from bertkit.finetune.predict.tagging import Tagging
from bertkit.finetune.windows import RowForm
from bertkit.hf import load, save
from bertkit.hf.folder import FULL, QUANTIZED
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
    "bert 12×768": BertConfig(),
}
_BATCHES = (1, 32)
_FULL = 64
"""Words of a full sentence."""
_CHECKED = 8
"""Sentences on which the tags of all sides are compared."""


def bench_tag(against: str | None, quick: bool) -> Iterator[Told]:
    """For each encoder, batch and kind of sentences a row for each backend: raw text in and tags out."""
    threads = torch.get_num_threads()
    yield (
        f"ragged: sentences of 1 to 150 words, half of them below 12; full: of {_FULL} words. {threads} threads; torch "
        "and onnx in float32. int8 is fastest where the processor has VNNI; it and bf16 may give other tags."
    )
    if not _has_onnx():
        yield "Without the packages of the extra onnx only torch is measured."
    if against:
        yield (
            "Theirs: pipeline('token-classification'). Checked before timing: the same tags in float32, each word by "
            "itself. Timed with legal spans and their confidence; random weights make nearly every sentence illegal."
        )
    shapes = list(_SHAPES)[: 2 if quick else None]
    cases = list(product(_BATCHES, ("ragged", "full")))
    with tempfile.TemporaryDirectory() as name:
        tokenizer = _make_tokenizer(Path(name), _sentences(300))
        for done, shape in enumerate(shapes):
            announce(f"tag {shape}, making its model and graphs")
            sides = _sides(_save_tagger(_SHAPES[shape], tokenizer, Path(name) / shape.replace(" ", "-")), against)
            large = "768" in shape
            for number, (batch, kind) in enumerate(cases, start=done * len(cases) + 1):
                announce(f"tag {shape}, batch {batch}, {kind} ({number} of {len(shapes) * len(cases)})")
                count = (1 if large or quick else 4) * (32 if batch > 1 else 8)
                sentences = _sentences(count) if kind == "ragged" else _full(_sentences(count))
                rounds = 3 if large or quick else 5
                yield from _measure(f"tag {shape}, batch {batch}, {kind}", sides, sentences, batch, rounds)


def _sides(folder: Path, against: str | None) -> dict[str, Any]:
    """Taggers by their backends, and the pipeline."""
    sides: dict[str, Any] = {backend: Tagger.load(folder, backend=backend) for backend in _backends(folder)}
    return sides | ({"theirs": _their_pipeline(folder)} if against else {})


def _measure(name: str, sides: dict[str, Any], sentences: list[str], batch: int, rounds: int) -> Iterator[Row]:
    num_words = sum(len(sentence.split()) for sentence in sentences)
    taggers = {backend: tagger for backend, tagger in sides.items() if backend != "theirs"}
    candidates: dict[str, Callable[[], Any]] = {
        backend: partial(_tag, tagger, sentences, batch) for backend, tagger in taggers.items()
    }
    if "theirs" in sides:
        candidates["theirs"] = partial(sides["theirs"], sentences, batch_size=batch)
        right = sides["theirs"](sentences[:_CHECKED], batch_size=batch)
        for tagger in [tagger for backend, tagger in taggers.items() if backend in ("torch", "onnx")]:
            _check_same_tags(_tag(_by_word(tagger), sentences[:_CHECKED], batch), right)
    timings = interleaved(candidates, rounds)
    theirs = {name: timings[name] for name in ("theirs",) if name in timings}
    for backend in taggers:
        yield compare(f"{name}, {backend}", num_words, "words/s", {"ours": timings[backend], **theirs})


def _tag(tagger: Tagger, sentences: list[str], batch: int) -> list[Tagging]:
    return list(tagger.tag_all(sentences, chunk=batch))


def _by_word(tagger: Tagger) -> Tagger:
    """The same model, which takes each word's best tag by itself, as the pipeline does."""
    other = copy(tagger)
    other.settings = {**tagger.settings, LEGAL_SPANS: False}
    return other


def _has_onnx() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("onnx", "onnxruntime"))


def _backends(folder: Path) -> list[str]:
    """Those that can be measured here; the graphs are written next to the weights."""
    with_torch = ["torch", "bf16"] if multiplies_in_bf16() else ["torch"]
    if not _has_onnx():
        return with_torch
    from bertkit.ship.int8 import quantized
    from bertkit.ship.onnx_file import graph_of, onnx_bytes

    model = load(folder)
    graph, output = graph_of(model)
    (folder / FULL).parent.mkdir(exist_ok=True)
    (folder / FULL).write_bytes(onnx_bytes(graph, output, model))
    (folder / QUANTIZED).write_bytes(onnx_bytes(*quantized(graph, output), model))
    return [*with_torch, "onnx", "int8"]


def _make_tokenizer(folder: Path, sentences: list[str]) -> Tokenizer:
    text = folder / "corpus.txt"
    text.write_text("\n".join(sentences), encoding="utf-8")
    corpus = CorpusConfig(corpus=[str(text)], documents="line")
    return train_tokenizer(corpus, TokenizerConfig(vocab_size=8192), folder / "tokenizer")


def _full(sentences: list[str]) -> list[str]:
    """As many sentences, all of `_FULL` words."""
    words = " ".join(sentences).split()
    return [" ".join(words[i % len(words)] for i in range(n, n + _FULL)) for n in range(len(sentences))]


def _sentences(count: int) -> list[str]:
    """Words without punctuation, so that both sides agree on what a word is."""
    rng = np.random.default_rng(0)
    letters = "".join(char for char in " ".join(generated_documents(400 * count)) if char.isalpha() or char == " ")
    words = letters.lower().split()
    # As in treebanks of web text: half of the sentences shorter than 12 words, one in twenty longer than 40.
    lengths = np.clip(rng.lognormal(2.5, 0.75, count), 1, 150).astype(int)
    borders = np.cumsum([0, *lengths]).tolist()
    return [" ".join(words[start:end]) for start, end in pairwise(borders)]


def _save_tagger(config: EncoderConfig, tokenizer: Tokenizer, folder: Path) -> Path:
    """Random weights, with a head far larger than usual: near a tie, rounding would decide the tag."""
    sized = replace(config, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.special.pad_id)
    model = TokenTagger(build_encoder(sized, 0), _LABELS, 0)
    with torch.no_grad():
        model.head.classifier.weight.mul_(50)
    save(model, folder, tokenizer)
    form = RowForm.of(tokenizer, sized, sized.max_position_embeddings)
    (folder / SETTINGS).write_bytes(settings_bytes("tagging", form, {"scheme": "iob2", LEGAL_SPANS: True}))
    return folder


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
