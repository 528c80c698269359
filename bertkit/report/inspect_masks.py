"""Mask some rows as a run would, and show them before and after, with the measured rates."""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bertkit.terminal import Update, printable
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.config import MaskConfig
from data_pipelines.masks.masking import KEPT, MASKED, RANDOM
from data_pipelines.masks.statistics import MaskRate, MaskStatistics
from data_pipelines.rows.batch import RowBatch
from data_pipelines.rows.shards import open_rows
from data_pipelines.vocab.tokenizer import Tokenizer, load_tokenizer
from data_pipelines.vocab.words import ideograph_starts, starts_from_word_ids

_STYLES = {MASKED: "bold yellow", RANDOM: "bold red", KEPT: "bold green"}
_SIGNS = {MASKED: "", RANDOM: "~", KEPT: "="}
"""Without colour: was→now for a mask, was~→now for a random token, =was for a kept one."""

_ROWS_AT_ONCE = 1000


class Inspected(NamedTuple):
    """Rows to look at, and the tokenizer that made them."""

    tokenizer: Tokenizer
    row_ids: np.ndarray
    gather: Callable[[np.ndarray], RowBatch]
    """Reads some of the rows."""


class Inspection(NamedTuple):
    """What masking did to the rows."""

    shown: list[Text]
    """The first rows, before and after."""
    step: int
    """The step that the rows and rates are of."""
    seen: MaskStatistics
    rates: list[MaskRate]
    schedule: dict[int, MaskRate]
    """Of a rate that changes: the share selected at some steps."""

    def print(self) -> None:
        console = Console(highlight=False, soft_wrap=True)
        for row in self.shown:
            console.print(row, end="\n\n")
        legend = Text("was→[MASK]", _STYLES[MASKED]) + Text("  ") + Text("was~→random", _STYLES[RANDOM]) + Text("  ")
        console.print(legend + Text("=kept", _STYLES[KEPT]))
        console.print(_table(f"measured on {self.seen.rows:,} rows, {self.seen.tokens:,} tokens", self.rates))
        if self.schedule:
            console.print(_table("the mask rate by step", list(self.schedule.values())))

    def facts(self) -> dict[str, Any]:
        """The numbers, for programs."""
        rates = [asdict(rate) | {"share": rate.share} for rate in self.rates]
        schedule = [
            {"step": step, "share": rate.share, "expected": rate.expected} for step, rate in self.schedule.items()
        ]
        return {
            "rows": self.seen.rows,
            "tokens": self.seen.tokens,
            "step": self.step,
            "rates": rates,
            "schedule": schedule,
        }


def rows_from_shards(folder: Path, sample: int) -> Inspected:
    """The first rows of a prepared folder."""
    rows = open_rows(folder)
    if not len(rows):
        rows = open_rows(folder, "validation")
    return Inspected(load_tokenizer(folder / "tokenizer"), np.arange(min(sample, len(rows))), rows.gather)


def rows_from_texts(tokenizer_path: Path, texts: list[str]) -> Inspected:
    """Each text as one row, framed as the tokenizer does it."""
    tokenizer = load_tokenizer(tokenizer_path)
    # As in prepared rows: the tokenizer itself takes a clause of Chinese for one word.
    ideograph_V = ideograph_starts(tokenizer.backend.get_vocab(), tokenizer.vocab_size)

    def gather(row_ids: np.ndarray) -> RowBatch:
        encodings = tokenizer.backend.encode_batch([texts[index] for index in row_ids])
        starts = np.cumsum([0] + [len(encoding) for encoding in encodings])
        ids_T = np.concatenate([np.array(encoding.ids, np.int64) for encoding in encodings])
        words_T = np.concatenate([starts_from_word_ids(encoding.word_ids) for encoding in encodings])
        return RowBatch(ids_T, row_starts=starts, sequence_starts=starts, starts_word_T=words_T | ideograph_V[ids_T])

    return Inspected(tokenizer, np.arange(len(texts)), gather)


def inspect_rows(
    source: Inspected,
    config: MaskConfig,
    *,
    seed: int,
    epoch: int,
    show: int,
    step: int = 0,
    total_steps: int = 0,
    progress: AbstractContextManager[Update] | None = None,
) -> Inspection:
    """Mask the rows as a run of this seed does in this epoch at this step.

    A rate that changes is measured at five steps from the first to the last of `total_steps`, too. `progress` gets the
    number of rows masked so far, and their total.
    """
    collator = MaskingCollator.from_config(
        source.tokenizer, config, seed=seed, total_steps=total_steps, layout="packed", return_tensors="np"
    )
    vocabulary, num_rows = collator.vocabulary, len(source.row_ids)
    steps = [step]
    if config.final_rate is not None:
        steps = sorted({total_steps * quarter // 4 for quarter in range(5)} | {step})

    def masked(row_ids: np.ndarray, step: int) -> tuple[RowBatch, PackedBatch]:
        rows = source.gather(row_ids)
        return rows, collator.collate_rows(rows, row_ids, np.full(len(row_ids), epoch), step)

    def config_at(step: int) -> MaskConfig:
        return replace(config, rate=collator.rate_at(step), final_rate=None)

    seen_at = {step: MaskStatistics() for step in steps}
    with progress or nullcontext(lambda done, total, note: None) as update:
        for then, first in itertools.product(steps, range(0, num_rows, _ROWS_AT_ONCE)):
            rows, batch = masked(source.row_ids[first : first + _ROWS_AT_ONCE], then)
            seen_at[then].add(rows, batch, collator, then)
            done = sum(seen.rows for seen in seen_at.values())
            update(done, num_rows * len(steps), f"{done:,} rows")

    shown: list[Text] = []
    if show:
        rows, batch = masked(source.row_ids[:show], step)
        shown = [_row_text(source.tokenizer, rows, batch, row) for row in range(len(rows.row_starts) - 1)]
    rates = seen_at[step].rates(config_at(step), len(vocabulary.drawable))
    schedule = {}
    if config.final_rate is not None:
        for then, seen in seen_at.items():
            name = f"step {then:,}" + (", shown above" if then == step else "")
            schedule[then] = MaskRate(name, seen.selected, seen.maskable, seen.expected / max(seen.maskable, 1))
    return Inspection(shown, step, seen_at[step], rates, schedule)


def _row_text(tokenizer: Tokenizer, rows: RowBatch, batch: PackedBatch, row: int) -> Text:
    start, end = rows.row_starts[row], rows.row_starts[row + 1]
    kinds = dict(zip(batch.target_index.tolist(), batch.target_kind.tolist(), strict=True))
    backend = tokenizer.backend
    line = Text()
    for place in range(start, end):
        was = printable(backend.id_to_token(int(rows.ids_T[place])) or "?")
        kind = kinds.get(place)
        if kind is None:
            line.append(was + " ", "dim" if batch.input_ids[place] in tokenizer.special.special_ids else "")
        elif kind == KEPT:
            line.append(f"={was} ", _STYLES[KEPT])
        else:
            now = printable(backend.id_to_token(int(batch.input_ids[place])) or "?")
            line.append(f"{was}{_SIGNS[kind]}→{now} ", _STYLES[kind])
    return line


def _table(title: str, rates: list[MaskRate]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("", "count", "share", "expected"):
        table.add_column(name, justify="left" if not name else "right")
    for rate in rates:
        table.add_row(rate.name, f"{rate.count:,}", f"{rate.share:.2%}", _expected(rate.expected))
    return table


def _expected(share: float) -> str:
    return "0" if not share else f"{share:.2%}" if share >= 0.01 else f"{share:.3%}"
