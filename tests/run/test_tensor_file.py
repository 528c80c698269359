"""Tensors written by hand are what the safetensors library writes, and need not be in memory together."""

import weakref

import pytest
import safetensors.torch
import torch

from bertkit import tensor_file
from bertkit.tensor_file import blocks_of, header, in_order

TENSORS = {
    "b": torch.arange(12.0).view(3, 4),
    "a/step": torch.tensor(7.0),
    "wide": torch.randn(2, 3, dtype=torch.float64),
    "half": torch.randn(2, 2).bfloat16(),
    "turned": torch.arange(6.0).view(2, 3).T,
    "empty": torch.zeros(0, 3),
    "counts": torch.tensor([1, 2]),
    "odd": torch.tensor([True, False, True]),
}


@pytest.mark.parametrize("at_once", [5, 2**22])
def test_the_bytes_are_those_of_the_library(at_once, monkeypatch):
    monkeypatch.setattr(tensor_file, "_AT_ONCE", at_once)
    ordered = in_order(TENSORS)
    written = header(ordered) + b"".join(blocks_of(ordered.values()))
    assert written == safetensors.torch.save({name: tensor.contiguous() for name, tensor in TENSORS.items()})


def test_a_tensor_is_free_before_the_next_is_made(monkeypatch):
    monkeypatch.setattr(tensor_file, "_AT_ONCE", 64)
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()

    def made():
        for _ in range(5):
            assert not alive
            tensor = torch.ones(100)
            alive.add(tensor)
            yield tensor
            del tensor

    assert len(b"".join(blocks_of(made()))) == 5 * 400
