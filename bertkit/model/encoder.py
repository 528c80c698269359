"""What every encoder has in common: how it is called, what heads, exports and optimizers need of it, and the
nonlinearities by name."""

# B rows, L padded length, T tokens in the pack, K of them, D width, H heads, E channels per head

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertkit.graph import Graph
from bertkit.model.packing import Packed, computed_packed, middle_of, only_at
from bertkit.model.products.linear import linear


class Encoder(nn.Module):
    """Token ids to hidden states. A family says what its blocks compute; the rest of the house knows this much of it.

    A family sets `tokens` and `layers` and defines `encode`; `initial` and `attention_weights` where they differ, and
    `graph` to be written for other runtimes.
    """

    kind: ClassVar[str] = "bare"
    """Which head a model has: none."""
    architecture: ClassVar[str] = "Model"
    """What transformers calls such a model, after the name of its family."""
    labels: ClassVar[tuple[str, ...]] = ()
    above_layers: ClassVar[tuple[str, ...]] = ()
    """Names of the parts that come after the last block."""

    tokens: nn.Embedding
    layers: nn.ModuleList
    pooler: nn.Linear | None

    def __init__(self, config: Any):
        super().__init__()
        self.config = config
        self.gradient_checkpointing = False
        """Recompute each block in the backward pass instead of keeping what it computed."""
        self.pooler = None

    @property
    def encoder(self) -> "Encoder":
        """Itself, as a model with a head has one."""
        return self

    def forward(
        self, input_ids: Packed | Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Hidden states: (T, D) of a packed batch, (B, L, D) of padded rows, where padding holds zeros.

        Positions count from a row's first real token, so padding may be on the left. An encoder without token
        types takes them all the same, so that all encoders are called alike.
        """
        return computed_packed(self.encode, input_ids, attention_mask, token_type_ids)

    def encode(self, batch: Packed, at: Tensor | None = None) -> Tensor:
        """Hidden states of a packed batch, (T, D); with the ascending places `at` only theirs, (M, D), for which
        the last block computes nothing else."""
        raise NotImplementedError

    def initial(self, name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
        """Initial values of a matrix of this encoder, or of a head on it, by its name."""
        return torch.empty(shape).normal_(std=self.config.initializer_range, generator=generator)

    def look_beside(self, generator: torch.Generator) -> None:
        """Let heads of the first block start by looking at the tokens one and two places away. A family without rotary
        positions leaves its heads as they are."""

    def use_neighbors(self, maps_DD: Sequence[Tensor], covariance_DD: Tensor) -> None:
        """Let each head of `look_beside` pass on what its map makes of the embedding there, and the heads of the second
        block look at places with the same neighbours. `covariance_DD` is that of the normed embeddings."""

    def attention_weights(
        self, input_ids: Packed | Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> list[list[Tensor]]:
        """For each block, for each row or packed sequence, the (heads, length, length) attention weights among its real
        tokens."""
        raise ValueError(f"a {type(self).__name__} cannot return attention weights")

    def graph(self, graph: Graph) -> str:
        """Write down what `forward` computes of padded rows; the name of the hidden states, (B, L, D), which need not
        be zero at padding."""
        raise ValueError(f"a {type(self).__name__} cannot be written as an ONNX graph")

    def checkpointed(self, layer: nn.Module, hidden_TD: Tensor, *rest: Any) -> Tensor:
        """A block's output, recomputed in the backward pass where that is asked for."""
        if self.gradient_checkpointing and self.training:
            return checkpoint(layer, hidden_TD, *rest, use_reentrant=False)
        return layer(hidden_TD, *rest)

    def through_layers(
        self,
        hidden_TD: Tensor,
        batch: Packed,
        at: Tensor | None,
        further: Callable[[Packed], tuple[Any, ...]] = lambda batch: (),
    ) -> Tensor:
        """The output of all blocks, at the places `at` only if they are given; `further` is what a block needs of a
        batch beside it. Where a batch says so, only some of its tokens pass through the blocks between the first and
        the last one: the others keep what the first block gave them."""
        *before, last = self.layers
        rest, middle = further(batch), middle_of(batch)
        for layer in before[:1] if middle is not None else before:
            hidden_TD = self.checkpointed(layer, hidden_TD, batch, *rest)
        if middle is not None:
            part, inner_KD = only_at(batch, middle), hidden_TD.index_select(0, middle)
            rest_of_part = further(part)
            for layer in before[1:]:
                inner_KD = self.checkpointed(layer, inner_KD, part, *rest_of_part)
            hidden_TD = hidden_TD.index_copy(0, middle, inner_KD)
        return self.checkpointed(last, hidden_TD, batch, *rest, at)

    def pool(self, first_BD: Tensor) -> Tensor:
        """The pooled vector of each sequence from its first token's hidden state."""
        assert self.pooler is not None, "this encoder has no pooler"
        return activation(self.config.heads().pooler)(self.pooler(first_BD))

    def take_pooler(self) -> nn.Linear | None:
        """The pooler that pretraining left behind, which this encoder then no longer has: a head begins with it, or
        nothing would train it."""
        pooler, self.pooler = self.pooler, None
        return pooler


def project(qkv: nn.Linear, hidden_TD: Tensor, num_heads: int, first: int = 0, last: int = 3) -> Tensor:
    """Queries, keys and values of a fused projection, (T, 3, H, E), or a range of the three."""
    if (first, last) == (0, 3):
        return qkv(hidden_TD).unflatten(1, (3, num_heads, -1))
    rows = slice(first * qkv.in_features, last * qkv.in_features)
    part = linear(hidden_TD, qkv.weight[rows], None if qkv.bias is None else qkv.bias[rows])
    return part.unflatten(1, (last - first, num_heads, -1))


def joined_maps(block: Any) -> dict[nn.Linear, tuple[int, int]]:
    """Which maps an optimizer should take by themselves in the matrices of a block: every head, and the neurons of the
    MLP in groups as large as a head. How many of them lie above each other, and how many side by side."""
    num_heads, inner = block.num_heads, block.mlp_out.in_features
    head_size = block.attention_out.in_features // num_heads
    groups = inner // head_size if inner % head_size == 0 else 1
    return {
        block.attention_in: (3 * num_heads, 1),
        block.attention_out: (1, num_heads),
        block.mlp_in: (block.mlp_in.out_features // inner * groups, 1),
        block.mlp_out: (1, groups),
    }


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The nonlinearity of this name."""
    return _FUNCTIONS[name]


def name_of(function: Callable[[Tensor], Tensor]) -> str:
    """The first name of such a function."""
    return next(name for name, known in _FUNCTIONS.items() if known is function)


_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}
