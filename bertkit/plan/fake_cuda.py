"""Lets a machine without GPUs hold CUDA tensors that have a shape and a type but no memory.

Torch's fake tensors carry everything of a tensor but its values. On a build without CUDA they cannot lie on a GPU: no
device guard of CUDA is registered, so moving one raises, and the autograd engine ends the process. Torch holds a guard
for this case, but lays it only over one that counts 0 devices, which is put there first; and the engine asks which
accelerator was built, so for as long as fake CUDA is on, CUDA is. A build with CUDA has a guard that counts 0 devices
where there are none, but its engine asks the driver about a device that is not there, which raises; so this question is
answered here, too.
"""

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

TORCH = (2, 13)
"""The guard, and the table of functions below, are those of this version."""
_CUDA = 1
_HOOKS = 48
"""How many functions torch asks about CUDA."""
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_BUILT: list[bool] = [False]
_KEPT: list[Any] = []
"""What C++ points to must never be freed."""


def why_not() -> str | None:
    """Why this torch cannot do it; None where it can."""
    version = tuple(int(number) for number in torch.__version__.split("+")[0].split(".")[:2])
    if version != TORCH:
        return f"fake CUDA is made for torch {TORCH[0]}.{TORCH[1]}, and this is {torch.__version__}"
    if torch.cuda.is_available():
        return None
    return None if os.name == "posix" and (_library("c10")).exists() else "fake CUDA needs Linux"


@contextlib.contextmanager
def fake_cuda(local_rank: int = 0, **options: Any) -> Iterator[FakeTensorMode]:
    """Inside, tensors are made without memory, on "cuda" too; streams, events and the questions that accelerate and
    FSDP ask of a GPU are answered. `waits_of` counts what would make the host wait."""
    reason = why_not()
    if reason is not None:
        raise ValueError(reason)
    start_engine()
    _BUILT[0] = True
    try:
        with contextlib.ExitStack() as stack:
            for target, name, value in _answers(local_rank):
                stack.enter_context(replaced(target, name, value))
            yield FakeTensorMode(allow_non_fake_inputs=True, **options)
    finally:
        _BUILT[0] = False


@functools.cache
def start_engine() -> None:
    """Must come before a process differentiates anything: its first backward pass starts a thread for each device that
    is there, and none later."""
    _register_guard()
    _BUILT[0] = True
    with FakeTensorMode():
        torch.ones((), device="cuda", requires_grad=True).backward()
    _BUILT[0] = False


@contextlib.contextmanager
def replaced(target: Any, name: str, value: Any) -> Iterator[None]:
    """Another value in place of an attribute, inside."""
    own, before = name in vars(target), getattr(target, name)
    setattr(target, name, value)
    try:
        yield
    finally:
        setattr(target, name, before) if own else delattr(target, name)


def _register_guard() -> None:
    if torch.cuda.is_available():
        return
    if not torch.backends.cuda.is_built():
        _count_no_devices()
    _answer_the_engine()


def _count_no_devices() -> None:
    c10 = ctypes.CDLL(str(_library("c10")))
    registry = (ctypes.c_void_p * 22).in_dll(c10, "_ZN3c104impl26device_guard_impl_registryE")
    none = _FUNCTION(lambda this: 0)
    table = (ctypes.c_void_p * 64)(*[_address(none)] * 64)
    guard = (ctypes.c_void_p * 1)(ctypes.addressof(table))
    register = c10["_ZN3c104impl19registerDeviceGuardENS_10DeviceTypeEPKNS0_24DeviceGuardImplInterfaceE"]
    register.argtypes, register.restype = [ctypes.c_int8, ctypes.c_void_p], None
    register(_CUDA, ctypes.addressof(guard))
    _KEPT.extend((none, table, guard))
    torch._C._ensureCUDADeviceGuardSet()
    assert registry[_CUDA] not in (None, ctypes.addressof(guard)), "torch did not lay its own guard over ours"


def _answer_the_engine() -> None:
    """isBuilt() is the one function whose answer changes whether torch names an accelerator; hasPrimaryContext() is two
    further. Where CUDA was built, isBuilt() stays as it is."""
    hooks_of = ctypes.CDLL(str(_library("torch_cpu")))["_ZN2at6detail12getCUDAHooksEv"]
    hooks_of.restype = ctypes.c_void_p
    hooks = ctypes.c_void_p.from_address(hooks_of())
    assert hooks.value is not None
    copied = (ctypes.c_void_p * _HOOKS)(*(ctypes.c_void_p * _HOOKS).from_address(hooks.value))
    hooks.value = ctypes.addressof(copied)
    built = _FUNCTION(lambda this: int(_BUILT[0]))
    _KEPT.extend((built, copied))
    before = torch.accelerator.current_accelerator()
    _BUILT[0] = before is None
    for index in range(_HOOKS - 2):
        kept, copied[index] = copied[index], _address(built)
        found = (torch.accelerator.current_accelerator() is None) != (before is None)
        if not found or before is not None:
            copied[index] = kept
        if found:
            copied[index + 2] = _address(built)
            break
    else:
        raise AssertionError("no function of torch's says whether CUDA was built")
    _BUILT[0] = False
    assert torch.accelerator.current_accelerator() == before


def _library(name: str) -> Path:
    return Path(torch.__file__).parent / "lib" / f"lib{name}.so"


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


class _Event:
    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def record(self, *args: Any) -> "_Event":
        return self

    def wait(self, *args: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        waits.append("event.synchronize")


class _Stream:
    device = None

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def synchronize(self) -> None:
        waits.append("stream.synchronize")


waits: list[str] = []
"""Calls that make the host wait without an operator that a dispatch mode would see."""


def _answers(local_rank: int) -> list[tuple[Any, str, Any]]:
    stream = _Stream()
    cuda = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda including_emulation=True: True,
        "device_count": lambda: 8,
        "current_device": lambda: local_rank,
        "set_device": lambda device: None,
        "get_device_capability": lambda device=None: (9, 0),
        "get_rng_state": lambda device=None: torch.empty(16, dtype=torch.uint8),
        "set_rng_state": lambda state, device=None: None,
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "Stream": _Stream,
        "Event": _Event,
        "current_stream": lambda *args: stream,
        "default_stream": lambda *args: stream,
        "stream": lambda stream: contextlib.nullcontext(),
        "synchronize": lambda *args: waits.append("cuda.synchronize"),
    }
    return [
        *((torch.cuda, name, value) for name, value in cuda.items()),
        (torch.accelerator, "is_available", lambda: True),
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        (torch.distributed, "is_nccl_available", lambda: True),
        # It counts the steps of DDP, whose first ones a build with CUDA would time with real events.
        (torch.distributed.Reducer, "prepare_for_forward", lambda reducer: None),
        (FakeTensor, "data_ptr", lambda tensor: id(tensor)),
        (FakeTensor, "tolist", _tolist),
        # Where a GPU is said to be there, real tensors would be copied to it.
        (FakeTensorMode, "avoid_device_init", True),
    ]


def _tolist(tensor: torch.Tensor) -> list[Any]:
    """The host waits once for all of a tensor."""
    assert tensor.ndim == 1, "values of fake tensors of more dimensions are not asked for"
    return [tensor[0].item()] * len(tensor) if len(tensor) else []
