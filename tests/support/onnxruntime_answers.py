"""Computes every graph of a folder with the onnxruntime of this interpreter; given.npz enters, arrays leave."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime

folder = Path(sys.argv[1])
given = dict(np.load(folder / "given.npz"))
for graph in sorted(folder.glob("*.onnx")):
    session = onnxruntime.InferenceSession(str(graph))
    np.save(
        graph.with_suffix(".npy"), session.run(None, {one.name: given[one.name] for one in session.get_inputs()})[0]
    )
