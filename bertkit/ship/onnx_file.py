"""A model as the bytes of an ONNX file, written from its weights; nothing is traced."""

import json
from typing import Any

import numpy as np

from bertkit import __version__
from bertkit.graph import Graph
from bertkit.hf.folder import PRODUCER
from bertkit.hf.models import Model
from bertkit.hf.onnx import FACTS

OPSET, IR_VERSION = 20, 9
"""Of January 2024: onnxruntime reads them from 1.17 on."""
_LARGEST = 2**31 - 2**20


def graph_of(model: Model) -> tuple[Graph, str]:
    """The graph, and the name of what it computes."""
    graph = Graph(model)
    return graph, model.graph(graph)


def onnx_bytes(graph: Graph, output: str, model: Model) -> bytes:
    """The file. Its metadata hold what `bertkit tag` needs, including the labels."""
    onnx = _onnx()
    if sum(array.nbytes for array in graph.weights.values()) > _LARGEST:
        raise ValueError("this model has more than 2 GB of weights, which one ONNX file cannot hold")
    helper, kinds = onnx.helper, onnx.TensorProto
    nodes = [
        helper.make_node(node.op, node.inputs, node.outputs, **_attributes(node.attributes, helper))
        for node in graph.nodes
    ]
    # Results are called as transformers calls them.
    result = "last_hidden_state" if model.kind == "bare" else "logits"
    nodes.append(helper.make_node("Identity", [output], [result]))
    width = model.config.hidden_size if model.kind == "bare" else len(model.labels) or model.config.vocab_size
    sequences = getattr(model, "judges_sequences", False)
    shape = ["batch_size", width] if sequences else ["batch_size", "sequence_length", width]
    made = helper.make_graph(
        nodes,
        "bertkit",
        [helper.make_tensor_value_info(name, kinds.INT64, ["batch_size", "sequence_length"]) for name in graph.inputs],
        [helper.make_tensor_value_info(result, kinds.FLOAT, shape)],
        [onnx.numpy_helper.from_array(array, name) for name, array in graph.weights.items()],
    )
    file = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    facts = {"kind": model.kind, "labels": list(model.labels)}
    file.producer_name, file.producer_version = PRODUCER, __version__
    helper.set_model_props(file, {FACTS: json.dumps(facts, ensure_ascii=False)})
    return file.SerializeToString()


def _attributes(attributes: dict[str, Any], helper: Any) -> dict[str, Any]:
    """As ONNX has them: a type by its number there."""
    if "to" not in attributes:
        return attributes
    return attributes | {"to": helper.np_dtype_to_tensor_dtype(np.dtype(attributes["to"]))}


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise ValueError("writing ONNX needs the packages of the extra onnx: pip install 'bertkit[onnx]'") from None
    return onnx
