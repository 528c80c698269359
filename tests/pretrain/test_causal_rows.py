"""Causal rows have a target at every token and show none that comes later; the rows beside them are as they were."""

import numpy as np
import pytest
import torch
from collating import PLAIN

from bertkit.model import MaskedLM, ModernBertConfig, build_encoder
from bertkit.pretrain.objectives.causal_rows import CausalAndMaskedLM, CausalRows
from bertkit.pretrain.objectives.masked_next_token import MaskedNextTokenLM
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.loader import _as_tensors
from data_pipelines.rows.batch import RowBatch

# A row holds one sequence or two: [CLS] words [SEP] [CLS] words [SEP].
LENGTHS = [9, 14, 5, 12, 30, 8, 21, 17]
ROWS = [0, 1, 3, 4, 6, 8]


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    ids = [np.concatenate([[2], rng.integers(5, 100, length - 2), [3]]) for length in LENGTHS]
    starts = np.concatenate([[0], np.cumsum(LENGTHS)])
    return RowBatch(np.concatenate(ids), starts[ROWS], starts)


def masking():
    return MaskingCollator(**PLAIN, mlm_probability=0.3, layout="packed", return_tensors="np", seed=5)


def collated(rows, share, epoch=0):
    row_ids = np.arange(len(ROWS) - 1)
    return CausalRows(masking(), lambda step: share).collate_rows(rows, row_ids, np.full_like(row_ids, epoch), 0)


def test_all_ordinary_tokens_of_a_causal_row_are_targets_and_none_is_hidden(rows):
    batch = collated(rows, 1.0)
    np.testing.assert_array_equal(batch.input_ids, rows.ids_T)
    np.testing.assert_array_equal(batch.target_index, np.flatnonzero(rows.ids_T >= 5))
    np.testing.assert_array_equal(batch.target_ids, rows.ids_T[rows.ids_T >= 5])
    assert batch.prefixes.tolist() == [0] * len(LENGTHS)


def test_without_causal_rows_the_batch_is_that_of_the_masking_collator(rows):
    row_ids = np.arange(len(ROWS) - 1)
    plain, batch = masking().collate_rows(rows, row_ids, np.zeros_like(row_ids), 0), collated(rows, 0.0)
    for name in ("input_ids", "target_index", "target_ids", "cu_seqlens"):
        np.testing.assert_array_equal(getattr(batch, name), getattr(plain, name))
    assert batch.prefixes.tolist() == LENGTHS


def test_rows_are_causal_or_as_they_were_and_as_many_as_the_share_says(rows):
    masked, causal = collated(rows, 0.0), collated(rows, 1.0)
    owner_T = np.repeat(np.arange(len(ROWS) - 1), np.diff(rows.row_starts))
    num_causal = 0
    for epoch in range(400):
        batch = collated(rows, 0.3, epoch)
        masked = collated(rows, 0.0, epoch)
        is_causal_T = np.repeat(batch.prefixes == 0, LENGTHS)
        for row in range(len(ROWS) - 1):
            (kind,) = set(is_causal_T[owner_T == row])
            whole = causal if kind else masked
            mine, theirs = (one.target_index[owner_T[one.target_index] == row] for one in (batch, whole))
            np.testing.assert_array_equal(mine, theirs)
            np.testing.assert_array_equal(batch.input_ids[owner_T == row], whole.input_ids[owner_T == row])
            num_causal += kind
    assert num_causal / (400 * (len(ROWS) - 1)) == pytest.approx(0.3, abs=0.03)


CONFIG = ModernBertConfig(
    vocab_size=100, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24
)


@pytest.mark.parametrize("model_class", [CausalAndMaskedLM, MaskedNextTokenLM])
def test_a_next_token_is_told_from_those_before_it_alone(rows, model_class):
    model = model_class(build_encoder(CONFIG, 1), 2).eval()
    batch = _as_tensors(collated(rows, 1.0))
    seen = []
    model.encoder.tokens.register_forward_hook(lambda module, given, out: (out.retain_grad(), seen.append(out))[0])
    place = 5  # of the first sequence
    alone = type(batch)(**{**vars(batch), "target_index": torch.tensor([place]), "target_ids": torch.tensor([7])})
    model(alone).backward()
    touched = seen[0].grad.abs().sum(1).nonzero().flatten().tolist()
    assert touched == list(range(place))


def test_masks_are_told_as_by_a_masked_lm_with_the_same_weights(rows):
    model = CausalAndMaskedLM(build_encoder(CONFIG, 1), 2).eval()
    batch, plain = _as_tensors(collated(rows, 0.0)), MaskedLM(build_encoder(CONFIG, 1), 2).eval()
    torch.testing.assert_close(model(batch), plain(batch), rtol=0, atol=0)
    torch.testing.assert_close(model.masked_lm().target_logits(batch), plain.target_logits(batch), rtol=0, atol=0)
    assert model.masked_lm().state_dict().keys() == plain.state_dict().keys()


def test_a_masked_next_token_is_told_one_place_before_it(rows):
    model = MaskedNextTokenLM(build_encoder(CONFIG, 1), 2).eval()
    batch = _as_tensors(collated(rows, 0.0))
    everywhere = model.logits(batch)
    torch.testing.assert_close(model.target_logits(batch), everywhere[batch.target_index - 1])
