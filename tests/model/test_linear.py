"""Whichever library multiplies, a linear layer and its gradients are the same but for rounding."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.model.loss import summed_cross_entropy
from bertkit.model.products import linear as home
from bertkit.model.products.linear import FEWEST, linear, product, weight_gradient

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def called(monkeypatch) -> list[tuple[int, ...]]:
    """The shapes that oneDNN is given, on any processor."""
    monkeypatch.setattr(home, "onednn_is_faster", lambda transposed=False: True)
    taken: list[tuple[int, ...]] = []
    real = home._by_onednn

    def noted(values: Tensor, *rest: Tensor | None) -> Tensor:
        taken.append(tuple(values.shape))
        return real(values, *rest)

    monkeypatch.setattr(home, "_by_onednn", noted)
    return taken


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def assert_near(found: Tensor, wanted: Tensor) -> None:
    assert (found.shape, found.dtype) == (wanted.shape, torch.float32)
    assert float((found.double() - wanted).detach().norm() / wanted.detach().norm()) < 1e-6


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("num_rows", [FEWEST, FEWEST + 1, 200])
def test_a_layer_and_its_gradients_are_those_of_torch(num_rows, biased, called):
    inputs = [drawn(num_rows, 96), drawn(72, 96, seed=1), *([drawn(72, seed=2)] if biased else [])]
    direction = drawn(num_rows, 72, seed=3).detach()
    found, wanted = (
        (result := compute(*inputs), *torch.autograd.grad((result * direction).sum(), inputs))
        for compute in (linear, F.linear)
    )
    assert called == [(num_rows, 96), (num_rows, 72), (72, num_rows)]
    for ours, theirs in zip(found, wanted, strict=True):
        assert_near(ours, theirs)


def test_the_loss_over_a_vocabulary_is_that_of_torch(called):
    hidden, weight, bias = drawn(80, 64), drawn(500, 64, seed=1), drawn(500, seed=2)
    target = torch.arange(80)
    found = summed_cross_entropy(hidden, weight, bias, target)
    wanted = F.cross_entropy(F.linear(hidden, weight, bias), target, reduction="sum")
    inputs = (hidden, weight, bias)
    for ours, theirs in zip(
        (found, *torch.autograd.grad(found, inputs)), (wanted, *torch.autograd.grad(wanted, inputs)), strict=True
    ):
        assert_near(ours, theirs)
    assert called == [(80, 64), (80, 500), (64, 80)]


@pytest.mark.parametrize(
    "values",
    [drawn(FEWEST - 1, 64), drawn(100, FEWEST - 1), drawn(0, 64), drawn(2, 100, 64), drawn(100, 64).double()],
    ids=["few rows", "few channels", "no rows", "padded", "double"],
)
def test_what_is_small_or_of_another_kind_is_left_to_torch(values, called):
    weight = torch.ones(8, values.shape[-1], dtype=values.dtype)
    assert torch.equal(linear(values, weight), F.linear(values, weight))
    assert torch.equal(product(values, weight), F.linear(values, weight))
    assert not called


def test_only_what_needs_a_gradient_gets_one(called):
    values, weight = drawn(100, 64), drawn(70, 64, seed=1)
    linear(values.detach(), weight).sum().backward()
    assert weight.grad is not None
    assert called == [(100, 64), (64, 100)]


@pytest.mark.parametrize("pays_off", [False, True])
@pytest.mark.parametrize("shape", [(90, 70, 200), (90, 200, 70)])
def test_the_smaller_factor_of_a_weight_gradient_is_copied_where_that_pays_off(shape, pays_off, monkeypatch, called):
    rows, inner, outer = shape
    grad, values = drawn(rows, outer).detach(), drawn(rows, inner, seed=1).detach()
    monkeypatch.setattr(home, "onednn_is_faster", lambda transposed=False: pays_off or not transposed)
    assert_near(weight_gradient(grad, values), grad.T.double() @ values.double())
    assert called == ([(70, 90)] if pays_off else [])
