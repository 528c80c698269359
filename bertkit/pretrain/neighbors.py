"""Token embeddings that start from counts of neighbouring tokens in the prepared rows.

The first thousands of steps teach an embedding the neighbours of its token. Counting gives them in seconds, over far
more text than those steps would see: how much more often than by chance each frequent token occurs directly before,
directly after, and a few places around every token. The strongest directions of that table are the embeddings. They
need no label and no second model, and all further training is unchanged. Where positions can say so, two heads of the
first block start by looking at these neighbours.
"""

# V vocabulary, C context tokens, D width, T tokens, K directions kept while factorising

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.model import Encoder
from bertkit.model.initialization import changeable
from data_pipelines.rows.batch import RowBatch
from data_pipelines.rows.shards import Rows

TABLE_VALUES = 2**24
"""Size of each table of counts, which bounds the memory: a larger vocabulary gets fewer context tokens."""

COUNTED_TOKENS = 2**24
"""Of a larger corpus, rows spread over it evenly are counted up to this many tokens."""

REACH = 5
"""Greatest distance of a neighbour; one at distance n counts 1/(n-1) times."""

SIZE = 2.5
"""Root mean square of the embeddings, as a multiple of the random initialisation's."""


@torch.no_grad()
def start_from_neighbors(model: nn.Module, rows: Rows, special_ids: frozenset[int], seed: int) -> None:
    """Set the token embeddings of the model's encoder from their neighbours in the rows, and the bias of a decoder, if
    it has one, from their frequency.

    Special tokens, and tokens without a neighbour, keep the embedding they have.
    """
    counts_V = rows.token_counts()
    counts_V[list(special_ids)] = 0
    encoder = model.encoder
    assert isinstance(encoder, Encoder)
    tokens_VD = changeable(encoder.tokens.weight)
    tables = neighbor_tables(rows, counts_V)
    new_VD = factorize(tables, tokens_VD.shape[1], seed)
    known_V = torch.stack([table.any(dim=1) for table in tables]).any(dim=0)
    size = SIZE * encoder.config.initializer_range
    tokens_VD[known_V] = new_VD[known_V] * (size / new_VD[known_V].square().mean().sqrt())
    encoder.look_beside(torch.Generator().manual_seed(seed))
    bias_V = getattr(getattr(model, "head", None), "decoder_bias", None)
    if bias_V is not None:
        smoothed_V = torch.from_numpy(counts_V).float() + 0.5
        changeable(bias_V)[: len(smoothed_V)] = (smoothed_V / smoothed_V.sum()).log()


def neighbor_tables(rows: Rows, counts_V: np.ndarray) -> list[Tensor]:
    """Three (V, C) tables for the C most frequent tokens: how much more often than by chance each occurs directly
    before, directly after, and further off. The logarithm of that ratio, and 0 where it is smaller than 1."""
    num_contexts = min(int((counts_V > 0).sum()), TABLE_VALUES // len(counts_V))
    frequent = np.argsort(-counts_V, kind="stable")[:num_contexts]
    # Tokens that are no context fall into one more column, which is dropped in the end.
    context_of_V = np.full(len(counts_V), num_contexts)
    context_of_V[frequent] = np.arange(num_contexts)
    tables = [torch.zeros(len(counts_V) * (num_contexts + 1)) for _ in range(3)]
    every = max(1, -(-rows.num_tokens // COUNTED_TOKENS))
    for row_ids in np.array_split(np.arange(0, len(rows), every), max(1, len(rows) // every // 4096)):
        _count(rows.gather(row_ids), context_of_V, num_contexts, tables)
    return [_association(table.view(len(counts_V), -1)[:, :num_contexts], counts_V) for table in tables]


def _count(batch: RowBatch, context_of_V: np.ndarray, num_contexts: int, tables: list[Tensor]) -> None:
    before, after, around = tables
    context_T = context_of_V[batch.ids_T]
    place_T = batch.ids_T * (num_contexts + 1)
    sequence_T = np.repeat(np.arange(len(batch.sequence_starts) - 1), np.diff(batch.sequence_starts))
    for distance in range(1, REACH + 1):
        together = np.flatnonzero(sequence_T[distance:] == sequence_T[:-distance])
        left = torch.from_numpy(place_T[together + distance] + context_T[together])
        right = torch.from_numpy(place_T[together] + context_T[together + distance])
        weight = torch.full((len(together),), 1 / max(1, distance - 1))
        (before if distance == 1 else around).scatter_add_(0, left, weight)
        (after if distance == 1 else around).scatter_add_(0, right, weight)


def _association(counts_VC: Tensor, token_counts_V: np.ndarray) -> Tensor:
    # A context's share is smoothed by a power below 1, or rare contexts would look more telling than they are.
    share_C = counts_VC.sum(dim=0) ** 0.75
    expected_VC = counts_VC.sum(dim=1, keepdim=True) * (share_C / share_C.sum().clamp(min=1e-12))
    ratio_VC = counts_VC / expected_VC.clamp(min=1e-12)
    ratio_VC[torch.from_numpy(token_counts_V == 0)] = 0
    return ratio_VC.clamp_(min=1).log_()


def factorize(tables: list[Tensor], width: int, seed: int) -> Tensor:
    """(V, D): the strongest left directions of the tables side by side, each scaled by the root of its strength."""
    num_tokens = len(tables[0])
    generator = torch.Generator().manual_seed(seed)
    # A few directions more than wanted, and two rounds of powers, bring the wanted ones out of a random start.
    basis_VK = torch.randn(num_tokens, min(width + 16, num_tokens), generator=generator)
    for _ in range(2):
        basis_VK = torch.linalg.qr(_times_its_transpose(tables, basis_VK)).Q
    inner_KK = basis_VK.T @ _times_its_transpose(tables, basis_VK)
    strength_K, rotation_KK = torch.linalg.eigh((inner_KK + inner_KK.T) / 2)
    scale_D = strength_K.clamp(min=0).flip(0)[:width] ** 0.25
    found_VD = basis_VK @ rotation_KK.flip(1)[:, :width] * scale_D
    return torch.nn.functional.pad(found_VD, (0, width - found_VD.shape[1]))


def _times_its_transpose(tables: list[Tensor], basis_VK: Tensor) -> Tensor:
    return sum((table @ (table.T @ basis_VK) for table in tables), torch.zeros_like(basis_VK))
