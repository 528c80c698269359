"""Fetches the shards that the next steps need from their store, in the order of the plan, while others are in use.

The folder holds no more bytes than it may: a shard is removed once its last step is done, when there is need of room.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager

from data_pipelines.masks.plan import Plan
from data_pipelines.masks.shard_order import Span
from data_pipelines.rows.shards import Rows

_POLL_SECONDS = 0.02
_PAUSE_SECONDS = 10.0
"""Before a store that failed is asked for the same shard again."""


class ShardsAhead(AbstractContextManager):
    """Of the processes on a machine the first one fetches; the others wait until it has. Rows that are all here need
    neither."""

    def __init__(self, rows: Rows, plan: Plan, steps: range):
        self._rows, self._plan = rows, plan
        self._first, self._end = plan.rows_before_step(steps.start), plan.rows_before_step(steps.stop)
        self._done = self._first
        """Rows of the steps that are done."""
        self._needed_until: dict[int, int] = {}
        self._next = self._spans()
        self._span = next(self._next, None)
        """The first span that no step has reached yet."""
        self._without_room: int | None = None
        """The shard that the thread waits to have room for."""
        self._problem: ValueError | None = None
        self._moved, self._closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._fetch, daemon=True)
        self._fetches = rows.origin is not None and os.environ.get("LOCAL_RANK", "0") == "0"
        if self._fetches:
            self._thread.start()

    def wait_for(self, step: int) -> None:
        """Wait until the shards of a step are here; a store that does not give them is named. Steps come in order, so
        the shards of earlier ones are here."""
        if self._rows.origin is None:
            return
        end = self._plan.rows_before_step(step + 1)
        with self._moved:
            while self._span is not None and self._span.first < end:
                while not self._is_kept(self._span):
                    if self._problem is not None:
                        raise self._problem
                    # Room for it would come of steps that are done, and this one waits for it.
                    if self._without_room == self._span.shard and not self._has_room(self._span.shard):
                        raise ValueError(
                            f"step {step} needs more shards of {self._rows.origin.url} at once than fit; raise "
                            "data.cache_gb, or lower train.global_batch or data.mix_shards"
                        )
                    self._moved.wait(_POLL_SECONDS)
                self._span = next(self._next, None)

    def _is_kept(self, span: Span) -> bool:
        """Whether a shard is here and stays. One of an earlier epoch is here, too, and may be about to be removed."""
        if not self._fetches:
            return self._rows.is_here(span.shard)
        return self._needed_until.get(span.shard, 0) >= span.end

    def done(self, step: int) -> None:
        """The batches of this step have been used, on every rank."""
        with self._moved:
            self._done = self._plan.rows_before_step(step + 1)
            self._moved.notify_all()

    def __exit__(self, *error) -> None:
        with self._moved:
            self._closed = True
            self._moved.notify_all()

    def _fetch(self) -> None:
        for shard, _, end in self._spans():
            if not self._rows.is_here(shard):
                with self._moved:
                    while not (self._closed or self._has_room(shard)):
                        self._without_room = shard
                        self._moved.wait()
                    self._without_room = None
                while not self._closed and not self._is_fetched(shard):
                    with self._moved:
                        self._moved.wait_for(lambda: self._closed, timeout=_PAUSE_SECONDS)
            if self._closed:
                return
            with self._moved:
                self._needed_until[shard] = end
                self._moved.notify_all()

    def _is_fetched(self, shard: int) -> bool:
        try:
            self._rows.fetch(shard)
            self._problem = None
        except ValueError as error:  # told to whoever waits for this shard; before that the store may recover
            self._problem = error
        except Exception as error:  # a full disk, or what nobody foresaw: a thread that ended would be waited for
            self._problem = ValueError(f"{self._rows.folder}: {error}; make room, or lower data.cache_gb")
        return self._problem is None

    def _spans(self) -> Iterator[Span]:
        """When each shard is needed from the first step on, in rows since the first epoch began."""
        num_rows = self._plan.num_rows
        for epoch in range(self._first // num_rows, -(-self._end // num_rows)):
            for shard, first, end in self._plan.spans(epoch, len(self._rows.rows_of_shards)):
                if epoch * num_rows + end > self._first and epoch * num_rows + first < self._end:
                    yield Span(shard, epoch * num_rows + first, epoch * num_rows + end)

    def _has_room(self, shard: int) -> bool:
        """Whether a shard fits, now that those are removed that no step needs before their next turn."""
        assert self._rows.origin is not None
        sizes = self._rows.bytes_of_shards
        here = [number for number in range(len(sizes)) if self._rows.is_here(number)]
        total = sum(sizes[number] for number in here) + sizes[shard]
        for number in here:
            if total > self._rows.origin.max_bytes and self._needed_until.get(number, 0) <= self._done:
                self._rows.drop(number)
                total -= sizes[number]
        return total <= self._rows.origin.max_bytes
