"""Operators enter as they are called; what each would cost a GPU leaves: bytes, operations, waits, copies, messages.

Nothing here knows a GPU. A step that ran on fake tensors under `Watch` leaves a list of kernels, from which the
roofline, the tests and the plan read what they need.
"""

import itertools
import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._guards import TracingContext
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from bertkit.plan import fake_cuda
from bertkit.plan.fake_cuda import replaced

_OURS = tuple(str(Path(__file__).parents[2] / name) for name in ("bertkit", "data_pipelines"))
_PRODUCTS = {torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm}
_FREE = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "alias", "numpy_T", "lift_fresh"}
_GATHERS = {"embedding", "index_select", "gather", "index"}
_JOINED = {"_to_copy", "copy_", "native_dropout", "native_layer_norm", "native_layer_norm_backward"}
"""What a compiler joins with elementwise operators, beside these."""
_IN_THE_OPEN = {"rotate"}
"""Operators of ours for which a compiler sees a formula."""
_UNORDERED = {"cumsum", "put", "put_", "histc", "bincount", "nll_loss2d_forward", "median"}
"""Operators without a deterministic kernel on CUDA, as the documentation of torch lists those that a text may need."""
_BLOCK = 512
"""CUDA's allocator hands out multiples of this many bytes."""


class Access(NamedTuple):
    """A part of a storage that a kernel reads or writes."""

    storage: int
    """A number that no other storage ever has."""
    offset: int
    num_bytes: int


class Kernel(NamedTuple):
    """One call of an operator that works on the GPU."""

    name: str
    line: str
    """Of our code that asked for it; "backward" where autograd did."""
    num_bytes: int
    """Read from and written to its memory."""
    kind: str = "memory"
    """product, attention, attention_backward, or memory for what is bound by it."""
    num_operations: int = 0
    dtypes: tuple[torch.dtype, ...] = ()
    """Of a product's factors: more than one raise on a real GPU, though fake tensors multiply."""
    joins: int = 0
    """Over how many values it runs, where a compiler can join it with others that run over as many."""
    is_border: bool = False
    """Between parts that are compiled apart."""
    read: tuple[Access, ...] = ()
    written: tuple[Access, ...] = ()


class Message(NamedTuple):
    """One collective of this rank."""

    name: str
    num_bytes: int
    """Of the largest tensor in it."""
    dtype: torch.dtype
    on_device: bool


class Watch(TorchDispatchMode):
    """Counts while it is entered. `lengths` are those of the sequences in a pack: fake borders have no values."""

    def __init__(self, lengths: Sequence[int] = (), device: str = "cuda"):
        super().__init__()
        self.lengths = lengths
        self.kernels: list[Kernel] = []
        self.waits: Counter[str] = Counter()
        """By line: where the host would wait for the GPU."""
        self.copies: Counter[tuple[str, str]] = Counter()
        """By direction and line: copies between host and GPU that block."""
        self.unordered: Counter[tuple[str, str]] = Counter()
        """By operator and line: what adds in any order on a GPU, and what `run.deterministic` makes raise there."""
        self.messages: list[Message] = []
        self.memory = Memory(device)
        self._opaque = False
        """Inside an operator that a compiler does not look into."""
        self._border = False

    @classmethod
    def ignore_compile_internals(cls):
        """Torch would not compile inside a mode that does not say so."""
        return True

    def __enter__(self):
        fake_cuda.waits.clear()
        return super().__enter__()

    def __exit__(self, *error):
        self.waits.update(fake_cuda.waits)
        fake_cuda.waits.clear()
        return super().__exit__(*error)

    def border(self, *_: Any) -> None:
        """What comes next is compiled apart from what came before. A hook of modules."""
        self._border = True

    @property
    def mixed_products(self) -> list[Kernel]:
        return [kernel for kernel in self.kernels if len(kernel.dtypes) > 1]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # it calls again with the shard of this rank
        if TracingContext.try_get() is not None:
            return func(*args, **(kwargs or {}))  # a compiler looks at the model; nothing runs yet
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if func is torch.ops.aten._local_scalar_dense.default:
            return self._waited(args[0])
        if func.namespace == "bertkit" and "attention" not in name:
            # The body that a GPU would run, not its outline: mixed types inside it must show.
            with self, replaced(self, "_opaque", name not in _IN_THE_OPEN):
                return _body(name)(*args, **kwargs)
        if name in ("linear", "matmul"):
            with self:  # inside a body, an operator that is made of others was not yet taken apart
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        self._note(func, name, args, kwargs, out)
        return out

    def _waited(self, tensor: Tensor) -> float | int:
        if tensor.device.type != "cpu":
            self.waits[_line()] += 1
        return 1.0 if tensor.dtype.is_floating_point else 1

    def _note(self, func, name: str, args: tuple, kwargs: dict, out: Any) -> None:
        inputs = list({id(leaf): leaf for leaf in _tensors((args, kwargs))}.values())
        outputs = _tensors(out)
        for tensor in outputs:
            self.memory.note(tensor)
        if func.namespace.startswith(("c10d", "_c10d")):
            largest = max([*inputs, *outputs], key=lambda tensor: tensor.nbytes)
            self.messages.append(Message(name, largest.nbytes, largest.dtype, largest.is_cuda))
            return
        devices = {tensor.device.type for tensor in (*inputs, *outputs)}
        if name in ("_to_copy", "copy_") and len(devices) == 2:
            source = (args[1] if name == "copy_" else args[0]).device.type
            if not (kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])):
                self.copies["to the GPU" if source == "cpu" else "from the GPU", _line()] += 1
        elif "cuda" in devices and name not in _FREE and not func.is_view and func.namespace != "prim":
            self.kernels.append(self._kernel(func, name, args, kwargs, inputs, outputs, out))
            if name in _UNORDERED and any(tensor.is_floating_point() for tensor in outputs):
                self.unordered[name, _line()] += 1

    def _kernel(self, func, name: str, args, kwargs, inputs: list[Tensor], outputs: list[Tensor], out: Any) -> Kernel:
        changed = [
            (argument.name, tensor)
            for argument, value in zip(func._schema.arguments, (*args, *kwargs.values()), strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
            for tensor in _tensors(value)
        ]
        written = outputs or [tensor for _, tensor in changed]
        # What is only written to is not read.
        targets = [id(tensor) for argument, tensor in changed if argument == "out" or name == "copy_"]
        read = [tensor for tensor in inputs if id(tensor) not in targets]
        num_bytes = sum(_size(tensor) for tensor in (*read, *written))
        if name in _GATHERS:
            num_bytes = 2 * sum(map(_size, outputs)) + sum(
                _size(tensor) for tensor in inputs if not tensor.is_floating_point()
            )
        if name in ATTENTION:
            kind, query, window = ATTENTION[name](args, kwargs)
            pairs = num_pairs(self.lengths, window) * query.shape[-3] / max(sum(self.lengths), 1)
            operations = 4 * query.shape[-2] * query.shape[-1] * pairs * (2.5 if kind == "attention_backward" else 1)
            work: dict[str, Any] = {"kind": kind, "num_operations": int(operations)}
        elif func.overloadpacket in _PRODUCTS:
            dtypes = tuple({tensor.dtype for tensor in args if isinstance(tensor, Tensor)})
            operations = flop_registry[func.overloadpacket](*args, **kwargs, out_val=out)
            work = {"kind": "product", "num_operations": operations, "dtypes": dtypes}
        elif not self._opaque and (torch.Tag.pointwise in func.tags or name in _JOINED):
            work = {"joins": max(tensor.numel() for tensor in (*read, *written))}
        else:
            work = {}
        border, self._border = self._border or func.namespace == "fsdp", False
        work |= {"is_border": border}
        work |= {"read": tuple(map(self._access, read)), "written": tuple(map(self._access, written))}
        return Kernel(name, _line(), num_bytes, **work)

    def _access(self, tensor: Tensor) -> Access:
        return Access(self.memory.number(tensor), int(tensor.storage_offset()), _size(tensor))


class Memory:
    """Bytes of the tensors of a device that are alive, and the most there ever were."""

    def __init__(self, device: str = "cuda"):
        self.device = device
        self.now = self.peak = 0
        self._sizes: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._next = itertools.count()

    def note(self, tensor: Tensor) -> None:
        if isinstance(tensor, DTensor):
            tensor = tensor.to_local()
        storage = tensor.untyped_storage()
        if tensor.device.type == self.device and storage._cdata not in self._sizes:
            self._sizes[storage._cdata] = size = -(-storage.nbytes() // _BLOCK) * _BLOCK
            self._numbers[storage._cdata] = next(self._next)
            weakref.finalize(storage, self._freed, storage._cdata)
            self.now += size
            self.peak = max(self.peak, self.now)

    def number(self, tensor: Tensor) -> int:
        """Of its storage; addresses are used again. What was there before has a negative number."""
        address = tensor.untyped_storage()._cdata
        return self._numbers[address] if address in self._sizes else -address

    def note_all(self, tensors: Iterable[Tensor]) -> int:
        """The bytes of what was there before."""
        before = self.now
        for tensor in tensors:
            self.note(tensor)
        return self.now - before

    def _freed(self, key: int) -> None:
        self.now -= self._sizes.pop(key, 0)


def _flash(args, kwargs):
    return "attention", args[0], kwargs.get("window_size_left", -1)


def _flash_backward(args, kwargs):
    return "attention_backward", args[1], kwargs.get("window_size_left", -1)


ATTENTION = {
    "_flash_attention_forward": _flash,
    "_flash_attention_backward": _flash_backward,
    "_efficient_attention_forward": lambda args, kwargs: ("attention", args[0], -1),
    "_efficient_attention_backward": lambda args, kwargs: ("attention_backward", args[1], -1),
}
"""Kind, query and window of the kernels whose work depends on the lengths of sequences."""


def num_pairs(lengths: Sequence[int], window: int | None) -> int:
    """How many pairs of query and key attention looks at."""
    if window is None or window < 0:
        return sum(length**2 for length in lengths)
    # A row of the band has 2w+1 keys, less what hangs over at its two ends.
    reach = [min(window, length - 1) for length in lengths]
    return sum(length * (2 * w + 1) - w * (w + 1) for length, w in zip(lengths, reach, strict=True))


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _size(tensor: Tensor) -> int:
    """Bytes behind a tensor: what is only repeated by an expansion is read once."""
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return int(torch.Size(sizes).numel()) * tensor.element_size()


def _line() -> str:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_OURS) and "/plan/" not in path:
            return f"{'/'.join(Path(path).parts[-2:])}:{frame.f_lineno}"
        frame = frame.f_back
    return "backward"


def _body(name: str) -> Any:
    from bertkit.model import loss, rotation

    return {"summed_cross_entropy": loss._summed_cross_entropy, "rotate": rotation._rotate}[name]._init_fn
