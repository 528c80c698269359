"""Opens the ONNX graphs of a folder with onnxruntime: rows of ids enter, logits leave. Torch is not needed."""

# B rows, L padded length, K labels or vocabulary, M targets

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bertkit.hf.config import read_config
from bertkit.hf.folder import FULL, QUANTIZED
from bertkit.model.config import EncoderConfig
from data_pipelines.cores import num_cores

FACTS = "bertkit"
"""The entry of a graph's metadata with the facts for `OnnxModel`."""

_SLOW_FUSIONS = {"SkipLayerNormFusion", "BiasGeluFusion"}
"""Optimizations of onnxruntime that make a graph slower on a CPU, by up to a quarter."""
_MOST_LOGITS = 1 << 25
"""Computed at once: a vocabulary of 30,000 tokens makes them many."""


def open_graph(folder: Path, backend: str = "onnx", *kinds: str, remedy: str = "") -> "OnnxModel":
    """The graph of a folder that bertkit exported, in float32 or in int8, with the config next to it; of one of these
    kinds, if any are named."""
    name = QUANTIZED if backend == "int8" else FULL
    if not (folder / name).is_file():
        raise ValueError(f"{folder} holds no {name}; `bertkit export --format onnx` writes one (--int8 the quantized)")
    source = folder / "config.json"
    try:
        values = json.loads(source.read_text(encoding="utf-8"))
        config = read_config(values, values["model_type"], source)
    except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{source} was not written by bertkit, or was changed: {error!r}") from None
    model = OnnxModel(folder / name, config)
    if kinds and model.kind not in kinds:
        needed = f"{folder} holds a {model.kind}, but a {' or a '.join(kinds)} is needed"
        raise ValueError(needed + (f"; {remedy}" if remedy else ""))
    return model


class OnnxModel:
    """A graph that bertkit wrote, with its metadata."""

    flushes_denormals: ClassVar[bool] = False
    """Whether the thread that opens a graph takes denormal numbers for zero from then on; verbs set it for theirs."""

    def __init__(self, graph: Path | bytes, config: EncoderConfig):
        """`graph` is a file, or what one holds."""
        runtime = _onnxruntime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = num_threads()
        options.log_severity_level = 3
        # Shapes change with every batch, so there is no pattern to learn; denormal numbers slow products.
        options.enable_mem_pattern = False
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
        source = graph if isinstance(graph, bytes) else str(graph)
        name = "this graph" if isinstance(graph, bytes) else str(graph)

        def open_session() -> Any:
            return runtime.InferenceSession(
                source, options, providers=["CPUExecutionProvider"], disabled_optimizers=_SLOW_FUSIONS
            )

        try:
            if self.flushes_denormals:
                self._session = open_session()
            else:  # a session changes how the thread that opens it computes, so it is one that then ends
                with ThreadPoolExecutor(1) as thread:
                    self._session = thread.submit(open_session).result()
        except Exception as error:  # the runtime's errors have no common type
            raise ValueError(f"{name} cannot be opened by onnxruntime {runtime.__version__}: {error}") from None
        facts = self._session.get_modelmeta().custom_metadata_map.get(FACTS)
        if facts is None:
            raise ValueError(f"{name} was not written by bertkit; write it by `bertkit export --format onnx`")
        self.config = config
        self.kind: str = json.loads(facts)["kind"]
        self.labels: tuple[str, ...] = tuple(json.loads(facts)["labels"])
        self._inputs = [given.name for given in self._session.get_inputs()]

    def __call__(self, rows: Sequence[np.ndarray], types: Sequence[np.ndarray | None] | None = None) -> np.ndarray:
        """The logits of rows of ids, (B, L, K), or (B, K) of a classifier; values at padding mean nothing."""
        lengths = np.array([len(row) for row in rows])
        mask_BL = np.arange(lengths.max()) < lengths[:, None]
        given = {"input_ids": _padded(rows, mask_BL), "attention_mask": mask_BL.astype(np.int64)}
        if types is None or types[0] is None:
            given["token_type_ids"] = np.zeros(mask_BL.shape, np.int64)
        else:
            given["token_type_ids"] = _padded(types, mask_BL)
        return self._session.run(None, {name: given[name] for name in self._inputs})[0]

    def target_logits(self, batch: Any) -> np.ndarray:
        """(M, K) at the targets of a packed batch of arrays, computed a few rows at a time."""
        borders = batch.cu_seqlens
        width = len(self.labels) or self.config.vocab_size
        at_once = max(1, _MOST_LOGITS // (batch.max_seqlen * width))
        found = []
        for first in range(0, len(borders) - 1, at_once):
            edges = borders[first : first + at_once + 1]
            logits_BLK = self([batch.input_ids[start:end] for start, end in pairwise(edges)])
            targets = batch.target_index[slice(*np.searchsorted(batch.target_index, edges[[0, -1]]))]
            row = np.searchsorted(edges, targets, side="right") - 1
            found.append(logits_BLK[row, targets - edges[row]])
        return np.concatenate(found)


def num_threads() -> int:
    """Those that OMP_NUM_THREADS asks for, as torch reads it; else one for each CPU that this process may use. Where it
    may use all, 0: the runtime then counts the cores itself, but it does not know of a process that is kept to some."""
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if asked.isdigit():
        return int(asked)
    return num_cores() if num_cores() < (os.cpu_count() or 1) else 0


def _padded(rows: Sequence[Any], mask_BL: np.ndarray) -> np.ndarray:
    """Whatever fills the rest is masked."""
    values_BL = np.zeros(mask_BL.shape, np.int64)
    values_BL[mask_BL] = np.concatenate(rows)
    return values_BL


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise ValueError("an ONNX graph needs onnxruntime: pip install onnxruntime") from None
    return onnxruntime
