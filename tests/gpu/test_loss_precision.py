"""Loss and residual sums in half precision, as CUDA's autocast meets them: layer norm returns float32 there."""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bertkit.model.bert import with_rounded
from bertkit.model.loss import summed_cross_entropy


def tensors(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden, weight, bias = (torch.randn(*shape, generator=generator) for shape in ((64, 32), (100, 32), (100,)))
    target = torch.randint(100, (64,), generator=generator)
    return hidden.to(dtype).requires_grad_(), weight.requires_grad_(), bias.requires_grad_(), target


class Products(TorchDispatchMode):
    """Notes the types of every matrix product."""

    def __init__(self):
        super().__init__()
        self.dtypes: list[set[torch.dtype]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            self.dtypes.append({tensor.dtype for tensor in args if isinstance(tensor, Tensor)})
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_decides_the_precision_of_all_three_products(dtype):
    """Float32 hidden states under bf16 autocast made the backward pass multiply bf16 by float32, which raises."""
    hidden, weight, bias, target = tensors(dtype)
    with Products() as products:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = summed_cross_entropy(hidden, weight, bias, target)
        grads = torch.autograd.grad(loss * 0.1, (hidden, weight, bias))
    assert loss.dtype == torch.float32
    assert [grad.dtype for grad in grads] == [dtype, torch.float32, torch.float32]
    assert products.dtypes == [{torch.bfloat16}] * 2, "the backward pass; the forward pass is one operator"


def test_the_outline_for_a_compiler_says_what_the_operator_gives():
    hidden, weight, bias, target = tensors(torch.bfloat16)
    torch.library.opcheck(torch.ops.bertkit.summed_cross_entropy, (hidden, weight, bias, target))


def test_half_precision_does_not_round_the_factor_of_the_loss():
    """One over a count of targets has more digits than bf16; every gradient would be off by the same share."""
    factor = 1.0 / 1021
    assert abs(float(torch.tensor(factor).bfloat16()) / factor - 1) > 1e-3
    hidden, weight, bias, target = tensors(torch.bfloat16)
    once = torch.autograd.grad(summed_cross_entropy(hidden, weight, bias, target), (hidden, weight, bias))
    scaled = torch.autograd.grad(summed_cross_entropy(hidden, weight, bias, target) * factor, (hidden, weight, bias))
    for whole, part in zip(once, scaled, strict=True):
        assert part.float().norm() / whole.float().norm() == pytest.approx(factor, rel=5e-4)


def test_the_gradient_under_autocast_is_near_that_in_float32():
    hidden, weight, bias, target = tensors()
    wanted = torch.autograd.grad(summed_cross_entropy(hidden, weight, bias, target), (hidden, weight, bias))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = summed_cross_entropy(hidden, weight, bias, target)
    for a, b in zip(torch.autograd.grad(loss, (hidden, weight, bias)), wanted, strict=True):
        assert (a - b).norm() < 0.01 * b.norm()


def test_a_rounded_copy_has_the_gradient_that_autocast_gives():
    """Bit for bit: what was two kernels is one."""
    values, weight, _, _ = tensors()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        kept, rounded = with_rounded(values)
        assert (kept.dtype, rounded.dtype) == (torch.float32, torch.bfloat16)
        found = torch.autograd.grad((kept.sin().sum() + (rounded @ weight.T).float().cos().sum()), values)
        wanted = torch.autograd.grad((values.sin().sum() + (values @ weight.T).float().cos().sum()), values)
    assert torch.equal(found[0], wanted[0])
    assert with_rounded(values)[1] is values, "without autocast there is nothing to round"
