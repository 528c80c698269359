"""What a run needs of its machine: memory, open files, room on the disk. What cannot fit is refused before training."""

import os
import resource
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from bertkit.model.config import EncoderConfig
from bertkit.run.folder import CHECKPOINTS

_SPARE_FILES = 64
"""For the interpreter, loader workers, connections and a checkpoint."""
_BYTES_OF_A_WEIGHT = 4


class Memory(NamedTuple):
    free: int
    total: int


def activation_bytes(config: EncoderConfig, num_tokens: float, checkpointing: bool = False) -> float:
    """What a forward pass of this many tokens keeps for the backward pass, at least: of a layer, only its widest
    results are counted, in half precision."""
    kept = config.hidden_size if checkpointing else 4 * config.hidden_size + config.intermediate_size
    return 2 * num_tokens * config.num_hidden_layers * kept


def check_memory(needs: Mapping[str, float], device: torch.device, sharing: int | None = None) -> None:
    """Refuse a run that needs more memory than is free. `needs` are bytes, at least, by the key that they grow with;
    of the memory of a host each of the processes `sharing` it needs as much: those that were launched here."""
    sharing = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if sharing is None else sharing
    free = min((memory.free for memory in _memories(device)), default=None)
    needed = sum(needs.values()) * (sharing if device.type == "cpu" else 1)
    if free is not None and needed > free:
        largest = max(needs, key=needs.__getitem__)
        parts = ", ".join(
            f"{_gigabytes(size)} by {key}" for key, size in needs.items() if size > sum(needs.values()) / 10
        )
        raise ValueError(
            f"{largest}: training needs at least {_gigabytes(needed)} of memory, and {_gigabytes(free)} are free "
            f"({parts}{f', in each of {sharing} processes' if sharing > 1 else ''}); lower it, or use a larger machine"
        )


def free_memory(device: torch.device) -> float:
    """Share of the usable memory that was free when the device was fullest; 1 where that is unknown."""
    return min((memory.free / memory.total for memory in _memories(device)), default=1.0)


def check_open_files(num_files: int) -> None:
    """Let this process open as many files as it may, and refuse a run that must open more."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most != resource.RLIM_INFINITY and num_files + _SPARE_FILES > most:
        raise ValueError(
            f"the run opens {num_files:,} files of prepared rows, but this process may open {most:,} in all; raise the "
            f"limit with 'ulimit -n {num_files + 4 * _SPARE_FILES}', or prepare again with larger data.shard_tokens"
        )


def check_disk(folder: Path, num_parameters: int) -> None:
    """Refuse a run whose next checkpoint would not fit the disk: weights and two moments."""
    needed, free = 3 * _BYTES_OF_A_WEIGHT * num_parameters, shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            f"{folder / CHECKPOINTS}: a checkpoint needs {needed:,} bytes, {free:,} are free; "
            "make room, or move the run to another disk, and run again"
        )


def _memories(device: torch.device) -> Iterator[Memory]:
    """The limits of this process that the system reports."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        # What torch keeps for reuse counts as free, except for the peak of a step.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.max_memory_allocated(device)
        yield Memory(free + max(kept, 0), total)
        return
    for limit in (_of_machine(), _of_container(), _of_process()):
        if limit is not None and limit.total > 0:
            yield limit


def _of_machine(meminfo: Path = Path("/proc/meminfo")) -> Memory | None:
    try:
        lines = (line.partition(":") for line in meminfo.read_text().splitlines())
        sizes = {name: int(rest.split()[0]) for name, _, rest in lines}
        return Memory(1024 * sizes["MemAvailable"], 1024 * sizes["MemTotal"])
    except (OSError, KeyError, ValueError, IndexError):
        return None


def _of_container(cgroup: Path = Path("/sys/fs/cgroup")) -> Memory | None:
    """Of a container with its own limit, which may not use all that the machine has left."""
    try:
        limit, used = (int((cgroup / name).read_text()) for name in ("memory.max", "memory.current"))
        # Files that were read count as used until the memory is needed.
        kept = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())["inactive_file"]
        return Memory(limit - used + int(kept), limit)
    except (OSError, KeyError, ValueError):  # "max" is no number: no limit
        return None


def _of_process(statm: Path = Path("/proc/self/statm")) -> Memory | None:
    """Of a process that `ulimit -v` limits."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    try:
        used = int(statm.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
    return None if limit == resource.RLIM_INFINITY else Memory(limit - used, limit)


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"
