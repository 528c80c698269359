"""Heads predict where they are asked to, with losses and gradients of the plain computation."""

import os
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from bertkit.model import (
    BertConfig,
    MaskedLM,
    ModernBertConfig,
    SequenceClassifier,
    TokenTagger,
    attention,
    build_encoder,
    pack,
)
from bertkit.model.initialization import outline_encoder
from bertkit.model.loss import summed_cross_entropy

torch.set_num_threads(1)
CLASSIC = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
    max_position_embeddings=90, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
MODERN = ModernBertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24,
    global_attn_every_n_layers=2, local_attention=6,
)  # fmt: skip
WINDOWED_LAST = ModernBertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
    local_attention=6, tie_word_embeddings=False, decoder_bias=False,
)  # fmt: skip
encoders = pytest.mark.parametrize("config", [CLASSIC, MODERN, WINDOWED_LAST], ids=["bert", "modernbert", "windowed"])


def batch_with_targets(targets=(2, 3, 4, 11, 40, 80), lengths=(5, 1, 9, 80, 3)):
    """Targets at places of the pack; the last sequence has none."""
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(5, 50, (n,), generator=generator) for n in lengths]
    width = max(lengths)
    ids = torch.stack([F.pad(row, (0, width - len(row))) for row in rows])
    mask = torch.stack([F.pad(torch.ones_like(row), (0, width - len(row))) for row in rows])
    packed, _ = pack(ids, mask)
    target_ids = torch.randint(5, 50, (len(targets),), generator=generator)
    return SimpleNamespace(
        **packed._asdict(), target_index=torch.tensor(targets, dtype=torch.long), target_ids=target_ids
    )


@encoders
def test_the_loss_is_that_of_projecting_every_token(config):
    """Computing only the targets in the last block, in the head and in the loss is a matter of speed."""
    model = MaskedLM(build_encoder(config, seed=3), seed=3).double()
    batch = batch_with_targets()
    logits_TV = model.logits(batch)
    expected = F.cross_entropy(logits_TV[batch.target_index], batch.target_ids, reduction="sum")
    loss = model(batch)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(model.target_logits(batch), logits_TV[batch.target_index])
    parameters = list(model.parameters())
    found = torch.autograd.grad(loss / 7, parameters)
    wanted = torch.autograd.grad(expected / 7, parameters)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


@encoders
def test_the_order_of_targets_does_not_matter(config):
    model = MaskedLM(build_encoder(config, seed=3)).double()
    batch = batch_with_targets()
    shuffled = SimpleNamespace(**vars(batch))
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    shuffled.target_index, shuffled.target_ids = batch.target_index[order], batch.target_ids[order]
    torch.testing.assert_close(model.loss(shuffled), model.loss(batch))
    torch.testing.assert_close(model.target_logits(shuffled), model.target_logits(batch)[order])


@encoders
def test_a_batch_without_targets_has_no_loss_and_no_gradient(config):
    model = MaskedLM(build_encoder(config, seed=3))
    loss = model(batch_with_targets(targets=()))
    loss.backward()
    assert loss == 0
    assert all(p.grad is None or p.grad.abs().sum() == 0 for p in model.parameters())


def test_summed_cross_entropy_is_torchs():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(7, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(11, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.randint(11, (7,), generator=generator)
    found = summed_cross_entropy(hidden, weight, bias, target)
    expected = F.cross_entropy(F.linear(hidden, weight, bias), target, reduction="sum")
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
    for a, b in zip(
        torch.autograd.grad(found * 3, (hidden, weight, bias)),
        torch.autograd.grad(expected * 3, (hidden, weight, bias)),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    torch.library.opcheck(torch.ops.bertkit.summed_cross_entropy, (hidden.float(), weight.float(), None, target))


def test_a_hopeless_prediction_has_a_finite_loss_and_gradient():
    hidden = torch.tensor([[1000.0]], requires_grad=True)
    loss = summed_cross_entropy(hidden, torch.tensor([[1.0], [-1.0]]), None, torch.tensor([1]))
    loss.backward()
    assert loss == 2000
    assert hidden.grad == 2


def test_tied_weights_exist_once():
    tied = MaskedLM(build_encoder(CLASSIC))
    assert tied.decoder_weight is tied.encoder.tokens.weight
    assert len(list(tied.parameters())) == len({id(p) for p in tied.parameters()}) == len(tied.state_dict())
    untied = MaskedLM(build_encoder(WINDOWED_LAST))
    assert untied.decoder_weight is not untied.encoder.tokens.weight


@encoders
def test_gradient_checkpointing_changes_no_gradient(config):
    grads = []
    for checkpointing in (False, True):
        model = MaskedLM(build_encoder(config, seed=3)).train()
        model.encoder.gradient_checkpointing = checkpointing
        model(batch_with_targets()).backward()
        grads.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@encoders
def test_bf16_autocast_stays_close_to_fp32(config):
    model = MaskedLM(build_encoder(config, seed=3))
    batch = batch_with_targets()
    exact = model(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(batch)
    rough.backward()
    assert rough.dtype == torch.float32
    assert abs(rough - exact) < 0.02 * exact
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("config", [CLASSIC, WINDOWED_LAST], ids=["bert", "windowed"])
def test_the_packed_path_compiles_without_graph_breaks(config):
    model = MaskedLM(build_encoder(config, seed=3))
    batch = batch_with_targets()
    expected = model(batch)
    torch._dynamo.reset()
    # aot_eager traces forward and backward like the default backend, but needs no C++ compiler.
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    loss = compiled(batch)
    loss.backward()
    torch.testing.assert_close(loss, expected)
    grads = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    expected.backward()
    for a, b in zip(grads, model.parameters(), strict=True):
        torch.testing.assert_close(a, b.grad)
    other = batch_with_targets(targets=(0, 7), lengths=(3, 6, 2))
    torch.testing.assert_close(compiled(other), model(other))


@pytest.mark.plans
def test_a_packed_step_becomes_machine_code_with_the_same_gradients():
    """With the backend that `train.compile=true` takes, which needs a minute here."""
    if not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
        pytest.skip("torch.compile makes C++ of a model, and there is no C++ compiler")
    model, compiled = (MaskedLM(build_encoder(WINDOWED_LAST, seed=3)) for _ in range(2))
    torch._dynamo.reset()
    compiled.compile(dynamic=True, fullgraph=True)
    for batch in (batch_with_targets(), batch_with_targets(targets=(0, 7), lengths=(3, 6, 2))):
        expected, found = model(batch), compiled(batch)
        torch.testing.assert_close(found, expected)
        expected.backward()
        found.backward()
    for a, b in zip(compiled.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def masked_lm(encoder):
    return MaskedLM(encoder)


def tagger(encoder):
    return TokenTagger(encoder, ["O", "B"])


def classifier(encoder):
    return SequenceClassifier(encoder, ["good", "bad"])


@pytest.mark.parametrize("head", [masked_lm, tagger, classifier])
@pytest.mark.parametrize(
    "config",
    [CLASSIC, MODERN, WINDOWED_LAST, replace(MODERN, classifier_pooling="mean")],
    ids=["bert", "modernbert", "windowed", "mean"],
)
def test_a_gpu_is_never_asked_for_a_value_in_the_middle_of_a_step(config, head, monkeypatch):
    """Tensors on the meta device have no values, so whatever wants to look at one raises. Neither has the loop over
    sequences, which would look at their borders, a place on a GPU in half precision."""
    monkeypatch.setattr(attention, "_varlen_kernel", lambda values, window: attention._flash)
    monkeypatch.setattr(attention, "_packed", lambda *arguments: pytest.fail("looks at the borders of sequences"))
    model = head(outline_encoder(config)).bfloat16().train()
    batch = SimpleNamespace(
        **{
            name: value.to("meta") if isinstance(value, torch.Tensor) else value
            for name, value in vars(batch_with_targets()).items()
        }
    )
    (model(batch) if head is masked_lm else model.target_logits(batch)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.head.parameters())


@encoders
def test_attention_weights_are_given_for_every_block_and_row(config):
    encoder = build_encoder(config, seed=3)
    ids = torch.randint(5, 50, (2, 6))
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    weights = encoder.attention_weights(ids, mask)
    assert len(weights) == config.num_hidden_layers
    assert [tuple(row.shape) for row in weights[0]] == [(2, 6, 6), (2, 4, 4)]
    assert all(torch.allclose(row.sum(-1), torch.ones(())) for layer in weights for row in layer)


def test_labels_must_be_distinct():
    with pytest.raises(ValueError, match="labels must be"):
        TokenTagger(build_encoder(CLASSIC), ["O", "B", "O"])
