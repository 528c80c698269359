"""Token embeddings that start from counts of neighbouring tokens in the prepared rows.

The first thousands of steps teach an embedding the neighbours of its token. Counting gives them in seconds, over far
more text than those steps would see: how much more often than by chance each frequent token occurs one or two places
before every token, one or two after it, and a few places around it. The strongest directions of these tables are the
embeddings. They need no label and no second model, and all further training is unchanged. With rotary positions, heads
of the first block start by looking at these neighbours and passing on what the tables say about the token between them;
heads of the second block start by looking at places with the same neighbours. The head that predicts tokens starts
nearly linear.
"""

# V vocabulary, C context tokens, D width, T tokens, K directions kept while factorising

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.model import Encoder
from bertkit.model.heads import VocabularyHead
from bertkit.model.initial_heads import BESIDE
from bertkit.model.initialization import changeable
from data_pipelines.rows.batch import RowBatch
from data_pipelines.rows.shards import Rows

TABLE_VALUES = 2**24
"""Size of each table of counts, which bounds the memory: a larger vocabulary gets fewer context tokens."""

COUNTED_TOKENS = 2**24
"""Of a larger corpus, rows spread over it evenly are counted up to this many tokens."""

REACH = 5
"""Greatest distance of a neighbour; one at distance n counts 1/(n-1) times."""

SIZE = 3.5
"""Root mean square of the embeddings, as a multiple of the random initialisation's, before they get the direction that
all share."""

STRAIGHT = 0.6
"""Multiple of the identity with which the head's dense layer starts. The smaller it is, the more nearly linear is the
activation after it; the norm that follows restores the size."""


@torch.no_grad()
def start_from_neighbors(model: nn.Module, rows: Rows, special_ids: frozenset[int], seed: int) -> None:
    """Set the token embeddings of the model's encoder from their neighbours in the rows, and what can use them: heads,
    where positions allow it, and the head that predicts tokens, if there is one.

    Special tokens, and tokens without a neighbour, keep the direction of their embedding, apart from the one that all
    then share.
    """
    counts_V = rows.token_counts()
    counts_V[list(special_ids)] = 0
    encoder = model.encoder
    assert isinstance(encoder, Encoder)
    tokens_VD = changeable(encoder.tokens.weight)
    tables, frequent = neighbor_tables(rows, counts_V)
    known_V = torch.stack([table.any(dim=1) for table in tables]).any(dim=0)
    # Rare tokens weigh less, but not as much less as they are rarer.
    weight_V = torch.from_numpy(counts_V).float().sqrt()
    factors_VD, contexts_CD = factorize(tables, weight_V, weight_V[frequent], tokens_VD.shape[1], seed)
    tokens_VD[known_V] = factors_VD[known_V]
    # All have one size. If [MASK], which is never counted, were smaller, more of it would be what all tokens share, and
    # heads that look beside would look at it instead.
    size = SIZE * encoder.config.initializer_range
    tokens_VD *= size / tokens_VD.square().mean(dim=1, keepdim=True).sqrt().clamp(min=1e-12)
    encoder.look_beside(torch.Generator().manual_seed(seed))
    normed_VD = F.layer_norm(tokens_VD, tokens_VD.shape[1:])
    maps_DD = [_map(normed_VD[frequent], said_CD, weight_V[frequent]) for said_CD in contexts_CD[:-1]]
    encoder.use_neighbors(maps_DD, _covariance(normed_VD, weight_V))
    head = getattr(model, "head", None)
    if isinstance(head, VocabularyHead):
        _start_head(head, tokens_VD, counts_V)


def _start_head(head: VocabularyHead, tokens_VD: Tensor, counts_V: np.ndarray) -> None:
    """Predict by frequency where the encoder says nothing, and else the tokens whose embeddings are nearest."""
    if head.decoder_bias is not None:
        smoothed_V = torch.from_numpy(counts_V).float() + 0.5
        changeable(head.decoder_bias).copy_((smoothed_V / smoothed_V.sum()).log())
    if head.decoder_weight is not None:
        changeable(head.decoder_weight).copy_(tokens_VD)
    nn.init.eye_(changeable(head.transform.dense.weight)).mul_(STRAIGHT)


def neighbor_tables(rows: Rows, counts_V: np.ndarray) -> tuple[list[Tensor], np.ndarray]:
    """(V, C) tables, one for each place BESIDE and one for those further off, and the C most frequent tokens: how much
    more often than by chance each of these occurs there. The logarithm of that ratio, and 0 where it is less than 1."""
    num_contexts = min(int((counts_V > 0).sum()), TABLE_VALUES // len(counts_V))
    frequent = np.argsort(-counts_V, kind="stable")[:num_contexts]
    # Tokens that are no context fall into one more column, which is dropped in the end.
    context_of_V = np.full(len(counts_V), num_contexts)
    context_of_V[frequent] = np.arange(num_contexts)
    tables = [torch.zeros(len(counts_V) * (num_contexts + 1)) for _ in (*BESIDE, None)]
    every = max(1, -(-rows.num_tokens // COUNTED_TOKENS))
    for row_ids in np.array_split(np.arange(0, len(rows), every), max(1, len(rows) // every // 4096)):
        _count(rows.gather(row_ids), context_of_V, num_contexts, tables)
    for index, table in enumerate(tables):
        tables[index] = _association(table.view(len(counts_V), -1)[:, :num_contexts], counts_V)
    return tables, frequent


def _count(batch: RowBatch, context_of_V: np.ndarray, num_contexts: int, tables: list[Tensor]) -> None:
    at, around = dict(zip(BESIDE, tables, strict=False)), tables[-1]
    context_T = context_of_V[batch.ids_T]
    place_T = batch.ids_T * (num_contexts + 1)
    sequence_T = np.repeat(np.arange(len(batch.sequence_starts) - 1), np.diff(batch.sequence_starts))
    for distance in range(1, REACH + 1):
        together = np.flatnonzero(sequence_T[distance:] == sequence_T[:-distance])
        left = torch.from_numpy(place_T[together + distance] + context_T[together])
        right = torch.from_numpy(place_T[together] + context_T[together + distance])
        weight = torch.full((len(together),), 1 / max(1, distance - 1))
        at.get(-distance, around).scatter_add_(0, left, weight)
        at.get(distance, around).scatter_add_(0, right, weight)


def _association(counts_VC: Tensor, token_counts_V: np.ndarray) -> Tensor:
    # A context's share is smoothed by a power below 1, or rare contexts would look more telling than they are.
    share_C = counts_VC.sum(dim=0) ** 0.75
    expected_VC = counts_VC.sum(dim=1, keepdim=True) * (share_C / share_C.sum().clamp(min=1e-12))
    ratio_VC = counts_VC / expected_VC.clamp(min=1e-12)
    ratio_VC[torch.from_numpy(token_counts_V == 0)] = 0
    return ratio_VC.clamp_(min=1).log_()


def _map(from_CD: Tensor, to_CD: Tensor, weight_C: Tensor) -> Tensor:
    """(D, D): the linear map from the first vectors to the second ones with the least weighted squared error."""
    weighted_DC = (from_CD * weight_C[:, None]).T
    square_DD = weighted_DC @ from_CD
    # A little on the diagonal, as few tokens leave some directions open.
    ridge = 1e-3 * square_DD.diagonal().mean().clamp(min=1e-12)
    return torch.linalg.solve(square_DD + ridge * torch.eye(len(square_DD)), weighted_DC @ to_CD).T


def _covariance(values_VD: Tensor, weight_V: Tensor) -> Tensor:
    share_V1 = (weight_V / weight_V.sum().clamp(min=1e-12))[:, None]
    centered_VD = values_VD - (values_VD * share_V1).sum(dim=0)
    return (centered_VD * share_V1).T @ centered_VD


def factorize(
    tables: list[Tensor], weight_V: Tensor, weight_C: Tensor, width: int, seed: int
) -> tuple[Tensor, list[Tensor]]:
    """Vectors of tokens, (V, D), and for each table vectors of contexts, (C, D), whose products are nearest to the
    table in weighted squares: the strongest directions of all tables side by side. Overwrites the tables."""
    num_tokens, row_V, column_C = len(weight_V), weight_V.clamp(min=1).sqrt(), weight_C.clamp(min=1).sqrt()
    for table in tables:
        table.mul_(row_V[:, None]).mul_(column_C)
    generator = torch.Generator().manual_seed(seed)
    # A few directions more than wanted, and two rounds of powers, bring the wanted ones out of a random start.
    basis_VK = torch.randn(num_tokens, min(width + 16, num_tokens), generator=generator)
    for _ in range(2):
        basis_VK = torch.linalg.qr(_times_its_transpose(tables, basis_VK)).Q
    inner_KK = basis_VK.T @ _times_its_transpose(tables, basis_VK)
    strength_K, rotation_KK = torch.linalg.eigh((inner_KK + inner_KK.T) / 2)
    directions_VD = basis_VK @ rotation_KK.flip(1)[:, :width]
    # Tokens and contexts each get the root of a singular value, whose square is an eigenvalue here. Directions with
    # next to none are noise.
    share_D = strength_K.clamp(min=0).flip(0)[:width] ** 0.25
    share_D[share_D < 0.01 * share_D[0]] = 0
    inverse_D = torch.where(share_D > 0, 1 / share_D, 0)
    tokens_VD = directions_VD * share_D / row_V[:, None]
    contexts_CD = [table.T @ (directions_VD * inverse_D) / column_C[:, None] for table in tables]
    missing = (0, width - len(share_D))
    return F.pad(tokens_VD, missing), [F.pad(said_CD, missing) for said_CD in contexts_CD]


def _times_its_transpose(tables: list[Tensor], basis_VK: Tensor) -> Tensor:
    return sum((table @ (table.T @ basis_VK) for table in tables), torch.zeros_like(basis_VK))
