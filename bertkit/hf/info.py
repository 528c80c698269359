"""Describes a model folder by its headers alone: what it is, how large, how costly."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bertkit.hf.files import open_weights
from bertkit.hf.folder import FULL, has_graph, has_weights, resolve
from bertkit.hf.layout import Layout
from bertkit.hf.models import Model, checked_outline, outline
from bertkit.hf.onnx import open_graph
from bertkit.model.config import EncoderConfig
from bertkit.model.encoder import Encoder
from bertkit.model.flops import forward_flops, head_flops


@dataclass(frozen=True)
class Info:
    architecture: str
    config: EncoderConfig
    parameters: dict[str, int]
    """Number of weights in each part."""
    labels: tuple[str, ...]
    flops_per_token: int
    """Multiplications and additions for one token's forward pass in a sequence of `seq_len`, head included."""
    seq_len: int

    @property
    def num_parameters(self) -> int:
        return sum(self.parameters.values())

    @property
    def memory(self) -> dict[str, int]:
        """Bytes, in float32: to hold the weights, and to train them with AdamW (gradients and two moments)."""
        return {"weights": 4 * self.num_parameters, "training state": 16 * self.num_parameters}


def describe(folder: str | Path, seq_len: int | None = None) -> Info:
    if seq_len is not None and seq_len < 1:
        raise ValueError(f"seq_len must be at least 1, got {seq_len}")
    layout, model = _outlined(resolve(folder))
    parts: Counter[str] = Counter()
    for name, tensor in model.state_dict().items():
        parts[_part(name)] += tensor.numel()
    seq_len = seq_len or min(layout.config.max_position_embeddings, 512)
    return Info(
        architecture=layout.architecture,
        config=layout.config,
        parameters={part: parts[part] for part in ("embeddings", "attention", "mlp", "norms", "head") if parts[part]},
        labels=layout.labels,
        flops_per_token=forward_flops(layout.config, seq_len) + _head_flops_per_token(model, seq_len),
        seq_len=seq_len,
    )


def _outlined(path: Path) -> tuple[Layout, Model]:
    """By the weights or, in a folder without them, by what an ONNX graph says of itself."""
    if not has_weights(path) and has_graph(path):
        graph = open_graph(path, "onnx" if (path / FULL).is_file() else "int8")
        layout = Layout(config=graph.config, head=graph.kind, labels=graph.labels)
        return layout, outline(layout, path)
    with open_weights(path) as weights:
        return checked_outline(path, weights.shapes)


def _head_flops_per_token(model: Model, seq_len: int) -> int:
    if isinstance(model, Encoder):
        return 0
    return head_flops(model) // (seq_len if model.judges_sequences else 1)


def _part(name: str) -> str:
    name = name.removeprefix("encoder.")
    if name.startswith(("head.", "pooler.")):
        return "head"
    if name.startswith(("tokens.", "positions.", "types.")):
        return "embeddings"
    if "norm." in name:
        return "norms"
    return "attention" if ".attention_" in name else "mlp"
