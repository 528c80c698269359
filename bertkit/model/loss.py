"""Hidden states of the masked tokens enter, their summed cross-entropy leaves; the logits are held once.

Differentiating a cross-entropy keeps the logits, their softmax and its gradient, each masked tokens × vocabulary:
the largest arrays of a step. Here the gradient is written over the logits while the loss is computed.
"""

# M masked tokens, D width, V vocabulary

import torch
from torch import Tensor


def summed_cross_entropy(hidden_MD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, target_M: Tensor) -> Tensor:
    """The summed loss of predicting `target_M` by `hidden_MD @ weight_VD.T + bias_V`, a scalar in float32."""
    return torch.ops.bertkit.summed_cross_entropy(hidden_MD, weight_VD, bias_V, target_M, torch.is_grad_enabled())[0]


@torch.library.custom_op("bertkit::summed_cross_entropy", mutates_args=())
def _summed_cross_entropy(
    hidden_MD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, target_M: Tensor, differentiable: bool
) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient by the logits (empty where nothing is differentiated)."""
    weight_VD = weight_VD.to(hidden_MD.dtype)
    bias_V = None if bias_V is None else bias_V.to(hidden_MD.dtype)
    loss = hidden_MD.new_zeros((), dtype=torch.float32)
    grad_MV = hidden_MD.new_empty(len(hidden_MD) if differentiable else 0, len(weight_VD))
    for start in range(0, len(hidden_MD), _ROWS):
        rows = slice(start, start + _ROWS)
        logits = torch.nn.functional.linear(hidden_MD[rows], weight_VD, bias_V)
        target = target_M[rows, None]
        log_probability = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
        loss -= log_probability.gather(1, target).sum()
        if differentiable:
            probability = log_probability.exp_()
            grad_MV[rows] = probability.scatter_add_(1, target, probability.new_full((1, 1), -1).expand(target.shape))
    return loss, grad_MV


@_summed_cross_entropy.register_fake
def _(hidden_MD, weight_VD, bias_V, target_M, differentiable):
    num_rows = hidden_MD.shape[0] if differentiable else 0
    return hidden_MD.new_empty((), dtype=torch.float32), hidden_MD.new_empty(num_rows, weight_VD.shape[0])


def _save_for_backward(ctx, inputs, output):
    hidden_MD, weight_VD, _, _, _ = inputs
    ctx.save_for_backward(hidden_MD, weight_VD, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx, grad_loss, _):
    hidden_MD, weight_VD, grad_MV = ctx.saved_tensors
    needs_hidden, needs_weight, needs_bias, *_ = ctx.needs_input_grad
    scale = grad_loss.to(grad_MV.dtype)
    grad_hidden_MD = (grad_MV @ weight_VD.to(grad_MV.dtype)) * scale if needs_hidden else None
    grad_weight_VD = (grad_MV.T @ (hidden_MD * scale)).to(weight_VD.dtype) if needs_weight else None
    grad_bias_V = (grad_MV.sum(0, dtype=torch.float32) * grad_loss).to(weight_VD.dtype) if needs_bias else None
    return grad_hidden_MD, grad_weight_VD, grad_bias_V, None, None


_summed_cross_entropy.register_autograd(_backward, setup_context=_save_for_backward)

# So many rows of logits at a time: enough for an efficient product, few enough to stay in cache.
_ROWS = 128
