"""The modern encoder: packed or padded token ids enter, hidden states leave."""

# B rows, L padded length, T tokens in the pack, D width, H heads, E channels per head, F MLP width

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.graph import Graph
from bertkit.model.attention import attention_weights
from bertkit.model.cache import attend, attend_at
from bertkit.model.config import ModernBertConfig
from bertkit.model.encoder import Encoder, activation, joined_maps, name_of
from bertkit.model.initial_heads import COMMON, Heads, find_alike, look_beside, pass_on
from bertkit.model.initialization import changeable, normal
from bertkit.model.packing import Packed, check_ids, pack, prefixes_of
from bertkit.model.products.linear import Linear
from bertkit.model.rotation import Rotation, project_rotated


class ModernBert(Encoder):
    """Token embeddings, then blocks with the norm before each part and rotary positions in attention."""

    above_layers = ("final_norm",)
    config: ModernBertConfig

    def __init__(self, config: ModernBertConfig):
        super().__init__(config)
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.norm = _norm(config)
        self.layers = nn.ModuleList(
            # The embeddings are normed already, so the first block does not norm them again.
            ModernBertLayer(config, window, normed=index > 0)
            for index, window in enumerate(config.windows())
        )
        self.final_norm = _norm(config)

    def encode(self, batch: Packed, at: Tensor | None = None) -> Tensor:
        def further(batch: Packed) -> tuple[Rotations]:
            return (self.rotations(batch.position_ids),)

        return self.final_norm(self.through_layers(self.embed(batch), batch, at, further))

    def embed(self, batch: Packed) -> Tensor:
        check_ids("input_ids", batch.input_ids, self.config.vocab_size)
        hidden_TD = self.norm(self.tokens(batch.input_ids))
        return F.dropout(hidden_TD, self.config.embedding_dropout, self.training)

    def rotations(self, position_ids_T: Tensor) -> "Rotations":
        head_size = self.config.hidden_size // self.config.num_attention_heads
        return Rotations(
            everywhere=Rotation.of(position_ids_T, head_size, self.config.global_rope_theta),
            windowed=Rotation.of(position_ids_T, head_size, self.config.local_rope_theta),
        )

    def initial(self, name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
        std = self.config.initializer_range
        # What a block adds to the residual stream starts smaller, the more blocks there are.
        if name.endswith(("attention_out.weight", "mlp_out.weight", "dense.weight", "decoder_weight")):
            std /= math.sqrt(2 * self.config.num_hidden_layers)
        elif name.endswith("classifier.weight"):
            std = self.config.hidden_size**-0.5
        return normal(shape, std, generator, cutoff=self.config.initializer_cutoff_factor * std)

    @torch.no_grad()
    def look_beside(self, generator: torch.Generator) -> None:
        tokens_VD = changeable(self.tokens.weight)
        # Its mean is 0, as a norm would remove any other mean.
        common_D = normal(tokens_VD.shape[1:], 1.0, generator)
        common_D = F.normalize(common_D - common_D.mean(), dim=0)
        tokens_VD += common_D * tokens_VD.square().sum(dim=1).mean().sqrt() * (COMMON / (1 - COMMON)) ** 0.5
        look_beside(self.heads_of(0), common_D)

    @torch.no_grad()
    def use_neighbors(self, maps_DD: Sequence[Tensor], covariance_DD: Tensor) -> None:
        passed_DD = pass_on(self.heads_of(0), maps_DD, covariance_DD)
        if len(self.layers) > 1:
            # Comparing the neighbours two places away as well was worse.
            find_alike(self.heads_of(1), passed_DD[:2], covariance_DD)

    def heads_of(self, index: int) -> Heads:
        layer, config = self.layers[index], self.config
        assert isinstance(layer, ModernBertLayer)
        theta = config.global_rope_theta if layer.window is None else config.local_rope_theta
        return Heads.of(layer.attention_in, layer.attention_out, layer.num_heads, theta)

    def graph(self, graph: Graph) -> str:
        tokens = graph("Gather", graph.weight(self.tokens.weight), graph.input("input_ids"))
        head_size = self.config.hidden_size // self.config.num_attention_heads
        everywhere = graph.rotation(head_size, self.config.global_rope_theta)
        windowed = graph.rotation(head_size, self.config.local_rope_theta)
        hidden = graph.norm(self.norm, tokens)
        for layer in self.layers:
            assert isinstance(layer, ModernBertLayer)
            hidden = layer.graph(graph, hidden, everywhere if layer.window is None else windowed)
        return graph.norm(self.final_norm, hidden)

    def attention_weights(
        self, input_ids: Packed | Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> list[list[Tensor]]:
        batch = pack(input_ids, attention_mask)[0] if isinstance(input_ids, Tensor) else input_ids
        hidden_TD = self.embed(batch)
        rotations = self.rotations(batch.position_ids)
        weights = []
        for layer in self.layers:
            assert isinstance(layer, ModernBertLayer)
            qkv_T3HE, borders = layer.project(hidden_TD, rotations), batch.cu_seqlens
            weights.append(attention_weights(qkv_T3HE, borders, layer.window, prefixes_of(batch)))
            hidden_TD = layer(hidden_TD, batch, rotations)
        return weights


class Rotations(NamedTuple):
    """Blocks that see everything and blocks with a window turn at different speeds."""

    everywhere: Rotation
    windowed: Rotation


class ModernBertLayer(nn.Module):
    """Self-attention and a gated MLP, each added to what it was given."""

    def __init__(self, config: ModernBertConfig, window: int | None, normed: bool):
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.num_heads = config.num_attention_heads
        self.window = window
        self.attention_dropout = config.attention_dropout
        self.mlp_dropout = config.mlp_dropout
        self.attention_norm = _norm(config) if normed else None
        self.attention_in = Linear(width, 3 * width, bias=config.attention_bias)
        self.attention_out = Linear(width, width, bias=config.attention_bias)
        self.mlp_norm = _norm(config)
        self.mlp_in = Linear(width, 2 * inner, bias=config.mlp_bias)
        self.activation = activation(config.hidden_activation)
        self.mlp_out = Linear(inner, width, bias=config.mlp_bias)

    def forward(self, hidden_TD: Tensor, batch: Packed, rotations: Rotations, at: Tensor | None = None) -> Tensor:
        dropout = self.attention_dropout if self.training else 0.0
        if at is None:
            context_THE = attend(self, batch, self.project(hidden_TD, rotations), self.window, dropout)
        else:
            normed_TD, rotation = self.normed(hidden_TD), self.rotation(rotations)
            hidden_TD = hidden_TD.index_select(0, at)
            qkv, heads = self.attention_in, self.num_heads
            query_M1HE = project_rotated(qkv, normed_TD.index_select(0, at), heads, rotation.at(at), last=1)
            key_value_T2HE = project_rotated(qkv, normed_TD, heads, rotation, first=1)
            context_THE = attend_at(self, batch, at, query_M1HE.squeeze(1), key_value_T2HE, self.window, dropout)
        hidden_TD = hidden_TD + F.dropout(self.attention_out(context_THE.flatten(1)), dropout)
        value_TF, gate_TF = self.mlp_in(self.mlp_norm(hidden_TD), stays_half=True).chunk(2, dim=-1)
        inner_TF = F.dropout(self.activation(value_TF) * gate_TF, self.mlp_dropout, self.training)
        return hidden_TD + self.mlp_out(inner_TF)

    def graph(self, graph: Graph, hidden: str, rotation: tuple[str, str]) -> str:
        normed = hidden if self.attention_norm is None else graph.norm(self.attention_norm, hidden)
        qkv, width = graph.linear(self.attention_in, normed), self.attention_out.in_features
        context = graph.attention(qkv, width, self.num_heads, self.window, rotation)
        hidden = graph("Add", hidden, graph.linear(self.attention_out, context))
        inner = graph.linear(self.mlp_in, graph.norm(self.mlp_norm, hidden))
        value, gate = graph.several(2, "Split", inner, axis=-1, num_outputs=2)
        gated = graph("Mul", graph.activation(name_of(self.activation), value), gate)
        return graph("Add", hidden, graph.linear(self.mlp_out, gated))

    def joined_maps(self) -> dict[nn.Linear, tuple[int, int]]:
        return joined_maps(self)

    def project(self, hidden_TD: Tensor, rotations: Rotations) -> Tensor:
        """Queries, keys and values, (T, 3, H, E); queries and keys turned to their positions."""
        return project_rotated(self.attention_in, self.normed(hidden_TD), self.num_heads, self.rotation(rotations))

    def normed(self, hidden_TD: Tensor) -> Tensor:
        return hidden_TD if self.attention_norm is None else self.attention_norm(hidden_TD)

    def rotation(self, rotations: Rotations) -> Rotation:
        return rotations.everywhere if self.window is None else rotations.windowed


def _norm(config: ModernBertConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.norm_bias)
