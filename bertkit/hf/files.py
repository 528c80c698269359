"""Reads and writes safetensors files; any other file that can hold weights is refused unopened."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bertkit.hf.folder import FULL, INDEX, QUANTIZED, SINGLE, check_weights
from bertkit.tensor_file import bytes_of, header
from data_pipelines import durable

_DIGEST = "bertkit_sha256"
OTHER_TOKENIZERS = (
    *("vocab.txt", "vocab.json", "merges.txt", "added_tokens.json", "special_tokens_map.json"),
    *("spiece.model", "tokenizer.model", "sentencepiece.bpe.model"),
)
"""What else readers would take a tokenizer from."""


def open_weights(folder: Path) -> "Weights":
    """The weights of a folder, in one file or in shards; only names and shapes are read yet."""
    check_weights(folder)
    return Weights(folder, {SINGLE} if (folder / SINGLE).is_file() else _shards(folder / INDEX))


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A folder to write a model into, which then replaces the one in `folder`; other files there stay.

    The old weights are removed first and the new ones come last: in between the folder holds no model, never a mixture.
    """
    with durable.scratch_folder(folder / ".unfinished") as unfinished:
        yield unfinished
        durable.sync_tree(unfinished)
        new = {path.name for path in unfinished.iterdir()}
        old = [folder / SINGLE, folder / INDEX, *folder.glob("model-*.safetensors"), folder / FULL, folder / QUANTIZED]
        old += [folder / name for name in OTHER_TOKENIZERS if "tokenizer.json" in new]
        for path in old:
            path.unlink(missing_ok=True)
        for name in sorted(new, key=lambda name: (name == SINGLE, name)):
            durable.move(unfinished / name, folder / name)


def save_weights(outlines: Mapping[str, Tensor], value_of: Callable[[str], Tensor], folder: Path) -> None:
    """Write them all in one file, asking for each tensor in turn, in the order of their names, and keeping none. A
    digest in the header lets `load` notice flipped bits."""
    names, digest, path = sorted(outlines), hashlib.sha256(), folder / SINGLE

    def start() -> bytes:
        return header({name: outlines[name] for name in names}, {"format": "pt", _DIGEST: digest.hexdigest()})

    with durable.naming(path), open(path, "wb") as file:
        file.write(start())
        for name in names:
            tensor = value_of(name).detach().cpu()
            _add(digest, name, tensor)
            file.write(bytes_of(tensor))
            del tensor
        file.seek(0)
        file.write(start())  # as long as before; only now the digest is that of all


class Weights(AbstractContextManager):
    """Open safetensors files: `shapes` by name, and the tensors themselves on demand."""

    def __init__(self, folder: Path, files: set[str]):
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._places: dict[str, tuple[Any, str]] = {}
        self._digests: list[tuple[Path, Any, str]] = []
        with ExitStack() as stack:
            for file in sorted(files):
                self._open(folder / file, stack)
            self._stack = stack.pop_all()

    def __exit__(self, *error) -> None:
        self._stack.close()

    def __getitem__(self, name: str) -> Tensor:
        """The tensor in float32, in its own memory rather than a view of the file."""
        handle, stored = self._places[name]
        tensor = handle.get_tensor(stored)
        if not tensor.is_floating_point():
            raise ValueError(f"weight {name!r} holds {tensor.dtype}, not floating-point numbers")
        if not torch.isfinite(tensor.sum(dtype=torch.float64)):
            raise ValueError(f"weight {name!r} holds NaN or infinity, so the model can compute nothing")
        return tensor.to(torch.float32, copy=True)

    def verify(self) -> None:
        """Compare what is stored with the digest that `save_weights` wrote; other writers leave none."""
        for path, handle, digest in self._digests:
            if _digest((name, handle.get_tensor(name)) for name in sorted(handle.keys())) != digest:
                raise ValueError(f"{path} is damaged: its contents do not match the digest in its header")

    def _open(self, path: Path, stack: ExitStack) -> None:
        try:
            handle = stack.enter_context(safe_open(path, framework="pt"))
        except SafetensorError as error:
            raise ValueError(f"{path} is not a safetensors file: {error}") from None
        except FileNotFoundError:
            raise ValueError(f"{path} is missing, though {INDEX} names it") from None
        for stored in handle.keys():  # noqa: SIM118 (a handle is no mapping)
            name = _modern(stored)
            if name in self.shapes:
                raise ValueError(f"{path}: weight {stored!r} occurs twice")
            self._places[name] = (handle, stored)
            self.shapes[name] = tuple(handle.get_slice(stored).get_shape())
        digest = (handle.metadata() or {}).get(_DIGEST)
        if digest:
            self._digests.append((path, handle, digest))


def _modern(name: str) -> str:
    """The first BERT checkpoints call a norm's scale and shift gamma and beta."""
    return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name))


def _shards(index: Path) -> set[str]:
    try:
        files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{index} is not an index of safetensors shards") from None
    for file in files:
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise ValueError(f"{index} names {file!r}; a shard is a .safetensors file next to it")
    return files


def _digest(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Of tensors in the order of their names, one in memory at a time."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        _add(digest, name, tensor)
    return digest.hexdigest()


def _add(digest: Any, name: str, tensor: Tensor) -> None:
    digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
    digest.update(bytes_of(tensor))
