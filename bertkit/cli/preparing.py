"""The verb `prepare`, which turns text into rows: here, in parts, or on an engine; for a folder or a store."""

import argparse
import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bertkit.cli.answers import PRINTED, add_json, answer
from bertkit.cli.data import in_bytes
from bertkit.config.fields import add_flags, from_flags
from bertkit.engines.flags import add_part_flags, asks_for_engine, make_parts, refuse_beside_merge
from bertkit.run.lock import one_writer
from bertkit.terminal import printable
from data_pipelines import durable
from data_pipelines.places import cache_folder
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import find_sources
from data_pipelines.text.stores import folder_or_url
from data_pipelines.vocab.tokenizer_file import find_tokenizer

_MUCH_UNKNOWN = 0.01
_LOOK_SECONDS = 10.0
"""Between two looks at a store, while an engine makes the parts that shall be there."""


def prepare(parser: argparse.ArgumentParser):
    parser.epilog = (
        "examples:\n"
        "  bertkit prepare --corpus my.txt --tokenizer my-tokenizer --out shards --seq-len 128\n"
        "  bertkit prepare ... --out shards --part 3/16    (on each of 16 machines its own part)\n"
        "  bertkit prepare --merge shards                  (then merge the parts)\n"
        "  bertkit prepare ... --out shards --engine slurm --parts 256    (all of it on a cluster)\n\n"
        "The same command resumes after an interruption."
    )
    parser.add_argument(
        "--out", type=folder_or_url, metavar="FOLDER", help="folder to write, or URL (s3://, gs://, ...)"
    )
    parser.add_argument("--tokenizer", type=Path, metavar="PATH", help="tokenizer.json or a folder with one")
    add_part_flags(parser, "prepare", merge=folder_or_url)
    add_json(parser)
    add_flags(parser, CorpusConfig, optional=("corpus",))
    add_flags(parser, PrepareConfig)
    return _prepare


def _prepare(arguments: argparse.Namespace) -> None:
    if arguments.merge:
        _merge(arguments)
        return
    missing = [f"--{name}" for name in ("corpus", "tokenizer", "out") if not getattr(arguments, name, None)]
    if missing:
        raise ValueError(f"prepare needs {', '.join(missing)} (see 'bertkit prepare --help')")
    corpus, config = from_flags(CorpusConfig, arguments), from_flags(PrepareConfig, arguments)
    find_sources(corpus)  # refuses what is not there before anything heavy is imported
    find_tokenizer(arguments.tokenizer)

    from bertkit.terminal import progress_bar
    from data_pipelines.rows.given_ids import first_words
    from data_pipelines.rows.prepare import Progress
    from data_pipelines.rows.prepare import prepare as prepare_shards
    from data_pipelines.rows.publish import prepare_stored
    from data_pipelines.text.parts import Part
    from data_pipelines.vocab.tokenizer import load_tokenizer

    if asks_for_engine(arguments):
        with _made_here(arguments.out) as scratch:
            _prepare_on_engine(arguments, corpus, config, scratch)
        return
    part = Part.parse(arguments.part) if arguments.part else None
    worked = False
    if corpus.content == "ids" and arguments.json != PRINTED:
        print(f"the ids begin with {printable(first_words(corpus, load_tokenizer(arguments.tokenizer)))!r}", flush=True)

    def report(progress: Progress) -> None:
        nonlocal worked
        if not worked and progress.estimated_bytes is not None and arguments.json != PRINTED:
            print(f"about {in_bytes(progress.estimated_bytes)} of shards to write", flush=True)
        worked = True
        update(progress.chars, progress.total_chars, f"{progress.tokens / 1e6:.2f} M tokens")

    with _made_here(arguments.out, arguments.part) as scratch:
        make = partial(prepare_stored, scratch=scratch) if scratch else prepare_shards
        with progress_bar("preparing") as update:
            try:
                folder = make(corpus, arguments.tokenizer, config, arguments.out, part=part, report=report)
            except KeyboardInterrupt:
                raise KeyboardInterrupt("the same command resumes after the last full shard") from None
        written = str(arguments.out if scratch else folder)
        _answer_with_shards(arguments.json, folder, "" if worked else "the folder is already prepared", written)


@contextmanager
def _made_here(out: Path | str, part: str | None = None) -> Iterator[Path | None]:
    """The folder in which rows for a URL are made, removed once they are there; None for what is no URL. No other
    command makes the same rows meanwhile."""
    from data_pipelines.text.parts import Part

    if isinstance(out, Path):
        with one_writer(out / Part.parse(part).folder if part else out):
            yield None
        return
    folder = cache_folder() / "outgoing" / hashlib.sha256(f"{out} {part}".encode()).hexdigest()[:24]
    with one_writer(folder):
        yield folder
        if folder.is_dir():
            durable.remove_folder(folder)


def _prepare_on_engine(
    arguments: argparse.Namespace, corpus: CorpusConfig, config: PrepareConfig, scratch: Path | None
) -> None:
    """Let an engine run this verb for each part, and merge the parts. Of a URL `scratch` holds the logs."""
    from data_pipelines.rows.publish import begun_parts, check_made_of, is_finished, note_sources_at
    from data_pipelines.text.parts import Part

    out, num_parts = arguments.out, arguments.parts
    numbers = {Part(number, num_parts).folder: number for number in range(1, num_parts + 1)}
    check_made_of(out, corpus, arguments.tokenizer, config, num_parts)
    if not is_finished(out):
        note_sources_at(out, corpus, scratch)
        make_parts(
            ["prepare"],
            arguments,
            "preparing",
            lambda: {numbers[name] for name, finished in begun_parts(out).items() if finished},
            (scratch or out) / "logs",
            look_every=_LOOK_SECONDS if scratch else 0.0,
        )
    _merge_at(out, scratch, arguments.json)


def _merge(arguments: argparse.Namespace) -> None:
    refuse_beside_merge(arguments)
    with _made_here(arguments.merge) as scratch:
        _merge_at(arguments.merge, scratch, arguments.json)


def _merge_at(out: Path | str, scratch: Path | None, json: str | None) -> None:
    """Make one set of the parts in a folder, or at a URL by way of `scratch`, and say what it holds."""
    from data_pipelines.rows.prepare import merge
    from data_pipelines.rows.publish import is_finished, merge_stored
    from data_pipelines.rows.shards import verify_rows

    if scratch:
        folder, done = merge_stored(str(out), scratch=scratch)
    else:
        folder = Path(out)
        done = is_finished(folder)
        if done:
            verify_rows(folder)
        else:
            merge(folder)
    _answer_with_shards(json, folder, "the folder is already finished" if done else "", str(out))


def _answer_with_shards(json: str | None, folder: Path, nothing_to_do: str, written: str) -> None:
    """Say what a prepared folder holds, and why there was nothing to do, if so; else where it was `written`."""
    from data_pipelines.rows.manifest import SPLITS
    from data_pipelines.rows.prepare import unknown_share
    from data_pipelines.rows.shards import open_rows

    opened = {split: open_rows(folder, split) for split in SPLITS}
    unknown = unknown_share(folder)

    def show() -> None:
        if nothing_to_do:
            print(f"nothing to do: {nothing_to_do}")
        for split, rows in opened.items():
            print(f"  {split:<10} {len(rows):>12,} rows {rows.num_tokens:>15,} tokens")
        print(f"  {'unknown':<10} {unknown:>12.2%} of the tokens")
        if not nothing_to_do:
            print(f"wrote {written}")

    splits = {split: {"num_rows": len(rows), "num_tokens": rows.num_tokens} for split, rows in opened.items()}
    answer(json, {"folder": written, **splits, "unknown_share": unknown, "written": not nothing_to_do}, show)
    if unknown > _MUCH_UNKNOWN:
        print(
            f"bertkit: warning: {unknown:.1%} of the text is unknown to the tokenizer, and is never learned; "
            f"'bertkit tokenizer doctor' shows what, 'bertkit tokenizer train' makes one that fits",
            file=sys.stderr,
        )
