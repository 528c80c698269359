"""A model folder enters; what it is, how large and how costly leaves, read from headers alone."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bertkit.hf.files import open_weights
from bertkit.hf.folder import resolve
from bertkit.hf.models import checked_outline
from bertkit.model.config import BertConfig, EncoderConfig


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
    path = resolve(folder)
    with open_weights(path) as weights:
        layout, model = checked_outline(path, weights.shapes)
    parts: Counter[str] = Counter()
    for name, tensor in model.state_dict().items():
        parts[_part(name)] += tensor.numel()
    seq_len = seq_len or min(layout.config.max_position_embeddings, 512)
    return Info(
        architecture=layout.architecture,
        config=layout.config,
        parameters={part: parts[part] for part in ("embeddings", "attention", "mlp", "norms", "head") if parts[part]},
        labels=layout.labels,
        flops_per_token=forward_flops(layout.config, seq_len)
        + _head_flops(layout.config, layout.head, layout.labels, seq_len),
        seq_len=seq_len,
    )


def forward_flops(config: EncoderConfig, seq_len: int) -> int:
    """Multiplications and additions of the encoder's matrix products for one token."""
    width, inner = config.hidden_size, config.intermediate_size
    gated = 1 if isinstance(config, BertConfig) else 2
    windows = [None] * config.num_hidden_layers if isinstance(config, BertConfig) else config.windows()
    flops = 0
    for window in windows:
        seen = seq_len if window is None else min(seq_len, 2 * window + 1)
        flops += 2 * (4 * width * width + (gated + 1) * width * inner) + 4 * seen * width
    return flops


def _head_flops(config: EncoderConfig, head: str, labels: tuple[str, ...], seq_len: int) -> int:
    width = config.hidden_size
    transform = 2 * width * width
    if head == "masked-lm":
        return transform + 2 * width * config.vocab_size
    if head == "tagger":
        return (0 if isinstance(config, BertConfig) else transform) + 2 * width * len(labels)
    if head == "classifier":  # once a sequence, so next to nothing a token
        return (transform + 2 * width * len(labels)) // seq_len
    return 0


def _part(name: str) -> str:
    name = name.removeprefix("encoder.")
    if name.startswith(("head.", "pooler.")):
        return "head"
    if name.startswith(("tokens.", "positions.", "types.")):
        return "embeddings"
    if "norm." in name:
        return "norms"
    return "attention" if ".attention_" in name else "mlp"
