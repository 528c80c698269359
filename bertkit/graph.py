"""What a model computes, written down node by node in the operators of ONNX, beside its weights.

A family writes its part in `Encoder.graph`, a head in `ModelWithHead.graph`. What becomes of it, a file for onnxruntime
or a page that computes by itself, is not known here, and no package for it is needed.
"""

# B rows, L padded length, D width, H heads, E channels per head

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn

HIDDEN = -1e9
"""What is added to the score of a token that is not to be seen: far less than any score, and finite, so that a row of
padding alone is no division by zero."""


class Node(NamedTuple):
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


class Graph:
    """Nodes in the order of computation. `graph("Add", x, y)` appends one and gives the name of its result; an argument
    that is a number or an array becomes a constant."""

    def __init__(self, model: nn.Module | None = None):
        self.inputs: list[str] = []
        """Names of the inputs, each (batch, length) of whole numbers."""
        self.nodes: list[Node] = []
        self.weights: dict[str, np.ndarray] = {}
        """Weights by their names in the model, those of linear layers transposed; and constants."""
        named = () if model is None else model.named_parameters()
        self._names = {id(parameter): name for name, parameter in named}
        self._reused: dict[Any, str] = {}

    def __call__(self, op: str, *inputs: Any, **attributes: Any) -> str:
        return self.several(1, op, *inputs, **attributes)[0]

    def several(self, count: int, op: str, *inputs: Any, **attributes: Any) -> tuple[str, ...]:
        """A node with several results."""
        given = tuple(one if isinstance(one, str) else self.constant(one) for one in inputs)
        outputs = tuple(f"{op}_{len(self.nodes)}" + (f"_{index}" if count > 1 else "") for index in range(count))
        self.nodes.append(Node(op, given, outputs, attributes))
        return outputs

    def input(self, name: str) -> str:
        if name not in self.inputs:
            self.inputs.append(name)
        return name

    def constant(self, value: Any) -> str:
        """A number is a float32 if it is a float, else an int64."""
        array = np.asarray(value)
        array = array.astype({"f": np.float32, "i": np.int64}.get(array.dtype.kind, array.dtype))
        key = (array.dtype.str, array.shape, array.tobytes())
        return self._once(key, lambda: self._add(f"constant_{len(self.weights)}", array))

    def weight(self, tensor: Tensor, transposed: bool = False) -> str:
        name = self._names[id(tensor)]
        array = tensor.detach().cpu().float().numpy()
        return self._once(name, lambda: self._add(name, np.ascontiguousarray(array.T if transposed else array)))

    def linear(self, layer: nn.Linear, values: str) -> str:
        product = self("MatMul", values, self.weight(layer.weight, transposed=True))
        return product if layer.bias is None else self("Add", product, self.weight(layer.bias))

    def norm(self, layer: nn.LayerNorm, values: str) -> str:
        # Without a bias, onnxruntime before 1.19 ends the process when it looks for layers to fuse.
        bias = np.zeros(layer.weight.shape) if layer.bias is None else self.weight(layer.bias)
        return self("LayerNormalization", values, self.weight(layer.weight), bias, axis=-1, epsilon=layer.eps)

    def activation(self, name: str, values: str) -> str:
        if name == "silu":
            return self("Mul", values, self("Sigmoid", values))
        if name.startswith("gelu"):
            return self("Gelu", values, approximate="none" if name == "gelu" else "tanh")
        return self({"relu": "Relu", "tanh": "Tanh"}[name], values)

    def positions(self) -> str:
        """(B, L): each token's position, from its row's first real token on."""
        mask = self.input("attention_mask")
        before = lambda: self("Sub", self("CumSum", mask, 1), 1)  # noqa: E731
        return self._once("positions", lambda: self("Max", before(), 0))

    def attention(self, qkv: str, width: int, num_heads: int, window: int | None = None, rotation: Any = None) -> str:
        """What tokens take from each other, (B, L, D), from the (B, L, 3D) queries, keys and values; `rotation` turns
        queries and keys, (B, H, L, E)."""
        parts = self.several(3, "Split", qkv, axis=-1, num_outputs=3)
        split = [self("Reshape", part, [0, 0, num_heads, width // num_heads]) for part in parts]
        query, key, value = (self("Transpose", part, perm=[0, 2, 1, 3]) for part in split)
        if rotation is not None:
            query, key = self._rotated(query, rotation), self._rotated(key, rotation)
        query = self("Mul", query, (width // num_heads) ** -0.5)
        scores = self("MatMul", query, self("Transpose", key, perm=[0, 1, 3, 2]))
        weights = self("Softmax", self("Add", scores, self._unseen(window)), axis=-1)
        context = self("Transpose", self("MatMul", weights, value), perm=[0, 2, 1, 3])
        return self("Reshape", context, [0, 0, width])

    def rotation(self, head_size: int, theta: float) -> tuple[str, str]:
        """Cosines and sines, (B, 1, L, E/2)."""
        frequency = 1.0 / np.float32(theta) ** (np.arange(0, head_size, 2, dtype=np.float32) / np.float32(head_size))
        place = self("Unsqueeze", self("Cast", self.positions(), to="float32"), [1, 3])
        angle = self("Mul", place, frequency)
        return self("Cos", angle), self("Sin", angle)

    def pooled(self, hidden: str, pooling: str) -> str:
        """(B, D): each row's first real token, or the mean of all."""
        mask = self.input("attention_mask")
        if pooling == "cls":
            first = self("And", self("Equal", self.positions(), 0), self("Equal", mask, 1))
            share = self("Cast", first, to="float32")
        else:
            count = self("Max", self("ReduceSum", mask, [1], keepdims=1), 1)
            share = self("Div", self("Cast", mask, to="float32"), self("Cast", count, to="float32"))
        return self("Squeeze", self("MatMul", self("Unsqueeze", share, [1]), hidden), [1])

    def _rotated(self, values: str, rotation: tuple[str, str]) -> str:
        cos, sin = rotation
        first, second = self.several(2, "Split", values, axis=-1, num_outputs=2)
        turned = self("Sub", self("Mul", first, cos), self("Mul", second, sin))
        return self("Concat", turned, self("Add", self("Mul", second, cos), self("Mul", first, sin)), axis=-1)

    def _unseen(self, window: int | None) -> str:
        """(B, 1, 1, L), or with a window (B, 1, L, L): what is added to scores."""

        def padding() -> str:
            absent = self("Sub", 1.0, self("Cast", self.input("attention_mask"), to="float32"))
            return self("Unsqueeze", self("Mul", absent, HIDDEN), [1, 2])

        def beyond() -> str:
            length = self("Gather", self("Shape", self.input("input_ids")), 1)
            place = self("Range", 0, length, 1)
            distance = self("Abs", self("Sub", self("Unsqueeze", place, [0]), self("Unsqueeze", place, [1])))
            far = self("Cast", self("Greater", distance, window), to="float32")
            return self("Add", self._once("padding", padding), self("Mul", far, HIDDEN))

        return self._once("padding", padding) if window is None else self._once(("window", window), beyond)

    def _once(self, key: Any, make: Any) -> str:
        if key not in self._reused:
            self._reused[key] = make()
        return self._reused[key]

    def _add(self, name: str, array: np.ndarray) -> str:
        self.weights[name] = array
        return name
