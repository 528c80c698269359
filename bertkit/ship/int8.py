"""A graph in float32 becomes one whose large products are computed in int8.

A weight has a scale for each channel of its output, a table of embeddings one for each row. An activation has a scale
for each token, found while it is computed: one scale for a whole batch, as other tools have it, would let the tags of a
sentence depend on the sentences beside it.
"""

from collections.abc import Collection, Iterator

import numpy as np

from bertkit.graph import Graph, Node

LARGEST = 63
"""Weights have 7 bits and a sign less: processors without VNNI add two products of 8 bits in 16, which would overflow,
silently. It costs little accuracy, and the file computes the same everywhere."""
_MANY_ROWS = 256
"""A smaller table is not worth it."""


def weights_to_quantize(graph: Graph) -> list[str]:
    """Weights of linear layers and large tables of embeddings, in the order of computation."""
    return list(dict.fromkeys(name for _, name in _uses(graph)))


def quantized(graph: Graph, output: str, kept: Collection[str] = ()) -> tuple[Graph, str]:
    """The same computation, with int8 for all weights that are not `kept` in float32."""
    uses = {node.outputs[0]: name for node, name in _uses(graph) if name not in kept}
    new = Quantizer(graph)
    for node in graph.nodes:
        name = uses.get(node.outputs[0])
        if name is None:
            new.copy(node)
        elif node.op == "Gather":
            new.look_up(node, name)
        elif node.op == "Transpose":
            new.transpose(node, name)
        else:
            new.multiply(node, name)
    return new.graph, new.names[output]


class Quantizer:
    """Builds the new graph; `names` says what became of the results of the old one."""

    def __init__(self, old: Graph):
        self.old, self.graph = old, Graph()
        self.graph.inputs = list(old.inputs)
        self.names: dict[str, str] = {}
        self._activations: dict[str, tuple[str, str]] = {}

    def copy(self, node: Node) -> None:
        made = self.graph.several(len(node.outputs), node.op, *map(self._given, node.inputs), **node.attributes)
        self.names.update(zip(node.outputs, made, strict=True))

    def look_up(self, node: Node, name: str) -> None:
        table, scale = self._weight(name, axis=1)
        ids = self._given(node.inputs[1])
        rows = self.graph("Cast", self.graph("Gather", table, ids), to="float32")
        self.names[node.outputs[0]] = self.graph(
            "Mul", rows, self.graph("Unsqueeze", self.graph("Gather", scale, ids), [-1])
        )

    def transpose(self, node: Node, name: str) -> None:
        """Of the table that a masked-LM head shares with the embeddings: its rows are the head's output channels."""
        self.names[node.outputs[0]] = self.graph("Transpose", self._weight(name, axis=1)[0], **node.attributes)

    def multiply(self, node: Node, name: str) -> None:
        """Between quantized values and weights, a runtime computes this product in int8."""
        transposed = node.inputs[1] != name
        weight, scale = self._weight(name, axis=1 if transposed else 0)
        whole, token_scale = self._activation(self._given(node.inputs[0]))
        values = self.graph("DequantizeLinear", whole, 1.0, np.uint8(128))
        weights = self.graph("DequantizeLinear", self.names[node.inputs[1]] if transposed else weight, scale, axis=1)
        self.names[node.outputs[0]] = self.graph("Mul", self.graph("MatMul", values, weights), token_scale)

    def _given(self, name: str) -> str:
        if name in self.old.weights and name not in self.names:
            array = self.old.weights[name]
            if name.startswith("constant_"):
                self.names[name] = self.graph.constant(array)
            else:
                self.graph.weights[name] = array
                self.names[name] = name
        return self.names.get(name, name)

    def _weight(self, name: str, axis: int) -> tuple[str, str]:
        """The weight in int8 and its scales, one for each of what stays when `axis` is summed over."""
        whole, scale = f"{name}.int8", f"{name}.scale"
        if whole not in self.graph.weights:
            array = self.old.weights[name]
            largest = np.abs(array).max(axis=axis, keepdims=True)
            scales = np.where(largest > 0, largest / LARGEST, 1.0).astype(np.float32)
            self.graph.weights[whole] = np.rint(array / scales).astype(np.int8)
            self.graph.weights[scale] = scales.squeeze(axis)
        return whole, scale

    def _activation(self, name: str) -> tuple[str, str]:
        """Values in [-127, 127] around 128, the form that processors multiply fastest, and the scale of each token."""
        if name not in self._activations:
            highest, lowest = (self.graph(f"Reduce{end}", name, [-1], keepdims=1) for end in ("Max", "Min"))
            largest = self.graph("Max", highest, self.graph("Neg", lowest))
            scale = self.graph("Div", self.graph("Max", largest, 1e-9), 127.0)
            whole = self.graph("QuantizeLinear", self.graph("Div", name, scale), 1.0, np.uint8(128))
            self._activations[name] = (whole, scale)
        return self._activations[name]


def _uses(graph: Graph) -> Iterator[tuple[Node, str]]:
    """Nodes that can be computed in int8, each with the weight it takes."""
    transposed: dict[str, str] = {}
    for node in graph.nodes:
        first, second = (*node.inputs, "", "")[:2]
        if node.op == "MatMul" and (weight := transposed.get(second, second)) in graph.weights:
            yield node, weight
        elif node.op == "Gather" and len(graph.weights.get(first, ())) >= _MANY_ROWS:
            yield node, first
        elif node.op == "Transpose" and first in graph.weights:
            transposed[node.outputs[0]] = first
            yield node, first
