"""Where every head of a model looks in a text: the attention weights, how far heads look and how they differ."""

# N layers, H heads, T tokens

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

MOST_TOKENS = 128
"""More would be too small to see, and the page too large to open."""


@dataclass
class LayerNumbers:
    """What the heads of one layer do, each as a mean over the tokens that look."""

    distance_H: list[float]
    """How many tokens away a head looks."""
    entropy_H: list[float]
    """How widely it looks, in bits: 0 for one token, log2 T for all alike."""
    difference: float | None
    """How far the heads differ from each other: the mean over all pairs of the Jensen-Shannon distance, from 0 (all
    alike) to 1 (none looks where another does). None with a single head."""

    @property
    def distance(self) -> float:
        return sum(self.distance_H) / len(self.distance_H)

    @property
    def entropy(self) -> float:
        return sum(self.entropy_H) / len(self.entropy_H)


@dataclass
class Attention:
    model: str
    text: str
    words: list[str]
    """The tokens as a reader would write them."""
    weights_NHTT: "Tensor"
    """Of each layer and head, from which token (row) to which (column)."""
    layers: list[LayerNumbers]


def attention_of(model_folder: str, text: str) -> Attention:
    """Let the model read the text and note where every head looks."""
    if not text.strip():
        raise ValueError("the text is empty; give the model something to read")
    import torch

    from bertkit.hf.folder import check_vocabulary, resolve
    from bertkit.hf.models import load
    from bertkit.report.probe import spelled
    from data_pipelines.vocab.tokenizer import load_tokenizer

    folder = resolve(model_folder)
    encoder, tokenizer = load(folder).encoder, load_tokenizer(folder)
    check_vocabulary(tokenizer, encoder.config.vocab_size, folder)
    backend = tokenizer.backend
    ids = backend.encode(text).ids
    if not ids:
        raise ValueError(f"the tokenizer of {folder} finds no token in the text; give the model something to read")
    most = min(MOST_TOKENS, encoder.config.max_position_embeddings)
    if len(ids) > most:
        raise ValueError(f"the text has {len(ids)} tokens, more than the {most} that can be shown; shorten it")
    with torch.inference_mode():
        weights = encoder.attention_weights(torch.tensor([ids]))
    weights_NHTT = torch.stack([rows[0] for rows in weights]).double()
    words = [spelled(backend, index, marked=True)[0] for index in ids]
    return Attention(str(model_folder), text, words, weights_NHTT, [layer_numbers(layer) for layer in weights_NHTT])


def layer_numbers(weights_HTT: "Tensor") -> LayerNumbers:
    """How far and how widely each head looks, and how far the heads differ."""
    import torch

    place_T = torch.arange(weights_HTT.shape[-1], dtype=weights_HTT.dtype)
    away_TT = (place_T[:, None] - place_T).abs()
    return LayerNumbers(
        distance_H=(weights_HTT * away_TT).sum(-1).mean(-1).tolist(),
        entropy_H=_entropy(weights_HTT).mean(-1).tolist(),
        difference=_difference(weights_HTT),
    )


def _difference(weights_HTT: "Tensor") -> float | None:
    """The mean Jensen-Shannon distance over all pairs of heads and all tokens that look."""
    num_heads = len(weights_HTT)
    pairs = [(one, other) for one in range(num_heads) for other in range(one)]
    if not pairs:
        return None
    entropy_HT = _entropy(weights_HTT)
    total = 0.0
    for one, other in pairs:
        between_T = _entropy((weights_HTT[one] + weights_HTT[other]) / 2)
        divergence_T = between_T - (entropy_HT[one] + entropy_HT[other]) / 2
        # Rounding can leave a hair below zero.
        total += float(divergence_T.clamp(min=0).sqrt().mean())
    return total / len(pairs)


def _entropy(weights: "Tensor") -> "Tensor":
    """In bits, over the last dimension; what is never looked at adds nothing."""
    return -(weights * weights.clamp(min=1e-300).log2()).sum(-1)
