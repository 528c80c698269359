"""In half precision on a CPU only the products are rounded: results and gradients stay near those in float32."""

import contextlib

import pytest
import torch
from torch import Tensor

from bertkit.model.attention import attention, attention_at
from bertkit.model.loss import summed_cross_entropy
from bertkit.model.products import multiplies_in_half
from bertkit.model.products.half_attention import LONGEST, half_attention, takes_half
from bertkit.model.products.linear import ROWS, Linear, as_half, linear

torch.set_num_threads(1)


def half(enabled: bool = True) -> contextlib.AbstractContextManager:
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def error(found: Tensor, wanted: Tensor) -> float:
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    return float((found - wanted).detach().norm() / wanted.detach().norm())


def both_ways(compute, *inputs: Tensor) -> list[tuple[Tensor, ...]]:
    """The result and the gradients by the inputs, in float32 and in half precision."""
    ways = []
    for enabled in (False, True):
        with half(enabled):
            result = compute(*inputs)
        direction = drawn(*result.shape, seed=9).detach()
        ways.append((result, *torch.autograd.grad((result * direction).sum(), inputs)))
    return ways


@pytest.mark.parametrize("num_rows", [1, ROWS - 1, ROWS, ROWS + 1])
def test_a_linear_layer_and_its_gradients_stay_near_float32(num_rows):
    wanted, found = both_ways(linear, drawn(num_rows, 24), drawn(40, 24, seed=1), drawn(40, seed=2))
    assert all(error(a, b) < 0.01 for a, b in zip(found, wanted, strict=True))
    assert any(error(a, b) > 1e-4 for a, b in zip(found, wanted, strict=True)), "nothing was rounded"


def test_what_stays_half_between_two_products_stays_near_float32():
    def compute(values: Tensor, into: Tensor, out: Tensor) -> Tensor:
        inner = linear(values, into, stays_half=True)
        assert inner.dtype == (torch.bfloat16 if multiplies_in_half(values) else torch.float32)
        return linear(torch.nn.functional.gelu(inner), out)

    wanted, found = both_ways(compute, drawn(40, 24), drawn(48, 24, seed=1), drawn(24, 48, seed=2))
    assert all(error(a, b) < 0.01 for a, b in zip(found, wanted, strict=True))


def test_a_layer_is_an_ordinary_one_without_autocast():
    layer, values = Linear(8, 4), drawn(3, 8)
    assert not multiplies_in_half(values)
    assert torch.equal(layer(values), torch.nn.functional.linear(values, layer.weight, layer.bias))
    with half():
        assert multiplies_in_half(values)
        assert layer(values).dtype == torch.float32


def test_rows_are_filled_up_with_zeros():
    filled = as_half(torch.ones(ROWS + 1, 2))
    assert filled.shape == (2 * ROWS, 2)
    assert filled.float().sum() == 2 * (ROWS + 1)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("lengths", [[5, 2, 9, 1, 9, 9, 3], [16, 16], [7], [4, 0, 6]])
@pytest.mark.parametrize("some", [False, True])
def test_attention_and_its_gradient_stay_near_float32(lengths, window, some):
    qkv, borders = drawn(sum(lengths), 3, 2, 8), torch.tensor([0, *lengths]).cumsum(0).int()
    at = torch.arange(1, sum(lengths), 3)

    def compute(qkv: Tensor) -> Tensor:
        if some:
            return attention_at(at, qkv[at, 0], qkv[:, 1:], borders, max(lengths), window)
        return attention(qkv, borders, max(lengths), window)

    wanted, found = both_ways(compute, qkv)
    assert all(error(a, b) < 0.02 for a, b in zip(found, wanted, strict=True))


def test_no_sequence_sees_its_neighbours():
    lengths = [5, 4, 3, 12]
    qkv, borders = drawn(sum(lengths), 3, 2, 8).detach(), torch.tensor([0, *lengths]).cumsum(0).int()
    before = half_attention(None, qkv, borders, None, None)
    qkv[5:9] = 100.0
    after = half_attention(None, qkv, borders, None, None)
    others = torch.tensor([*range(5), *range(9, sum(lengths))])
    assert torch.equal(before[others], after[others])


def test_long_sequences_are_left_to_the_kernel_in_float32():
    with half():
        for length, taken in ((LONGEST, True), (LONGEST + 1, False)):
            assert takes_half(torch.zeros(length, 3, 1, 2), torch.tensor([0, length])) == taken


@pytest.mark.parametrize("num_targets", [ROWS, ROWS + 1])
def test_filling_adds_nothing_to_the_loss(num_targets):
    target = torch.randint(100, (num_targets,), generator=torch.Generator().manual_seed(3))
    inputs = drawn(num_targets, 16), drawn(100, 16, seed=1), drawn(100, seed=2)
    wanted, found = both_ways(lambda *inputs: summed_cross_entropy(*inputs, target), *inputs)
    assert all(error(a, b) < 0.01 for a, b in zip(found, wanted, strict=True))
