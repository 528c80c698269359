"""Replaced-token detection: what the generator draws, what the encoder is told, and how both learn."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from collating import PLAIN, backend

from bertkit.evaluate.judge import EncodedPairs
from bertkit.evaluate.minimal_pairs import MinimalPair
from bertkit.model import ModernBertConfig, build_encoder
from bertkit.pretrain.objectives.replaced_tokens import DrawnTargets, ReplacedTokenDetector, sentence_scores
from bertkit.run.ranks import Evaluation
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.loader import _as_tensors
from data_pipelines.rows.batch import RowBatch
from data_pipelines.vocab.tokenizer import load_tokenizer

CONFIG = ModernBertConfig(
    vocab_size=100, hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=24
)


def detector(weight=10.0):
    return ReplacedTokenDetector(build_encoder(CONFIG, 1), range(5, 100), 1, weight, 2).eval()


def make_batch(row_ids=(0, 1, 2), draws=None):
    rng = np.random.default_rng(0)
    ids = np.concatenate([[2, *rng.integers(5, 100, 10), 3] for _ in range(3)])
    starts = np.arange(4) * 12
    rows = RowBatch(ids, starts, starts)
    if row_ids != (0, 1, 2):
        rows = RowBatch(ids[12 * row_ids[0] :][:12], starts[:2], starts[:2])
    masking = MaskingCollator(**PLAIN, mlm_probability=0.3, layout="packed", seed=5)
    keys = np.array(row_ids)
    return _as_tensors(DrawnTargets(masking).collate_rows(rows, keys, np.zeros_like(keys), 0))


def test_draws_are_a_function_of_the_row_and_the_position():
    whole, alone = make_batch(), make_batch((1,))
    mine = (whole.target_index >= 12) & (whole.target_index < 24)
    assert torch.equal(whole.target_draws[mine], alone.target_draws)
    assert len(set(whole.target_draws.tolist())) == len(whole.target_ids)


def test_tokens_are_drawn_as_likely_as_the_generator_finds_them_and_special_ones_never():
    logits = torch.randn(1, 100, generator=torch.Generator().manual_seed(1))
    expected = logits[0, 5:].softmax(0)
    draws = (torch.arange(20_000) + 0.5) / 20_000
    found = detector().drawn(logits.expand(len(draws), -1), draws)
    assert int(found.min()) >= 5
    torch.testing.assert_close(found.bincount(minlength=100)[5:] / len(draws), expected, atol=1e-4, rtol=0)
    ends = torch.tensor([0.0, 1 - 2**-24, 1.0])  # a number that was rounded is 1
    assert detector().drawn(logits.expand(3, -1), ends).tolist() == [5, 99, 99]
    logits[0, -1] = -torch.inf
    assert detector().drawn(logits, ends[-1:]).tolist() == [98]


def test_the_loss_is_the_generators_and_that_of_every_token():
    model, batch = detector(), make_batch()
    logits = model.generator.target_logits(batch)
    new = model.drawn(logits, batch.target_draws)
    shown = batch.input_ids.clone()
    shown[batch.target_index] = new
    original = batch.input_ids.clone()
    original[batch.target_index] = batch.target_ids
    scores = model.head(model.encoder.encode(type(batch)(**{**vars(batch), "input_ids": shown})))[:, 0]
    told = F.binary_cross_entropy_with_logits(scores, (shown != original).float(), reduction="sum")
    expected = F.cross_entropy(logits, batch.target_ids, reduction="sum") + 10 * told
    torch.testing.assert_close(model(batch), expected)
    assert 0 < int((shown != original).sum()) <= len(batch.target_ids)


def test_embeddings_are_shared_and_what_was_drawn_passes_no_gradient():
    model, batch = detector(weight=0.0), make_batch()
    assert model.generator.encoder.tokens is model.encoder.tokens
    assert sum("tokens.weight" in name for name, _ in model.named_parameters()) == 1
    model(batch).backward()
    assert model.encoder.tokens.weight.grad.abs().sum() > 0
    assert all(not p.grad.any() for p in model.encoder.layers.parameters())
    assert all(not p.grad.any() for p in model.head.parameters())
    model = detector(weight=1.0)
    (model(batch) - F.cross_entropy(model.generator.target_logits(batch), batch.target_ids, reduction="sum")).backward()
    for parameter in [*model.generator.encoder.layers.parameters(), *model.generator.head.parameters()]:
        torch.testing.assert_close(parameter.grad, torch.zeros_like(parameter), atol=1e-5, rtol=0)


def test_a_sentence_is_as_likely_as_its_tokens_are_real(tmp_path):
    backend().save(str(tmp_path / "tokenizer.json"))
    model, tokenizer = detector(), load_tokenizer(tmp_path)
    texts = [("ag ah ai", "ag ah"), ("bg", "ag ah ai aj")]
    pairs = EncodedPairs([MinimalPair(good, bad, "", "", "") for good, bad in texts], tokenizer, 30)
    device = torch.device("cpu")
    scores = sentence_scores(pairs, Evaluation(model, model.target_logits, device, 0, 1, lambda tally: tally))
    for row, pair in zip(scores, texts, strict=True):
        for score, text in zip(row, pair, strict=True):
            ids = tokenizer.backend.encode(text, add_special_tokens=False).ids
            whole = torch.tensor([[tokenizer.special.cls_id, *ids, tokenizer.special.sep_id]])
            logits = model.head(model.encoder(whole)[0])[1:-1, 0]
            assert score == pytest.approx(float(F.logsigmoid(-logits.detach()).sum()), abs=1e-5)
