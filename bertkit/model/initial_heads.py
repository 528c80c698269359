"""Attention heads that know where to look before training begins.

Training finds two kinds of heads late, and both can be computed at once. In the first block, up to four heads each look
at one place: one or two tokens to the left or to the right. They add what the token there says about the token here. In
the second block, all heads look at places with the same neighbours and copy the token there, so a masked token that
occurs elsewhere in its sequence can be found. Training changes these weights like all others.
"""

# D width, H heads, E channels per head, K channels by which places are compared

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bertkit.model.initialization import changeable
from bertkit.model.rotation import looking_at, slow_channels

BESIDE = (-1, 1, -2, 2)
"""How far away the heads of the first block look, one after the other."""

COMMON = 0.3
"""Share of the squares of an embedding that all tokens have in common where heads start by looking beside."""

SHARPNESS = 15.0
"""Logit of the place that such a head looks at. In a head of 64 channels the places next to it have a fifth less; heads
of 16 channels or fewer cannot tell it from some distant places."""

PASSED_ON = 0.5
"""Root mean square of what such a head adds to the residual stream, over the vocabulary and weighted as `covariance_DD`
is; a normed embedding has 1."""

ALIKE = 5.66
"""What each neighbour adds to the logit between two places where it is the same, before the norm of the block. All that
heads pass on overlaps, so that real logits are larger."""

FAR = 32
"""Places are compared by channels that turn by less than a radian over this distance."""


class Heads(NamedTuple):
    """The weights of the heads of one block, to be changed in place."""

    query_HED: Tensor
    key_HED: Tensor
    value_HED: Tensor
    output_DHE: Tensor
    theta: float
    """Base of the rotary frequencies."""

    @classmethod
    def of(cls, into: nn.Linear, out: nn.Linear, num_heads: int, theta: float) -> "Heads":
        width = out.out_features
        query, key, value = changeable(into.weight).view(3, num_heads, -1, width)
        return cls(query, key, value, changeable(out.weight).view(width, num_heads, -1), theta)


def look_beside(heads: Heads, common_D: Tensor) -> None:
    """Let the first heads look at the places BESIDE. A query and a key that all tokens share need something that all
    embeddings share: the direction `common_D`."""
    num_heads, head_size, width = heads.query_HED.shape
    size = (SHARPNESS * head_size**0.5 / (COMMON * width)) ** 0.5
    for head, distance in zip(range(num_heads), BESIDE, strict=False):
        query_E, key_E = looking_at(distance, head_size, heads.theta)
        heads.query_HED[head] += size * query_E[:, None] * common_D
        heads.key_HED[head] += size * key_E[:, None] * common_D


def pass_on(heads: Heads, maps_DD: Sequence[Tensor], covariance_DD: Tensor) -> list[Tensor]:
    """Let each head that looks beside pass on what its map makes of the token there, approximated with the rank that a
    head allows. Returns these approximations. `covariance_DD` is that of the normed embeddings."""
    passed, head_size = [], heads.value_HED.shape[1]
    variance_D, directions_DD = torch.linalg.eigh(covariance_DD)
    # Where hardly any token was counted, embeddings differ in few directions, and nothing may be divided by 0.
    root_D = variance_D.clamp(min=1e-3 * max(0.1, float(variance_D.mean()))).sqrt()
    for head, map_DD in zip(range(len(heads.value_HED)), maps_DD, strict=False):
        # The best approximation of this rank for vectors with this covariance.
        left_DD, singular_D, right_DD = torch.linalg.svd(map_DD @ directions_DD * root_D)
        singular_E = singular_D[:head_size]
        size_E = (singular_E * PASSED_ON / (singular_E.square().sum() / len(map_DD)).sqrt().clamp(min=1e-12)).sqrt()
        heads.value_HED[head] = size_E[:, None] * (right_DD[:head_size] / root_D) @ directions_DD.T
        heads.output_DHE[:, head] = left_DD[:, :head_size] * size_E
        passed.append(heads.output_DHE[:, head] @ heads.value_HED[head])
    return passed


def find_alike(heads: Heads, passed_DD: Sequence[Tensor], covariance_DD: Tensor) -> None:
    """Let all heads look at places that received the same from the heads of `pass_on`, and copy the token there. Each
    head copies other directions of its embedding, the first one those in which embeddings differ most."""
    num_heads, head_size, _ = heads.query_HED.shape
    channels_K = slow_channels(FAR, head_size, heads.theta)
    for channels, map_DD in zip(channels_K.chunk(len(passed_DD)), passed_DD, strict=False):
        variance_D, directions_DD = torch.linalg.eigh(map_DD @ covariance_DD @ map_DD.T)  # the largest last
        variance = variance_D.flip(0)[: len(channels)].sum()
        if variance < 1e-6:
            continue  # no neighbour says anything, so there is nothing to compare
        compared_KD = directions_DD.flip(1)[:, : len(channels)].T
        compared_KD *= (ALIKE * head_size**0.5 / variance).sqrt()
        heads.query_HED[:, channels] = compared_KD
        heads.key_HED[:, channels] = compared_KD
    principal_DD = torch.linalg.eigh(covariance_DD).eigenvectors.flip(1)
    for head, copied_DE in zip(range(num_heads), principal_DD.split(head_size, dim=1), strict=True):
        heads.value_HED[head] = copied_DE.T
        heads.output_DHE[:, head] = copied_DE
