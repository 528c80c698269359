"""Decay and Muon follow a parameter's module; what an optimizer remembers survives as plain tensors."""

import copy
import itertools

import pytest
import torch
from states import gather_state
from tiny import both
from torch import nn

from bertkit.config.sections import OptimConfig
from bertkit.model import MaskedLM, build_encoder
from bertkit.run.optim import build_optimizers, set_lr, split_parameters
from bertkit.run.optim.muon import Muon, _by_gram, _by_turns, orthogonalize
from bertkit.run.state import restore_state

torch.set_num_threads(1)


class TinyEncoder(nn.Module):
    """The kinds of parameters an encoder has, under names that say nothing."""

    def __init__(self):
        super().__init__()
        self.a = nn.Embedding(50, 8)
        self.b = nn.Linear(8, 24)
        self.c = nn.Linear(24, 8, bias=False)
        self.d = nn.LayerNorm(8)
        self.e = nn.Linear(8, 50)
        self.e.weight = self.a.weight

    def forward(self, ids):
        return self.e(self.d(self.c(torch.relu(self.b(self.a(ids))))))


def tiny(seed: int = 0) -> TinyEncoder:
    torch.manual_seed(seed)
    return TinyEncoder()


def train(model, optimizers, steps):
    for step in range(steps):
        ids = (torch.arange(16) * (step + 3)) % 50
        nn.functional.cross_entropy(model(ids), ids).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def same(params, expected) -> bool:
    return [id(p) for p in params] == [id(p) for p in expected]


def test_matrices_decay_and_biases_norms_embeddings_and_tied_weights_do_not():
    model = tiny()
    matrices, rest = split_parameters(model)
    assert same(matrices, [model.b.weight, model.c.weight])
    assert same(rest, [model.a.weight, model.b.bias, model.d.weight, model.d.bias, model.e.bias])
    (adamw,) = build_optimizers(model, OptimConfig(weight_decay=0.3))
    assert [group["weight_decay"] for group in adamw.param_groups] == [0.3, 0.0]
    assert same(adamw.param_groups[0]["params"], matrices)
    assert same(adamw.param_groups[1]["params"], rest)


def test_muon_moves_the_matrices_and_adamw_the_rest():
    model = tiny()
    muon, adamw = build_optimizers(model, OptimConfig(name="muon", weight_decay=0.3))
    matrices, rest = split_parameters(model)
    assert same(muon.param_groups[0]["params"], matrices)
    assert same(adamw.param_groups[0]["params"], rest)
    assert [adamw.param_groups[0]["weight_decay"], muon.param_groups[0]["weight_decay"]] == [0.0, 0.3]


def test_frozen_parameters_are_left_out():
    model = tiny()
    model.a.weight.requires_grad_(False)
    assert not any(p is model.a.weight for part in split_parameters(model) for p in part)


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 12, 40), (1, 40, 12)])
def test_orthogonalize_brings_every_singular_value_near_one(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonalize(matrices))
    assert values.min() > 0.5
    assert values.max() < 1.3


def test_wide_matrices_take_fewer_operations_to_the_same_result():
    spread = torch.logspace(0, -4, 12)[:, None]
    matrices = torch.randn(2, 12, 40, generator=torch.Generator().manual_seed(1)) * spread
    matrices = matrices / matrices.norm(dim=(1, 2), keepdim=True)
    torch.testing.assert_close(_by_gram(matrices), _by_turns(matrices), rtol=1e-3, atol=1e-4)


def test_orthogonalize_keeps_a_zero_gradient_zero():
    assert torch.equal(orthogonalize(torch.zeros(2, 4, 6)), torch.zeros(2, 4, 6))


def test_batching_equal_shapes_does_not_change_an_update():
    matrices = torch.randn(3, 8, 20, generator=torch.Generator().manual_seed(2))
    alone = torch.cat([orthogonalize(matrix[None]) for matrix in matrices])
    torch.testing.assert_close(orthogonalize(matrices), alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("maps", [(1, 1), (4, 1), (1, 4)])
def test_shares_of_the_matrices_end_in_the_bits_of_all_of_them(maps):
    """Two ranks that orthogonalize half of the matrices each must not differ from one that does all."""
    matrices = torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(0))
    shares = torch.cat([orthogonalize(matrix[None], maps) for matrix in matrices])
    assert torch.equal(orthogonalize(matrices, maps), shares)


def test_maps_that_share_a_matrix_are_made_orthogonal_each_by_itself():
    matrices = torch.randn(3, 8, 20, generator=torch.Generator().manual_seed(2))
    together = orthogonalize(matrices, maps=(2, 4))
    for rows, columns in itertools.product((slice(0, 4), slice(4, 8)), (slice(i, i + 5) for i in range(0, 20, 5))):
        torch.testing.assert_close(together[:, rows, columns], orthogonalize(matrices[:, rows, columns]))


@both
def test_heads_and_groups_of_neurons_are_maps_of_their_own(config):
    model = MaskedLM(build_encoder(config))
    groups = build_optimizers(model, OptimConfig(name="muon"))[0].param_groups
    maps = {id(param): group["maps"] for group in groups for param in group["params"]}
    layer, gates = model.encoder.layers[0], config.model_type == "modernbert"
    assert maps[id(layer.attention_in.weight)] == (3 * 2, 1)
    assert maps[id(layer.attention_out.weight)] == (1, 2)
    assert maps[id(layer.mlp_in.weight)] == (6 if gates else 3, 1), "24 neurons, as heads have 8 channels"
    assert maps[id(layer.mlp_out.weight)] == (1, 3)
    assert maps[id(model.head.transform.dense.weight)] == (1, 1)


@pytest.mark.parametrize("shape", [(16, 16), (16, 64), (64, 16)])
def test_a_muon_update_has_the_root_mean_square_of_adamw_whatever_its_shape(shape):
    param = nn.Parameter(torch.zeros(shape))
    param.grad = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    Muon([param], lr=1.0).step()
    assert param.detach().square().mean().sqrt() == pytest.approx(0.2, rel=0.2)


def test_muon_follows_the_gradient_downhill():
    torch.manual_seed(0)
    target, param = torch.randn(8, 8), nn.Parameter(torch.zeros(8, 8))
    optimizer = Muon([param], lr=0.05)
    for _ in range(200):
        loss = (param - target).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss < 0.1 * target.square().mean()


def test_rates_are_shares_of_each_highest_rate():
    optimizers = build_optimizers(tiny(), OptimConfig(name="muon", lr=0.1, muon_lr=0.4))
    set_lr(optimizers, 0.5)
    set_lr(optimizers, 0.25)
    assert [group["lr"] for o in optimizers for group in o.param_groups] == pytest.approx([0.1, 0.025])


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_training_goes_on_bit_identically_from_saved_tensors(name):
    config = OptimConfig(name=name)
    straight = tiny()
    optimizers = build_optimizers(straight, config)
    train(straight, optimizers, 3)
    saved = copy.deepcopy(gather_state(straight, optimizers))
    resumed = tiny(seed=1)
    again = build_optimizers(resumed, config)
    restore_state(resumed, again, saved)
    train(straight, optimizers, 3)
    train(resumed, again, 3)
    assert all(torch.equal(p, q) for p, q in zip(straight.parameters(), resumed.parameters(), strict=True))


def test_state_of_another_model_is_refused():
    model = tiny()
    optimizers = build_optimizers(model, OptimConfig())
    saved = gather_state(model, optimizers)
    for part, odd in (("model", {"zz": torch.zeros(1)}), ("optimizer", {"zz/exp_avg": torch.zeros(1)})):
        with pytest.raises(ValueError, match="'zz'"):
            restore_state(model, optimizers, {**saved, part: {**saved[part], **odd}})
    with pytest.raises(ValueError, match=r"'d.bias'.*\(9,\).*\(8,\)"):
        restore_state(model, optimizers, {**saved, "model": {**saved["model"], "d.bias": torch.zeros(9)}})
