"""Hidden states of the masked tokens enter, their summed cross-entropy leaves; the logits are held once.

Differentiating a cross-entropy step by step keeps the logits, their softmax and its gradient, each masked tokens ×
vocabulary: the largest arrays of a training step. Here the gradient is written over the logits at once.
"""

# M masked tokens, D width, V vocabulary

import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.model.products.linear import ROWS, product, weight_gradient


def summed_cross_entropy(hidden_MD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, target_M: Tensor) -> Tensor:
    """The summed loss of predicting `target_M` by `hidden_MD @ weight_VD.T + bias_V`, a scalar in float32."""
    device = hidden_MD.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        # Precision is chosen before the operator: autocast inside it would reach the products of the forward pass, but
        # neither the tensors saved for the backward pass nor the outline that a compiler traces.
        hidden_MD = hidden_MD.to(torch.get_autocast_dtype(device))
        if device == "cpu":  # as linear layers there
            hidden_MD = F.pad(hidden_MD, (0, 0, 0, -len(hidden_MD) % ROWS))
        with torch.autocast(device, enabled=False):
            return summed_cross_entropy(hidden_MD, weight_VD, bias_V, target_M)
    return torch.ops.bertkit.summed_cross_entropy(hidden_MD, weight_VD, bias_V, target_M)[0]


@torch.library.custom_op("bertkit::summed_cross_entropy", mutates_args=())
def _summed_cross_entropy(
    hidden_MD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, target_M: Tensor
) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient by the logits. Rows of `hidden_MD` beyond the targets are filling."""
    bias_V = None if bias_V is None else bias_V.to(hidden_MD.dtype)
    filled_MV = product(hidden_MD, weight_VD.to(hidden_MD.dtype), bias_V)
    filled_MV[len(target_M) :] = 0
    logits_MV = filled_MV[: len(target_M)]
    target_M1 = target_M[:, None]
    loss = hidden_MD.new_zeros((), dtype=torch.float32)
    rows_at_a_time = _rows_at_a_time(logits_MV)
    for start in range(0, len(logits_MV), rows_at_a_time):
        rows = slice(start, start + rows_at_a_time)
        log_probability = torch.log_softmax(logits_MV[rows], dim=-1, dtype=torch.float32)
        loss -= log_probability.gather(1, target_M1[rows]).sum()
        torch.exp(log_probability, out=logits_MV[rows])
    gradient_MV = logits_MV
    # Not scatter_add_, which has no deterministic kernel on CUDA: a row has one target.
    gradient_MV.scatter_(1, target_M1, gradient_MV.gather(1, target_M1) - 1)
    return loss, filled_MV


@_summed_cross_entropy.register_fake
def _(hidden_MD, weight_VD, bias_V, target_M):
    return hidden_MD.new_empty((), dtype=torch.float32), hidden_MD.new_empty(hidden_MD.shape[0], weight_VD.shape[0])


def _save_for_backward(ctx, inputs, output):
    hidden_MD, weight_VD, _, _ = inputs
    ctx.save_for_backward(hidden_MD, weight_VD, output[1])
    ctx.mark_non_differentiable(output[1])
    # Without this, autograd would fill an array of the size of the logits with zeros.
    ctx.set_materialize_grads(False)


def _backward(ctx, grad_loss, _):
    if grad_loss is None:
        return None, None, None, None
    hidden_MD, weight_VD, gradient_MV = ctx.saved_tensors
    needs_hidden, needs_weight, needs_bias, _ = ctx.needs_input_grad
    # The factor from above goes to the small arrays, never through the large one. As a tensor of one dimension it
    # keeps its digits: a scalar would be rounded to half precision first.
    scale = grad_loss[None]
    grad_hidden_MD = product(gradient_MV, weight_VD.T.to(gradient_MV.dtype)).mul_(scale) if needs_hidden else None
    scaled_MD = torch.mul(hidden_MD, scale, out=torch.empty_like(hidden_MD)) if needs_weight else None
    grad_weight_VD = None if scaled_MD is None else weight_gradient(gradient_MV, scaled_MD).to(weight_VD.dtype)
    grad_bias_V = (gradient_MV.sum(0, dtype=torch.float32) * grad_loss).to(weight_VD.dtype) if needs_bias else None
    return grad_hidden_MD, grad_weight_VD, grad_bias_V, None


_summed_cross_entropy.register_autograd(_backward, setup_context=_save_for_backward)


def _rows_at_a_time(logits_MV: Tensor) -> int:
    """On a CPU so few that a softmax and its exponential stay in cache; elsewhere so few that the float32 copy of
    half-precision logits stays small."""
    num_values = 2**19 if logits_MV.device.type == "cpu" else 2**26
    return max(1, num_values // logits_MV.shape[1])
