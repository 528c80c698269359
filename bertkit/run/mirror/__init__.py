"""A copy of a run on a store: each checkpoint, in the background, and the export at the end; a resume finds it there.

A checkpoint on the store is complete or absent, as on the disk: its manifest is written last and removed first. Where a
copy fails the run says so and trains on; the next checkpoint is the next try, and the end of the run the last one.
"""

import json
import logging
import threading
from pathlib import Path
from typing import Any

from bertkit.config.recipe import forbidden_changes
from bertkit.run.checkpoint import MANIFEST, checkpoint_folder, checkpoints, files_of_manifest
from bertkit.run.folder import CHECKPOINTS, EXPORT, FACTS, METRICS, RECIPE
from data_pipelines import durable
from data_pipelines.text.stores import StoredFile, StoreFails
from data_pipelines.text.transfer import (
    check_writable,
    fetch_file,
    put_bytes,
    put_folder,
    put_model,
    read_stored,
    remove_stored,
    stored_files,
)

log = logging.getLogger("bertkit")

_OF_THE_RUN = (RECIPE, FACTS, METRICS)
"""What a resume needs beside a checkpoint, or shows."""


class Mirror:
    """The copy of a run at a URL; without one, and on other ranks than the first, nothing happens."""

    def __init__(self, folder: Path, url: str | None, keep: int):
        self._folder, self._keep = folder, keep
        self._url = None if url is None else url.rstrip("/")
        self._changed, self._waiting, self._copied = threading.Condition(), 0, 0
        """The step that waits to be copied, and the one that is being copied; 0 for none."""
        if self._url is not None:
            check_writable(self._url)
            threading.Thread(target=self._copy_in_turn, daemon=True).start()

    @property
    def held(self) -> set[int]:
        """Steps whose checkpoints must stay on the disk a while."""
        return {self._waiting, self._copied}

    def copy(self, step: int) -> None:
        """Copy the checkpoint of this step in the background, instead of an older one that still waits."""
        if self._url is not None:
            with self._changed:
                self._waiting = step
                self._changed.notify_all()

    def finish(self, with_export: bool) -> None:
        """Wait until the newest checkpoint is copied, and the export; if the store still fails, say what to do."""
        if self._url is None:
            return
        with self._changed:
            self._changed.wait_for(lambda: not any(self.held))
        try:
            if found := checkpoints(self._folder / CHECKPOINTS):
                self._copy(found[-1][0])
            if with_export:
                put_model(self._folder / EXPORT, f"{self._url}/{EXPORT}")
        except (ValueError, OSError) as error:
            raise BlockingIOError(
                f"run.mirror: {error}; {self._folder} is complete, and the same command copies the missing files"
            ) from None

    def _copy_in_turn(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                self._copied, self._waiting = self._waiting, 0
            try:
                self._copy(self._copied)
            except Exception as error:  # whatever it is: a thread that ended would be waited for at the end
                log.warning("run.mirror lacks the checkpoint of step %s: %s; training continues", self._copied, error)
            with self._changed:
                self._copied = 0
                self._changed.notify_all()

    def _copy(self, step: int) -> None:
        """Bring a checkpoint to the store, and the best one if it is not there; drop those that are no longer kept."""
        folder, url = self._folder / CHECKPOINTS, f"{self._url}/{CHECKPOINTS}"
        best = json.loads((checkpoint_folder(folder, step) / "state.json").read_bytes()).get("best_step")
        for name in _OF_THE_RUN:
            if (self._folder / name).is_file():
                put_bytes((self._folder / name).read_bytes(), f"{self._url}/{name}")
        stored = _complete(url)
        for number in sorted({step, best} & {number for number, _ in checkpoints(folder)}):
            source = checkpoint_folder(folder, number)
            target = f"{url}/{source.name}"
            if number in stored and read_stored(f"{target}/{MANIFEST}") == (source / MANIFEST).read_bytes():
                continue
            remove_stored(target, last=MANIFEST)
            put_folder(source, target, [path.name for path in source.iterdir()], last=MANIFEST)
        kept = sorted(number for number in {*stored, step} if number <= step)[-self._keep :]
        for number in stored:
            if number not in (*kept, best):
                remove_stored(f"{url}/{checkpoint_folder(folder, number).name}", last=MANIFEST)


def restore(folder: Path, url: str, recipe: Any) -> int | None:
    """Fetch the newest whole checkpoint of a mirror if it is newer than those here, and what belongs to it; says which
    step that is. A run of another recipe is refused."""
    url = url.rstrip("/")
    here = max((step for step, _ in checkpoints(folder / CHECKPOINTS)), default=0)
    problems = []
    for step in sorted(_complete(f"{url}/{CHECKPOINTS}"), reverse=True):
        if step <= here:
            return None
        _check_same_run(folder, url, recipe)
        _fetch_files(folder, url)  # first: a checkpoint without them would be taken for something that is no run
        try:
            _fetch_checkpoint(checkpoint_folder(folder / CHECKPOINTS, step), f"{url}/{CHECKPOINTS}")
        except StoreFails:  # the checkpoint may be whole, and an older one is no answer to a store that is busy
            raise
        except ValueError as error:
            log.warning("checkpoint skipped: %s", error)
            problems.append(str(error))
            continue
        return step
    if problems and not here:
        raise ValueError(f"every checkpoint of run.mirror={url} is damaged, the newest: {problems[0]}")
    return None


def _check_same_run(folder: Path, url: str, recipe: Any) -> None:
    with durable.scratch_folder(folder / ".tmp-mirror") as scratch:
        durable.write_file(scratch / RECIPE, read_stored(f"{url}/{RECIPE}"))
        if changes := forbidden_changes(scratch / RECIPE, recipe):
            raise ValueError(
                f"run.mirror={url} holds a run of another recipe ({'; '.join(changes)}); "
                "run with the old values to resume it, or choose another run.mirror"
            )


def _fetch_files(folder: Path, url: str) -> None:
    files = stored_files(url)
    for name in _OF_THE_RUN:
        if name in files:
            durable.replace_file(folder / name, read_stored(f"{url}/{name}"))


def _fetch_checkpoint(target: Path, url: str) -> None:
    """Copy a checkpoint from a store, verified, complete or not at all."""
    url = f"{url}/{target.name}"
    manifest = read_stored(f"{url}/{MANIFEST}")
    with durable.scratch_folder(target.with_name(f".tmp-{target.name}")) as unfinished:
        for name, known in files_of_manifest(f"{url}/{MANIFEST}", manifest).items():
            fetch_file(StoredFile(f"{url}/{name}", known["bytes"], version=""), unfinished / name, known["sha256"])
        durable.write_file(unfinished / MANIFEST, manifest)
        durable.sync_tree(unfinished)
        durable.move(unfinished, target)


def _complete(url: str) -> set[int]:
    """Steps of the complete checkpoints at a URL."""
    found = (Path(name) for name in stored_files(url) if name.endswith(f"/{MANIFEST}"))
    return {int(path.parent.name.removeprefix("step-")) for path in found if path.parent.name.startswith("step-")}
