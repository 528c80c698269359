"""Checkpoints, complete or absent: how a run saves and resumes, on every rank or on none.

A checkpoint is a folder `step-00000120` of safetensors files, `state.json`, and `manifest.json` with the sha256 of
each. It is written under another name, synced, renamed, and only then are older ones pruned. No pickle anywhere.
"""

import hashlib
import itertools
import json
import logging
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from accelerate import Accelerator
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bertkit.config.fields import build
from bertkit.events import event
from bertkit.run.folder import CHECKPOINTS, SAVED
from bertkit.run.log import cut_metrics
from bertkit.run.ranks import Trainable, agree_on, write_gathered
from bertkit.run.state import LoopState, gather_in_turn, named_state, restore_state
from bertkit.tensor_file import blocks_of, header, in_order
from data_pipelines import durable
from data_pipelines.text.digest import file_hash

log = logging.getLogger("bertkit")

MANIFEST = "manifest.json"
_FOLDER = re.compile(r"step-(\d{8,})")
_FILE = re.compile(r"[a-z]+\.safetensors|state\.json")
_SPARE_BYTES = 2**20


def resume(folder: Path, trainable: Trainable, start: LoopState) -> LoopState:
    """Load the newest whole checkpoint of a run into model and optimizers, the same on every rank, and return the
    state of its loop; `start` where there is no checkpoint yet."""
    checkpoint = _newest_on_ranks(folder / CHECKPOINTS, trainable.accelerator)
    if trainable.accelerator.is_main_process:
        cut_metrics(folder, 0 if checkpoint is None else checkpoint.step)
    if checkpoint is None:
        return start
    restore_state(trainable.model, trainable.optimizers, checkpoint.tensors)
    return build(LoopState, checkpoint.state)


def _newest_on_ranks(folder: Path, accelerator: Accelerator) -> "Checkpoint | None":
    """The newest whole checkpoint. The first rank of each machine reads all of it, to see whether it is whole; the
    others trust it, and need not."""
    checkpoint, problem = None, ""
    if accelerator.is_local_main_process:
        try:
            checkpoint = load_newest(folder)
        except ValueError as error:
            problem = str(error)
    here = 0 if checkpoint is None else checkpoint.step
    step, told = agree_on(accelerator, (here, problem))
    if told or problem:
        raise ValueError(told or problem)
    if not accelerator.is_local_main_process:
        return load_checkpoint(checkpoint_folder(folder, step), verify=False) if step else None
    if step != here:
        raise ValueError(f"the processes see different checkpoints in {folder}; run.dir must be on a shared disk")
    return checkpoint


def save(folder: Path, state: LoopState, trainable: Trainable, keep: int, held: Collection[int] = frozenset()) -> None:
    """Write a checkpoint of a run on the first rank; if that fails, every rank fails with the same words. Those of the
    steps that are `held` stay."""
    checkpoint = Checkpoint(state.step, named_state(trainable.model, trainable.optimizers), asdict(state))

    def write(gathered: Iterator[Tensor]) -> None:
        besides = {state.best_step, *held}
        save_checkpoint(folder / CHECKPOINTS, checkpoint, gathered=gathered, keep=keep, besides=besides)
        if not (folder / SAVED).exists():
            durable.replace_file(folder / SAVED, b"")
        event("checkpoint", step=state.step, path=str(checkpoint_folder(folder / CHECKPOINTS, state.step)))

    write_gathered(trainable.accelerator, checkpoint.tensors, write)


class Checkpoint(NamedTuple):
    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    """By file (`model`, `optimizer`), then by name. One that was loaded reads each when it is asked for."""
    state: dict[str, Any]
    """What the loop itself remembers."""


def save_checkpoint(
    folder: Path,
    checkpoint: Checkpoint,
    *,
    gathered: Iterator[Tensor] | None = None,
    keep: int,
    besides: Collection[int | None] = (),
) -> Path:
    """Write a checkpoint, then drop all but the newest `keep` and those of the steps `besides`. An OSError leaves the
    older ones intact. `gathered` gives all of each tensor, where ranks share them; one is in memory at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(folder)
    target = checkpoint_folder(folder, checkpoint.step)
    checkpoint = checkpoint._replace(tensors={part: in_order(named) for part, named in checkpoint.tensors.items()})
    _write_folder(target, checkpoint, gather_in_turn(checkpoint.tensors) if gathered is None else gathered)
    _prune(folder, newest=checkpoint.step, keep=keep, besides=besides)
    return target


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; None if there is none at all, a ValueError if every one is damaged."""
    damaged = []
    for step, path in reversed(checkpoints(folder)):
        try:
            checkpoint = load_checkpoint(path)
        except ValueError as error:
            log.warning("checkpoint skipped: %s", error)
            damaged.append(str(error))
        else:
            assert checkpoint.step == step
            return checkpoint
    if damaged:
        raise ValueError(
            f"every checkpoint in {folder} is damaged, the newest: {damaged[0]}; "
            "restore one from a backup, or choose another run.dir to start over"
        )
    return None


def load_checkpoint(path: Path, *, verify: bool = True) -> Checkpoint:
    """Open one checkpoint; a ValueError names the file that is missing, cut or changed. Hashes are compared in blocks
    and tensors are read one at a time, so it is never in memory as a whole."""
    match = _FOLDER.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path} is not the folder of a checkpoint (step-00000000)")
    manifest, state = (_read(path / name) for name in (MANIFEST, "state.json"))
    files = files_of_manifest(path / MANIFEST, manifest)
    for name, expected in files.items():
        if verify and expected != _file_identity(path / name):
            raise ValueError(f"{path / name} is not what was saved (sha256 differs)")
    tensors = {Path(name).stem: StoredTensors(path / name) for name in files if name.endswith(".safetensors")}
    return Checkpoint(int(match[1]), tensors, _state(path / "state.json", state, int(match[1])))


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of a safetensors file by name, each read when it is asked for, and not kept."""

    def __init__(self, path: Path):
        """A hash tells that a file is what was written, not who wrote it."""
        try:
            self._file = safe_open(path, framework="pt")
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path} is not a safetensors file: {error}") from None
        self._names = dict.fromkeys(self._file.keys())

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        return self._file.get_tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Step and folder of every checkpoint, oldest first, whole or not."""
    if not folder.is_dir():
        return []
    found = ((_FOLDER.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match and path.is_dir() and not path.is_symlink())


def _write_folder(target: Path, checkpoint: Checkpoint, gathered: Iterator[Tensor]) -> None:
    headers = {part: header(named) for part, named in checkpoint.tensors.items()}
    state = durable.json_bytes(checkpoint.state)
    sizes = [tensor.numel() * tensor.itemsize for named in checkpoint.tensors.values() for tensor in named.values()]
    needed = sum(sizes) + sum(map(len, headers.values())) + len(state) + _SPARE_BYTES
    free = shutil.disk_usage(target.parent).free
    if needed > free:
        raise OSError(f"{target}: a checkpoint needs {needed:,} bytes, {free:,} are free; make room and run again")
    temporary = target.with_name(f".tmp-{target.name}")
    try:
        temporary.mkdir()
        files = {}
        for part, named in checkpoint.tensors.items():
            blocks = itertools.chain([headers[part]], blocks_of(itertools.islice(gathered, len(named))))
            files[f"{part}.safetensors"] = _write(temporary / f"{part}.safetensors", blocks)
        files["state.json"] = _write(temporary / "state.json", [state])
        _write(temporary / MANIFEST, [durable.json_bytes({"files": files, "format": 1})])
        durable.sync(temporary)
        if target.exists():  # damaged, and skipped when the run was resumed
            durable.move(target, target.with_name(f".old-{target.name}"))
        durable.move(temporary, target)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        free = shutil.disk_usage(target.parent).free
        raise OSError(
            f"{target}: {error.strerror or error}; a checkpoint needs {needed:,} bytes, {free:,} are free"
        ) from error


def _write(path: Path, blocks: Iterable[bytes]) -> dict[str, Any]:
    """Write a file block by block; its size and hash."""
    digest, num_bytes = hashlib.sha256(), 0

    def seen() -> Iterator[bytes]:
        nonlocal num_bytes
        for block in blocks:
            digest.update(block)
            num_bytes += len(block)
            yield block

    durable.write_file(path, seen())
    return {"bytes": num_bytes, "sha256": digest.hexdigest()}


def _prune(folder: Path, *, newest: int, keep: int, besides: Collection[int | None]) -> None:
    """Checkpoints after the newest are damaged ones that the resume skipped; they are not counted."""
    found = checkpoints(folder)
    kept = {step for step, _ in [entry for entry in found if entry[0] <= newest][-keep:]} | {*besides}
    for step, path in found:
        if step not in kept:
            try:
                durable.move(path, path.with_name(f".old-{path.name}"))
            except OSError as error:
                log.warning("%s could not be removed: %s", path, error.strerror)
    _remove_leftovers(folder)


def _remove_leftovers(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name.startswith((".tmp-step-", ".old-step-")) and not path.is_symlink():
            try:
                durable.remove_folder(path)
            except OSError as error:
                log.warning("%s could not be removed: %s", path, error.strerror)


def checkpoint_folder(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"


def _file_identity(path: Path) -> dict[str, Any]:
    try:
        return {"bytes": path.stat().st_size, "sha256": file_hash(path)}
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None


def _state(path: Path, data: bytes, step: int) -> dict[str, Any]:
    try:
        state = json.loads(data)
        if state["step"] != step:
            raise ValueError
        return dict(state)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{path} is not the state of step {step}") from None


def files_of_manifest(path: Path | str, data: bytes) -> dict[str, dict[str, Any]]:
    """Size and sha256 of every file that the manifest of a checkpoint names."""
    try:
        manifest = json.loads(data)
        if durable.json_bytes(manifest) != data or manifest["format"] != 1:
            raise ValueError
        files = manifest["files"]
        if "state.json" not in files or not all(_FILE.fullmatch(name) for name in files):
            raise ValueError
        return files
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{path} is not a manifest that bertkit wrote") from None
