"""int8 behind a gate: a graph passes if it loses no more than allowed on data that the model has not seen."""

from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertkit.evaluate.config import EvaluateConfig
from bertkit.evaluate.folder import evaluate_folder
from bertkit.finetune.predict.scoring import score_labeled
from bertkit.finetune.predict.tagger import Tagger
from bertkit.graph import Graph
from bertkit.hf.folder import QUANTIZED
from bertkit.hf.models import Model
from bertkit.hf.onnx import OnnxModel, open_graph
from bertkit.ship.int8 import quantized, weights_to_quantize
from bertkit.ship.onnx_file import onnx_bytes
from data_pipelines import durable
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import read_documents
from data_pipelines.vocab.tokenizer import load_tokenizer

_LOOKED_AT = 32
"""Rows on which layers are compared: enough to rank them."""
_DOCUMENTS, _LONGEST = 200, 128
"""Of a text that an encoder without a head is measured on: how many documents, and how many tokens of each."""
_TOLD = 10
"""Labels that a message names."""
_MOST_KEPT = 0.5
"""Share of the weights that may stay in float32; with more, int8 is not worth its loss."""


class Gate(NamedTuple):
    check: str
    """Labeled file; for a masked-language model or an encoder without a head, text."""
    max_loss: float
    """Points that int8 may lose: percent of the score, or hundredths of a nat."""


class Scored(NamedTuple):
    name: str
    points: float
    """More is better."""
    shown: str


class Passed(NamedTuple):
    score: str
    """What was measured."""
    full: str
    quantized: str
    """As people read it."""
    kept: list[str]
    """Weights that stay in float32."""


def pass_gate(model: Model, graph: Graph, output: str, folder: Path, gate: Gate) -> Passed:
    """Write the int8 graph beside the one in float32 that `folder` holds already. The layers that hurt most stay in
    float32, twice as many at each attempt, until the loss is small enough; where nothing fits, it is refused."""
    full = _score(model.kind, folder, "onnx", gate)
    names = weights_to_quantize(graph)
    kept: list[str] = []
    order: list[str] = []
    while True:
        durable.replace_file(folder / QUANTIZED, onnx_bytes(*quantized(graph, output, kept), model))
        found = _score(model.kind, folder, "int8", gate)
        lost = full.points - found.points
        print(f"{full.name} on {gate.check}: float32 {full.shown}, int8 {found.shown}{_but(kept)}")
        if lost <= gate.max_loss:
            return Passed(full.name, full.shown, found.shown, kept)
        count = max(1, 2 * len(kept))
        if count > _MOST_KEPT * len(names):
            raise ValueError(
                f"int8 loses {lost:.2f} points of {full.name} on {gate.check}, more than --max-loss "
                f"{gate.max_loss:g}, even with {len(kept)} of {len(names)} weights in float32; export without --int8"
            )
        order = order or _most_harmful_first(model, graph, output, names)
        kept = order[:count]


def _score(kind: str, folder: Path, backend: str, gate: Gate) -> Scored:
    if kind == "masked-lm":
        return _masked_loss(folder, backend, gate)
    return _similarity(folder, backend, gate) if kind == "bare" else _labeled_score(folder, backend, gate)


def _labeled_score(folder: Path, backend: str, gate: Gate) -> Scored:
    """The score that decides in fine-tuning."""
    tagger = Tagger.load(folder, backend=backend)
    found = score_labeled(tagger, [gate.check], tagger.reading.of_source(gate.check).config, worst=0)
    points = 100 * found[found["score"]]
    if backend == "onnx" and points == 0:
        raise ValueError(
            f"--check {gate.check}: the model in float32 has 0.00 {found['score']} there, so no loss could be seen; "
            f"name a file with its labels: {', '.join(tagger.labels[:_TOLD])}{', ...' * (len(tagger.labels) > _TOLD)}"
        )
    return Scored(found["score"], points, f"{points:.2f}")


def _masked_loss(folder: Path, backend: str, gate: Gate) -> Scored:
    """A point is a hundredth of a nat: one percent of perplexity."""
    loss = evaluate_folder(folder, [gate.check], EvaluateConfig(words=0), backend)["loss"]
    return Scored("masked loss", -100 * loss, f"{loss:.4f}")


def _similarity(folder: Path, backend: str, gate: Gate) -> Scored:
    """Of an encoder without a head: the mean cosine between the vectors of tokens and those that float32 gives."""
    tokenizer = load_tokenizer(folder)
    right, other = open_graph(folder), open_graph(folder, backend)
    length = min(_LONGEST, right.config.max_position_embeddings)
    texts = (document.text for document in read_documents(CorpusConfig(corpus=[gate.check])))
    cosines = []
    for text in islice(texts, _DOCUMENTS):
        row = np.array(tokenizer.backend.encode(text).ids[:length])
        one, two = (
            vectors / np.linalg.norm(vectors, axis=-1, keepdims=True) for vectors in (right([row]), other([row]))
        )
        cosines.append((one * two).sum(-1).ravel())
    if not cosines:
        raise ValueError(f"--check {gate.check} holds no text")
    points = 100 * float(np.concatenate(cosines).mean())
    return Scored("similarity to float32", points, f"{points:.2f}")


def _but(kept: list[str]) -> str:
    return f", with {', '.join(kept)} in float32" if kept else ""


def _most_harmful_first(model: Model, graph: Graph, output: str, names: list[str]) -> list[str]:
    """Weights by how far the results move when they alone are int8."""
    rng = np.random.default_rng(0)
    length = min(32, model.config.max_position_embeddings)
    rows = list(rng.integers(0, model.config.vocab_size, (_LOOKED_AT, length)))

    def results(kept: list[str]) -> np.ndarray:
        return OnnxModel(onnx_bytes(*quantized(graph, output, kept), model), model.config)(rows)

    right = results(names)
    harm = {name: float(np.square(results([each for each in names if each != name]) - right).mean()) for name in names}
    return sorted(names, key=lambda name: -harm[name])
