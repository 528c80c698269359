"""Linear layers, each product in the precision that autocast asks for, by the library that is fastest on this CPU."""

# T tokens, filled up to a multiple of ROWS where they are in bf16, I channels in, O channels out

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.cpu import onednn_is_faster
from bertkit.model.products import multiplies_in_half

ROWS = 32
"""Torch prepares a kernel for each new shape, which takes as long as a small product. Batches of almost as many tokens
share one, as their rows are filled up with zeros to a multiple of this."""

FEWEST = 64
"""Rows and channels of what oneDNN multiplies in float32. To prepare a kernel takes as long as a smaller product."""


class Linear(nn.Linear):
    def forward(self, values: Tensor, stays_half: bool = False) -> Tensor:
        return linear(values, self.weight, self.bias, stays_half)


def linear(values: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None, stays_half: bool = False) -> Tensor:
    """`values @ weight_OI.T + bias_O`. What was multiplied in bf16 is made float32 again, unless it `stays_half`:
    between two products, where the second one would round it anyway."""
    if values.dim() == 2 and multiplies_in_half(values):
        return _HalfLinear.apply(values, weight_OI, bias_O, stays_half)
    if _takes_onednn(values, weight_OI):
        return _OneDnnLinear.apply(values, weight_OI, bias_O)
    return F.linear(values, weight_OI, bias_O)


def product(values_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """The same in the precision of what is given, for code that autograd does not look into."""
    if _takes_onednn(values_TI, weight_OI):
        return _by_onednn(values_TI, weight_OI, bias_O)
    return F.linear(values_TI, weight_OI, bias_O)


def weight_gradient(grad_TO: Tensor, values_TI: Tensor) -> Tensor:
    """`grad_TO.T @ values_TI`, likewise. The smaller of two transposed factors comes first, as oneDNN copies that."""
    if not (_takes_onednn(grad_TO, values_TI) and onednn_is_faster(transposed=True)):
        return grad_TO.T @ values_TI
    if grad_TO.shape[1] > values_TI.shape[1]:
        return _by_onednn(values_TI.T, grad_TO.T, None).T
    return _by_onednn(grad_TO.T, values_TI.T, None)


def as_half(values_TI: Tensor) -> Tensor:
    """A copy in bf16, with rows of zeros at its end."""
    missing = -len(values_TI) % ROWS
    if not missing:
        return values_TI.to(torch.bfloat16)
    half_TI = values_TI.new_empty(len(values_TI) + missing, values_TI.shape[1], dtype=torch.bfloat16)
    half_TI[: len(values_TI)] = values_TI
    half_TI[len(values_TI) :] = 0
    return half_TI


class _HalfLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, stays_half: bool) -> Tensor:
        half_TI, half_OI = as_half(values_TI), weight_OI.to(torch.bfloat16)
        ctx.save_for_backward(half_TI, half_OI)
        ctx.dtypes = [None if given is None else given.dtype for given in (values_TI, weight_OI, bias_O)]
        product_TO = (half_TI @ half_OI.T)[: len(values_TI)]
        if not stays_half:
            product_TO = product_TO.float()
        return product_TO if bias_O is None else product_TO.add_(bias_O)

    @staticmethod
    def backward(ctx: Any, grad_TO: Tensor) -> tuple[Tensor | None, ...]:
        half_TI, half_OI = ctx.saved_tensors
        needs_values, needs_weight, needs_bias, _ = ctx.needs_input_grad
        half_TO = as_half(grad_TO)
        grads = (
            (half_TO @ half_OI)[: len(grad_TO)] if needs_values else None,
            half_TO.T @ half_TI if needs_weight else None,
            grad_TO.sum(0) if needs_bias else None,
        )
        return *(grad if grad is None else grad.to(dtype) for grad, dtype in zip(grads, ctx.dtypes, strict=True)), None


def _takes_onednn(values: Tensor, weight_OI: Tensor) -> bool:
    if torch.compiler.is_compiling() or values.device.type != "cpu" or values.dim() != 2:
        return False
    is_float32 = values.dtype == weight_OI.dtype == torch.float32
    return is_float32 and min(values.shape) >= FEWEST and onednn_is_faster()


def _by_onednn(values_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(values_TI, weight_OI, bias_O, "none", [], "")


class _OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(values_TI, weight_OI)
        return _by_onednn(values_TI, weight_OI, bias_O)

    @staticmethod
    def backward(ctx: Any, grad_TO: Tensor) -> tuple[Tensor | None, ...]:
        values_TI, weight_OI = ctx.saved_tensors
        needs_values, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            product(grad_TO, weight_OI.T) if needs_values else None,
            weight_gradient(grad_TO, values_TI) if needs_weight else None,
            grad_TO.sum(0) if needs_bias else None,
        )
