"""The classic encoder: packed or padded token ids enter, hidden states leave."""

# B rows, L padded length, T tokens in the pack, D width, H heads, E channels per head, F feed-forward width

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.graph import Graph
from bertkit.model.attention import attention_weights
from bertkit.model.cache import attend, attend_at
from bertkit.model.config import BertConfig
from bertkit.model.encoder import Encoder, activation, joined_maps, name_of, project
from bertkit.model.initialization import normal, sinusoids
from bertkit.model.packing import Packed, check_ids, pack, prefixes_of
from bertkit.model.products.linear import Linear


class Bert(Encoder):
    """Token, position and type embeddings, then blocks with the norm after each residual sum."""

    config: BertConfig

    def __init__(self, config: BertConfig):
        super().__init__(config)
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.positions.weight.requires_grad_(config.position_embedding_type == "absolute")
        self.types = nn.Embedding(config.type_vocab_size, config.hidden_size) if config.type_vocab_size else None
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.layers = nn.ModuleList(BertLayer(config) for _ in range(config.num_hidden_layers))

    def encode(self, batch: Packed, at: Tensor | None = None) -> Tensor:
        return self.through_layers(self.embed(batch), batch, at)

    def embed(self, batch: Packed) -> Tensor:
        if batch.max_seqlen > self.config.max_position_embeddings:
            raise ValueError(
                f"a sequence of {batch.max_seqlen} tokens is longer than the encoder's "
                f"max_position_embeddings={self.config.max_position_embeddings}; split it"
            )
        check_ids("input_ids", batch.input_ids, self.config.vocab_size)
        hidden_TD = self.tokens(batch.input_ids) + self.positions(batch.position_ids)
        if self.types is not None:
            types = getattr(batch, "token_type_ids", None)
            if types is not None:
                check_ids("token_type_ids", types, self.config.type_vocab_size)
            hidden_TD = hidden_TD + (self.types.weight[0] if types is None else self.types(types))
        return F.dropout(self.norm(hidden_TD), self.config.hidden_dropout_prob, self.training)

    def initial(self, name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
        std = self.config.initializer_range
        if name.endswith("positions.weight") and self.config.position_embedding_type == "sinusoidal":
            # Of the same size as the token embeddings, which they would drown otherwise.
            return sinusoids(*shape) * std * math.sqrt(2)
        return normal(shape, std, generator)

    def graph(self, graph: Graph) -> str:
        tokens = graph("Gather", graph.weight(self.tokens.weight), graph.input("input_ids"))
        hidden = graph("Add", tokens, graph("Gather", graph.weight(self.positions.weight), graph.positions()))
        if self.types is not None:
            # A table of one row is the same for every token; nobody sends numbers for it.
            types = graph.input("token_type_ids") if self.config.type_vocab_size > 1 else graph.constant(0)
            hidden = graph("Add", hidden, graph("Gather", graph.weight(self.types.weight), types))
        hidden = graph.norm(self.norm, hidden)
        for layer in self.layers:
            assert isinstance(layer, BertLayer)
            hidden = layer.graph(graph, hidden)
        return hidden

    def attention_weights(
        self, input_ids: Packed | Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> list[list[Tensor]]:
        batch = pack(input_ids, attention_mask, token_type_ids)[0] if isinstance(input_ids, Tensor) else input_ids
        hidden_TD = self.embed(batch)
        weights = []
        for layer in self.layers:
            assert isinstance(layer, BertLayer)
            weights.append(attention_weights(layer.project(hidden_TD), batch.cu_seqlens, None, prefixes_of(batch)))
            hidden_TD = layer(hidden_TD, batch)
        return weights


class BertLayer(nn.Module):
    """Self-attention and a feed-forward part, each followed by residual sum and norm."""

    def __init__(self, config: BertConfig):
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.num_heads = config.num_attention_heads
        self.hidden_dropout = config.hidden_dropout_prob
        self.attention_dropout = config.attention_probs_dropout_prob
        self.attention_in = Linear(width, 3 * width)
        self.attention_out = Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.mlp_in = Linear(width, inner)
        self.activation = activation(config.hidden_act)
        self.mlp_out = Linear(inner, width)
        self.mlp_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(self, hidden_TD: Tensor, batch: Packed, at: Tensor | None = None) -> Tensor:
        dropout = self.attention_dropout if self.training else 0.0
        hidden_TD, rounded_TD = with_rounded(hidden_TD)
        if at is None:
            context_THE = attend(self, batch, self.project(rounded_TD), None, dropout)
        else:
            key_value_T2HE = self.project(rounded_TD, 1)
            hidden_TD = hidden_TD.index_select(0, at)
            query_MHE = self.project(hidden_TD, 0, 1).squeeze(1)
            context_THE = attend_at(self, batch, at, query_MHE, key_value_T2HE, None, dropout)
        hidden_TD = self.attention_norm(hidden_TD + self.dropped(self.attention_out(context_THE.flatten(1))))
        hidden_TD, rounded_TD = with_rounded(hidden_TD)
        inner_TF = self.activation(self.mlp_in(rounded_TD, stays_half=True))
        return self.mlp_norm(hidden_TD + self.dropped(self.mlp_out(inner_TF)))

    def graph(self, graph: Graph, hidden: str) -> str:
        context = graph.attention(
            graph.linear(self.attention_in, hidden), self.attention_out.in_features, self.num_heads
        )
        added = graph("Add", hidden, graph.linear(self.attention_out, context))
        hidden = graph.norm(self.attention_norm, added)
        inner = graph.activation(name_of(self.activation), graph.linear(self.mlp_in, hidden))
        return graph.norm(self.mlp_norm, graph("Add", hidden, graph.linear(self.mlp_out, inner)))

    def joined_maps(self) -> dict[nn.Linear, tuple[int, int]]:
        return joined_maps(self)

    def project(self, hidden_TD: Tensor, first: int = 0, last: int = 3) -> Tensor:
        """Queries, keys and values, (T, 3, H, E), or a range of the three."""
        return project(self.attention_in, hidden_TD, self.num_heads, first, last)

    def dropped(self, values_TD: Tensor) -> Tensor:
        return F.dropout(values_TD, self.hidden_dropout, self.training)


def with_rounded(values: Tensor) -> tuple[Tensor, Tensor]:
    """The values for a residual sum, and a copy for matrix products, which autocast would make by itself. Its gradient
    would then become float32 in one kernel and be added in another; here one kernel does both, to the same bits."""
    device = values.device.type
    if values.dtype != torch.float32 or device == "meta" or not torch.is_autocast_enabled(device):
        return values, values
    return _Rounded.apply(values, torch.get_autocast_dtype(device))


class _Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return values.view_as(values), values.to(dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_rounded: Tensor) -> tuple[Tensor, None]:
        return grad + grad_rounded, None
