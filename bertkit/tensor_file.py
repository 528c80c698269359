"""The safetensors format by hand: tensors can be written one by one, and equal tensors are equal bytes.

The library needs all tensors at once and orders metadata randomly.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

_DTYPES = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_AT_ONCE = 2**22


def in_order(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same in the order of a file: by name, but the widest types first, so that each lies where it can be read in
    place."""
    return {name: tensors[name] for name in sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))}


def header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes before the tensors, which follow in this order. Only their types and shapes are used."""
    facts: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.itemsize
        facts[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(facts, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def bytes_of(tensor: Tensor) -> memoryview:
    """What a tensor of the host holds, not copied unless it lies apart."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data


def blocks_of(tensors: Iterable[Tensor]) -> Iterator[bytes]:
    """What tensors hold, one after the other, in blocks of a few megabytes. These are copies: each tensor can be freed
    before the next one is made."""
    block = bytearray()
    for tensor in tensors:
        held = bytes_of(tensor)
        for start in range(0, len(held), _AT_ONCE):
            block += held[start : start + _AT_ONCE]
            if len(block) >= _AT_ONCE:
                yield bytes(block)
                block.clear()
        del tensor, held
    yield bytes(block)
