"""Reads shards that other libraries wrote: MosaicML streaming (MDS), and Arrow as `datasets` saves it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.lines import open_bytes
from data_pipelines.text.readers import Piece, no_field, pieces_of_column, pieces_of_field
from data_pipelines.text.stores import StoredFile

_CODECS = {".zstd": "zstd", ".zst": "zstd", ".bz2": "bz2", ".br": "brotli"}
_SHAPE_TYPES = ("<u1", "<u2", "<u4", "<u8")
_VALUE_TYPES = {8: "<u1", 9: "<i1", 16: "<u2", 17: "<i2", 32: "<u4", 33: "<i4", 64: "<u8", 65: "<i8"}
"""Whole numbers, by the numbers that MDS has for them."""


def read_mds(path: Path | StoredFile, config: CorpusConfig) -> Iterator[Piece]:
    """A shard of MosaicML streaming: how many samples, where each begins, what they hold as JSON, the samples."""
    data = _unpacked(path)
    try:
        num_samples = int(np.frombuffer(data, "<u4", 1)[0])
        starts = np.frombuffer(data, "<u4", num_samples + 1, offset=4)
        if starts[-1] != len(data):
            raise ValueError(f"{len(data):,} bytes, expected {starts[-1]:,}")
        header = json.loads(data[4 * (num_samples + 2) : starts[0]])
        names, encodings, sizes = (header[f"column_{key}"] for key in ("names", "encodings", "sizes"))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"{path}: not readable as MDS: {error}") from None
    if config.field not in names:
        raise ValueError(no_field(f"{path}", config.field, names))
    column = names.index(config.field)
    for number in range(num_samples):
        place = f"{path}:sample {number + 1}"
        value = _cell(data[starts[number] : starts[number + 1]], sizes, column)
        yield from pieces_of_field({config.field: _decoded(value, encodings[column], place)}, config, place)


def read_arrow(path: Path | StoredFile, config: CorpusConfig) -> Iterator[Piece]:
    """Arrow, as a stream or as a file of record batches, the document in the named column."""
    import pyarrow

    with open_bytes(path) as file:
        try:
            is_file = file.read(6) == b"ARROW1"
            file.seek(0)
            table = pyarrow.ipc.open_file(file) if is_file else pyarrow.ipc.open_stream(file)
            if config.field not in table.schema.names:
                raise ValueError(no_field(f"{path}", config.field, table.schema.names))
            batches = map(table.get_batch, range(table.num_record_batches)) if is_file else table
            yield from pieces_of_column((batch.column(config.field) for batch in batches), config, path)
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{path}: not readable as Arrow: {' '.join(str(error).split())}") from None


def _unpacked(path: Path | StoredFile) -> bytes:
    """A shard, which its writer keeps to some 64 MB, as a whole."""
    with open_bytes(path) as file:
        if path.suffix not in _CODECS:
            return file.read()

        import pyarrow

        try:
            return pyarrow.CompressedInputStream(file, _CODECS[path.suffix]).read()
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{path}: damaged: {' '.join(str(error).split())}") from None


def _cell(sample: bytes, sizes: list[int | None], column: int) -> bytes:
    """One column of a sample, which begins with the sizes of those columns that have no fixed one."""
    given = iter(np.frombuffer(sample, "<u4", sum(not size for size in sizes)).tolist())
    lengths = [size or next(given) for size in sizes]
    start = 4 * sum(not size for size in sizes) + sum(lengths[:column])
    return sample[start : start + lengths[column]]


def _decoded(data: bytes, encoding: str, place: str) -> Any:
    kind, *details = encoding.split(":")
    if kind in ("str", "bytes"):
        return data
    if kind == "json":
        return json.loads(data)
    if kind == "ndarray":
        return _array(data, details, place)
    why = "a pickle, which runs code when opened" if kind == "pkl" else "neither text nor a list of ids"
    raise ValueError(f"{place}: the column holds {encoding}, {why}; choose another one with field")


def _array(data: bytes, details: list[str], place: str) -> np.ndarray:
    """An array that says its type and shape before its values, unless its column does: `ndarray`, `ndarray:int32`,
    `ndarray:int32:512`."""
    start = 0
    if not details or not details[0]:
        kind, start = _VALUE_TYPES.get(data[0]), 1
    else:
        kind = details[0] if re.fullmatch(r"u?int(8|16|32|64)", details[0]) else None
    if kind is None:
        raise ValueError(f"{place}: the column holds no whole numbers")
    if len(details) < 2:
        dimensions, shape_type = data[start] >> 2, _SHAPE_TYPES[data[start] & 3]
        start += 1 + dimensions * np.dtype(shape_type).itemsize
    return np.frombuffer(data, np.dtype(kind).newbyteorder("<"), offset=start)
