"""Rows and a mask setting enter; the rows before and after, in colour, and the measured rates are shown."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from data_pipelines.batch import PackedBatch, RowBatch
from data_pipelines.collator import MaskingCollator
from data_pipelines.config import MaskConfig
from data_pipelines.mask_statistics import MaskStatistics
from data_pipelines.masking import KEPT, MASKED, RANDOM
from data_pipelines.shards import open_rows
from data_pipelines.tokenizer import Tokenizer, load_tokenizer
from data_pipelines.words import ideograph_starts, starts_from_word_ids

_STYLES = {MASKED: "bold yellow", RANDOM: "bold red", KEPT: "bold green"}
_SIGNS = {MASKED: "", RANDOM: "~", KEPT: "="}
"""Without colour: was→now for a mask, was~→now for a random token, =was for a kept one."""


class Inspected(NamedTuple):
    """Rows to look at, and the tokenizer that made them."""

    tokenizer: Tokenizer
    rows: RowBatch
    row_ids: np.ndarray


def rows_from_shards(folder: Path, sample: int) -> Inspected:
    """The first rows of a prepared folder."""
    rows = open_rows(folder)
    if not len(rows):
        rows = open_rows(folder, "validation")
    row_ids = np.arange(min(sample, len(rows)))
    return Inspected(load_tokenizer(folder / "tokenizer"), rows.gather(row_ids), row_ids)


def rows_from_texts(tokenizer_path: Path, texts: list[str]) -> Inspected:
    """Each text as one row, framed as the tokenizer does it."""
    tokenizer = load_tokenizer(tokenizer_path)
    encodings = tokenizer.backend.encode_batch(texts)
    starts = np.cumsum([0] + [len(encoding) for encoding in encodings])
    ids_T = np.concatenate([np.array(encoding.ids, np.int64) for encoding in encodings])
    # As in prepared rows: the tokenizer itself takes a clause of Chinese for one word.
    ideograph_V = ideograph_starts(tokenizer.backend.get_vocab(), tokenizer.vocab_size)
    words_T = np.concatenate([starts_from_word_ids(encoding.word_ids) for encoding in encodings])
    rows = RowBatch(ids_T, row_starts=starts, sequence_starts=starts, starts_word_T=words_T | ideograph_V[ids_T])
    return Inspected(tokenizer, rows, np.arange(len(texts)))


def inspect_rows(
    source: Inspected, config: MaskConfig, *, seed: int, epoch: int, show: int, step: int = 0, total_steps: int = 0
) -> None:
    """Mask the rows as a run of this seed does in this epoch at this step, and print what happened.

    A rate that changes is shown at five steps from the first to the last of `total_steps`, too.
    """
    collator = MaskingCollator.from_config(
        source.tokenizer, config, seed=seed, total_steps=total_steps, layout="packed", return_tensors="np"
    )

    def masked_at(step: int) -> tuple[PackedBatch, MaskStatistics, MaskConfig]:
        epochs, seen = np.full(len(source.row_ids), epoch), MaskStatistics()
        batch = collator.collate_rows(source.rows, source.row_ids, epochs, step)
        seen.add(source.rows, batch, collator.vocabulary.masking.maskable_V)
        rate = collator.rate(step) if callable(collator.rate) else collator.rate
        return batch, seen, replace(config, rate=rate, final_rate=None)

    console = Console(highlight=False, soft_wrap=True)
    batch, seen, config_then = masked_at(step)
    for row in range(min(show, len(source.row_ids))):
        console.print(_row_text(source, batch, row), end="\n\n")
    legend = Text("was→[MASK]", _STYLES[MASKED]) + Text("  ") + Text("was~→random", _STYLES[RANDOM]) + Text("  ")
    console.print(legend + Text("=kept", _STYLES[KEPT]))
    console.print(_table(seen, config_then, len(collator.vocabulary.masking.drawable)))
    if config.final_rate is not None:
        steps = sorted({total_steps * quarter // 4 for quarter in range(5)} | {step})
        console.print(_schedule(step, [(step, *masked_at(step)[1:]) for step in steps]))


def _row_text(source: Inspected, batch: PackedBatch, row: int) -> Text:
    start, end = source.rows.row_starts[row], source.rows.row_starts[row + 1]
    kinds = dict(zip(batch.target_index.tolist(), batch.target_kind.tolist(), strict=True))
    backend = source.tokenizer.backend
    line = Text()
    for place in range(start, end):
        was = _printable(backend.id_to_token(int(source.rows.ids_T[place])))
        kind = kinds.get(place)
        if kind is None:
            line.append(was + " ", "dim" if batch.input_ids[place] in source.tokenizer.special.special_ids else "")
        elif kind == KEPT:
            line.append(f"={was} ", _STYLES[KEPT])
        else:
            now = _printable(backend.id_to_token(int(batch.input_ids[place])))
            line.append(f"{was}{_SIGNS[kind]}→{now} ", _STYLES[kind])
    return line


def _table(seen: MaskStatistics, config: MaskConfig, drawable: int) -> Table:
    table = Table(title=f"measured on {seen.rows:,} rows, {seen.tokens:,} tokens", title_justify="left")
    for name in ("", "count", "share", "expected"):
        table.add_column(name, justify="left" if not name else "right")
    for rate in seen.rates(config, drawable):
        table.add_row(rate.name, f"{rate.count:,}", f"{rate.share:.2%}", _expected(rate.expected))
    return table


def _schedule(shown: int, seen_at: list[tuple[int, MaskStatistics, MaskConfig]]) -> Table:
    """The share of the maskable tokens that is selected at each step, `shown` being the step of the rows above."""
    table = Table(title="the mask rate by step", title_justify="left")
    for name in ("step", "selected", "expected", ""):
        table.add_column(name, justify="right" if name else "left")
    for step, seen, config in seen_at:
        share = seen.selected / max(seen.maskable, 1)
        table.add_row(f"{step:,}", f"{share:.2%}", _expected(config.rate), "shown above" if step == shown else "")
    return table


def _expected(share: float) -> str:
    return "0" if not share else f"{share:.2%}" if share >= 0.01 else f"{share:.3%}"


def _printable(token: str | None) -> str:
    """Corpus text must not steer the terminal."""
    return "".join(char if char.isprintable() else "�" for char in token or "?")
