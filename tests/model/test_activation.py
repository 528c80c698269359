"""A name means the function that transformers calls by it."""

from typing import get_args

import pytest
import torch
from reference import reference_transformers

from bertkit.model.config import ActivationName
from bertkit.model.encoder import activation


@pytest.mark.parametrize("name", get_args(ActivationName))
def test_every_name_is_the_function_of_transformers(name):
    theirs = reference_transformers().activations.ACT2FN[name]
    values = torch.linspace(-6, 6, 101)
    torch.testing.assert_close(activation(name)(values), theirs(values), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "at_one"),
    [("gelu", 0.841345), ("gelu_new", 0.841192), ("gelu_pytorch_tanh", 0.841192), ("relu", 1.0), ("silu", 0.731059)],
)
def test_values_by_hand(name, at_one):
    found = activation(name)(torch.tensor([-100.0, 0.0, 1.0, 100.0]))
    torch.testing.assert_close(found, torch.tensor([0.0, 0.0, at_one, 100.0]), atol=1e-5, rtol=1e-5)
