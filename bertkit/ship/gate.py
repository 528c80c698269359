"""int8 behind a gate: a graph passes if it loses no more than allowed on labeled data that the model has not seen."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertkit.finetune.predict.scoring import score_labeled
from bertkit.finetune.predict.tagger import Tagger
from bertkit.graph import Graph
from bertkit.hf.folder import QUANTIZED
from bertkit.hf.models import Model
from bertkit.hf.onnx import OnnxModel
from bertkit.ship.int8 import quantized, weights_to_quantize
from bertkit.ship.onnx_file import onnx_bytes
from data_pipelines import durable
from data_pipelines.labels.config import TaggedConfig

_LOOKED_AT = 32
"""Rows on which layers are compared: enough to rank them."""
_MOST_KEPT = 0.5
"""Share of the weights that may stay in float32; with more, int8 is not worth its loss."""


class Gate(NamedTuple):
    check: str
    """Labeled file, or text for a masked-language model."""
    max_loss: float
    """Points that int8 may lose."""


class Passed(NamedTuple):
    score: str
    """What was measured."""
    full: float
    quantized: float
    """In points."""
    kept: list[str]
    """Weights that stay in float32."""


def pass_gate(
    model: Model, graph: Graph, output: str, folder: Path, gate: Gate, say: Callable[[str], None] = print
) -> Passed:
    """Write the int8 graph beside the one in float32 that `folder` holds already. The layers that hurt most stay in
    float32, twice as many at each attempt, until the loss is small enough; where nothing fits, it is refused."""
    score, full = _score(folder, "onnx", gate)
    names = weights_to_quantize(graph)
    kept: list[str] = []
    order: list[str] = []
    while True:
        durable.replace_file(folder / QUANTIZED, onnx_bytes(*quantized(graph, output, kept), model))
        _, found = _score(folder, "int8", gate)
        say(f"{score} on {gate.check}: float32 {full:.2f}, int8 {found:.2f}{_but(kept)}")
        if full - found <= gate.max_loss:
            return Passed(score, full, found, kept)
        count = max(1, 2 * len(kept))
        if count > _MOST_KEPT * len(names):
            raise ValueError(
                f"int8 loses {full - found:.2f} points of {score} on {gate.check}, more than --max-loss "
                f"{gate.max_loss:g}, even with {len(kept)} of {len(names)} weights in float32; export without --int8"
            )
        order = order or _most_harmful_first(model, graph, output, names)
        kept = order[:count]


def _score(folder: Path, backend: str, gate: Gate) -> tuple[str, float]:
    """The name of the deciding score, and the score in points."""
    tagger = Tagger.load(folder, backend=backend)
    found = score_labeled(tagger, [gate.check], TaggedConfig(), worst=0)
    return found["score"], 100 * found[found["score"]]


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
