"""The verbs that turn text into rows: tokenizer, prepare."""

import argparse
import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bertkit.cli.answers import PRINTED, add_json, answer
from bertkit.cli.plugins import IMPORTED
from bertkit.config.fields import add_flags, from_flags
from bertkit.engines.flags import add_part_flags, asks_for_engine, part_command, refuse_beside_merge
from bertkit.terminal import printable
from data_pipelines import durable
from data_pipelines.places import cache_folder
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.stores import folder_or_url
from data_pipelines.vocab.config import TokenizerConfig

if TYPE_CHECKING:
    from data_pipelines.vocab.doctor import Diagnosis
    from data_pipelines.vocab.tokenizer import Tokenizer

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
_MUCH_UNKNOWN = 0.01


def tokenizer(parser: argparse.ArgumentParser):
    examples = (
        "examples:\n"
        "  bertkit tokenizer train --corpus books/*.txt --vocab-size 16000 --out my-tokenizer\n"
        "  bertkit tokenizer train ... --out my-tokenizer --engine slurm --parts 64   (words counted on a cluster)\n"
        "  bertkit tokenizer doctor --tokenizer my-tokenizer --corpus other.txt"
    )
    parser.epilog = examples
    actions = parser.add_subparsers(dest="action", required=True, metavar="train|doctor")

    def add_action(name: str, summary: str) -> argparse.ArgumentParser:
        description = f"{summary[0].upper()}{summary[1:]}."
        return actions.add_parser(name, help=summary, description=description, epilog=examples)

    train = add_action("train", "train a tokenizer on a corpus and examine it")
    train.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="folder to write; AutoTokenizer opens it too"
    )
    add_part_flags(train, "count the words of", merge=None)
    train.add_argument("--held-out", nargs="+", metavar="CORPUS", help="text to examine the tokenizer on")
    add_json(train)
    add_flags(train, CorpusConfig)
    add_flags(train, TokenizerConfig)
    doctor = add_action("doctor", "say how well a tokenizer fits a text")
    doctor.add_argument(
        "--tokenizer", type=Path, required=True, metavar="PATH", help="tokenizer.json or a folder with one"
    )
    add_json(doctor)
    add_flags(doctor, CorpusConfig)
    return lambda arguments: {"train": _train, "doctor": _doctor}[arguments.action](arguments)


def prepare(parser: argparse.ArgumentParser):
    parser.epilog = (
        "examples:\n"
        "  bertkit prepare --corpus my.txt --tokenizer my-tokenizer --out shards --seq-len 128\n"
        "  bertkit prepare ... --out shards --part 3/16    (on each of 16 machines its own part)\n"
        "  bertkit prepare --merge shards                  (then make one set of the parts)\n"
        "  bertkit prepare ... --out shards --engine slurm --parts 256    (all of it on a cluster)\n\n"
        "Run again after an interruption, it resumes. Run again when done, it says so."
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


def _train(arguments: argparse.Namespace) -> None:
    corpus, config = from_flags(CorpusConfig, arguments), from_flags(TokenizerConfig, arguments)
    _check_sources(corpus)
    held_out = None
    if arguments.held_out:
        held_out = from_flags(CorpusConfig, arguments, corpus=arguments.held_out)
        _check_sources(held_out)
    _make_tokenizer_folder(arguments.out)

    if arguments.part:
        _count_part(arguments, corpus, config)
        return
    trained = (_train_on_engine if asks_for_engine(arguments) else _train_here)(arguments, corpus, config)
    found = examine_corpus(trained, held_out or corpus)

    def show() -> None:
        print(f"wrote {arguments.out}: {trained.vocab_size:,} tokens")
        if held_out is None:
            print("examined on the start of the training text itself; --held-out PATH gives an honest figure")
        _print_diagnosis(found)

    facts = {"folder": str(arguments.out), "vocab_size": trained.vocab_size, "held_out": held_out is not None}
    answer(arguments.json, facts | found.facts(), show)


def _train_here(arguments: argparse.Namespace, corpus: CorpusConfig, config: TokenizerConfig) -> "Tokenizer":
    from bertkit.terminal import progress_bar
    from data_pipelines.vocab.tokenizer import train_tokenizer

    with progress_bar("training the tokenizer") as update:
        tell = lambda done, total: update(done, total, f"{_size(done)} read")  # noqa: E731
        return train_tokenizer(corpus, config, arguments.out, tell)


def _count_part(arguments: argparse.Namespace, corpus: CorpusConfig, config: TokenizerConfig) -> None:
    """Leave the words of one part for the process that trains."""
    from bertkit.terminal import progress_bar
    from data_pipelines.text.parts import Part
    from data_pipelines.vocab.sample import count_part, counting_folder

    part, folder = Part.parse(arguments.part), counting_folder(corpus, config, arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    with progress_bar("counting words") as update:
        tell = lambda done, total: update(done, total, f"{_size(done)} read")  # noqa: E731
        count_part(corpus, config, part, tell).save(folder / f"{part.folder}.json")
    told = f"counted part {arguments.part}; once all are, the same command with --engine local --parts {part.of} trains"
    facts = {"folder": str(arguments.out), "part": arguments.part, "finished": False}
    answer(arguments.json, facts, lambda: print(told))


def _train_on_engine(arguments: argparse.Namespace, corpus: CorpusConfig, config: TokenizerConfig) -> "Tokenizer":
    """Let an engine run this verb for each part, and train on the words of all."""
    from bertkit.engines.parts import run_parts
    from bertkit.terminal import progress_bar
    from data_pipelines.text.corpus import corpus_bytes
    from data_pipelines.text.parts import Part
    from data_pipelines.vocab.sample import Counted, counting_folder
    from data_pipelines.vocab.tokenizer import train_on_counts

    if corpus_bytes(corpus) is None:
        raise ValueError("--engine: a dataset on the hub has no size by which to sample it; train without --engine")
    folder = counting_folder(corpus, config, arguments.out)
    paths = [folder / f"{Part(number, arguments.parts).folder}.json" for number in range(1, arguments.parts + 1)]
    command_of = part_command(["tokenizer", "train"], arguments, IMPORTED)
    with progress_bar(f"counting words on {arguments.engine}") as update:
        tell = lambda done, total: update(done, total, f"{done:,} of {total:,} parts")  # noqa: E731
        run_parts(
            arguments.engine,
            arguments.parts,
            command_of,
            lambda number: paths[number - 1].is_file(),
            folder / "logs",
            tell,
        )
    counted = Counted()
    for path in paths:
        counted.add(Counted.load(path))
    trained = train_on_counts(corpus, config, arguments.out, counted)
    durable.remove_folder(folder)
    return trained


def _doctor(arguments: argparse.Namespace) -> None:
    corpus = from_flags(CorpusConfig, arguments)
    _check_sources(corpus)
    check_tokenizer(arguments.tokenizer)

    from data_pipelines.vocab.tokenizer import load_tokenizer

    found = examine_corpus(load_tokenizer(arguments.tokenizer), corpus)
    answer(arguments.json, found.facts(), lambda: _print_diagnosis(found))


def examine_corpus(tokenizer: "Tokenizer", corpus: CorpusConfig, max_documents: int = 20_000) -> "Diagnosis":
    from itertools import islice

    from bertkit.terminal import progress_bar
    from data_pipelines.text.corpus import read_documents
    from data_pipelines.vocab.doctor import examine

    def texts() -> Iterator[str]:
        for place, document in enumerate(islice(read_documents(corpus), max_documents)):
            update(place, None, f"{place:,} documents")
            yield document.text

    with progress_bar("examining the tokenizer") as update:
        found = examine(tokenizer, texts())
    if not found.num_tokens:
        raise ValueError(f"the corpus {', '.join(corpus.corpus)} holds no text to examine the tokenizer on")
    return found


def _print_diagnosis(found: "Diagnosis") -> None:
    examples = ", ".join(f"{printable(text)} {count}×" for text, count in found.unknown_examples)
    lines = [
        (
            "examined",
            f"{found.num_documents:,} documents, {found.num_chars:,} characters, {found.num_tokens:,} tokens",
        ),
        ("unknown", f"{found.unknown_rate:.3%} of the tokens" + (f" ({examples})" if examples else "")),
        ("pieces per word", f"{found.pieces_per_word:.3f}"),
        ("bytes per token", f"{found.bytes_per_token:.2f}"),
        ("vocabulary used", f"{found.share_used:.1%} of {found.num_ordinary:,} ordinary tokens"),
        ("special tokens", "; ".join(found.complaints) or "in order"),
    ]
    for name, value in lines:
        print(f"  {name:<16} {value}")


def _prepare(arguments: argparse.Namespace) -> None:
    if arguments.merge:
        _merge(arguments)
        return
    missing = [f"--{name}" for name in ("corpus", "tokenizer", "out") if not getattr(arguments, name, None)]
    if missing:
        raise ValueError(f"prepare needs {', '.join(missing)} (see 'bertkit prepare --help')")
    corpus, config = from_flags(CorpusConfig, arguments), from_flags(PrepareConfig, arguments)
    _check_sources(corpus)
    check_tokenizer(arguments.tokenizer)

    from bertkit.terminal import progress_bar
    from data_pipelines.rows.prepare import Progress
    from data_pipelines.rows.prepare import prepare as prepare_shards
    from data_pipelines.rows.publish import prepare_stored
    from data_pipelines.text.parts import Part

    if asks_for_engine(arguments):
        _prepare_on_engine(arguments, corpus, config)
        return
    part = Part.parse(arguments.part) if arguments.part else None
    worked = False

    def report(progress: Progress) -> None:
        nonlocal worked
        if not worked and progress.estimated_bytes is not None and arguments.json != PRINTED:
            print(f"about {_size(progress.estimated_bytes)} of shards to write", flush=True)
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
        _answer_with_shards(arguments.json, folder, "" if worked else "the folder is prepared already", written)


@contextmanager
def _made_here(out: Path | str, part: str | None = None) -> Iterator[Path | None]:
    """The folder in which rows for a URL are made, removed once they are there; None for what is no URL."""
    if isinstance(out, Path):
        yield None
        return
    folder = cache_folder() / "outgoing" / hashlib.sha256(f"{out} {part}".encode()).hexdigest()[:24]
    yield folder
    if folder.is_dir():
        durable.remove_folder(folder)


def _prepare_on_engine(arguments: argparse.Namespace, corpus: CorpusConfig, config: PrepareConfig) -> None:
    """Let an engine run this verb for each part, and merge the parts."""
    out, engine, num_parts = arguments.out, arguments.engine, arguments.parts
    if not isinstance(out, Path):
        raise ValueError(f"--engine writes to a folder that its workers share, not to {out}; give each --part a URL")

    from bertkit.engines.parts import run_parts
    from bertkit.terminal import progress_bar
    from data_pipelines.rows.manifest import MANIFEST
    from data_pipelines.rows.prepare import check_made_of, merge, note_sources
    from data_pipelines.text.parts import Part

    def is_done(number: int) -> bool:
        return (out / Part(number, num_parts).folder / MANIFEST).is_file()

    check_made_of(out, corpus, arguments.tokenizer, config)
    foreign = [path.name for path in sorted(out.glob("part-*-of-*")) if not path.name.endswith(f"-of-{num_parts:05d}")]
    if foreign:
        raise ValueError(f"{out} holds {foreign[0]}, which is none of {num_parts} parts; choose another folder")
    finished = (out / MANIFEST).is_file()
    if not finished:
        note_sources(out, corpus)
        with progress_bar(f"preparing on {engine}") as update:
            tell = lambda done, total: update(done, total, f"{done:,} of {total:,} parts")  # noqa: E731
            run_parts(engine, num_parts, part_command(["prepare"], arguments, IMPORTED), is_done, out / "logs", tell)
        merge(out)
    _answer_with_shards(arguments.json, out, "the folder is one finished set already" if finished else "", str(out))


def _merge(arguments: argparse.Namespace) -> None:
    refuse_beside_merge(arguments)

    from data_pipelines.rows.manifest import MANIFEST
    from data_pipelines.rows.prepare import merge
    from data_pipelines.rows.publish import merge_stored

    with _made_here(arguments.merge) as scratch:
        if scratch:
            folder, done = merge_stored(arguments.merge, scratch=scratch)
        else:
            folder = arguments.merge
            done = (folder / MANIFEST).exists()
            if not done:
                merge(folder)
        nothing_to_do = "the folder is one finished set already" if done else ""
        _answer_with_shards(arguments.json, folder, nothing_to_do, str(arguments.merge))


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
            f"bertkit: warning: {unknown:.1%} of the text is unknown to the tokenizer, and is never learnt; "
            f"'bertkit tokenizer doctor' shows what, 'bertkit tokenizer train' makes one that fits",
            file=sys.stderr,
        )


def _make_tokenizer_folder(folder: Path) -> None:
    """Whether the folder can be written, and holds nothing else, is found out before the training."""
    own = {durable.temporary_path(folder / name).name for name in _TOKENIZER_FILES}.union(_TOKENIZER_FILES)
    if foreign := sorted(path.name for path in folder.glob("*") if path.name not in own):
        raise ValueError(f"--out {folder} holds something that is no tokenizer ({foreign[0]}); choose another folder")
    folder.mkdir(parents=True, exist_ok=True)


def check_tokenizer(path: Path) -> None:
    """Report a tokenizer that is not there before anything heavy is imported."""
    from data_pipelines.vocab.tokenizer_file import find_tokenizer

    find_tokenizer(path)


def _check_sources(corpus: CorpusConfig) -> None:
    """Report a corpus that is not there before anything heavy is imported."""
    from data_pipelines.text.corpus import find_sources

    find_sources(corpus)


def _size(num_bytes: int) -> str:
    """In the largest unit of which there is at least one."""
    if num_bytes < 1e6:
        return f"{max(num_bytes / 1e3, 0.1):.1f} kB"
    return f"{num_bytes / 1e6:,.1f} MB" if num_bytes < 1e9 else f"{num_bytes / 1e9:,.1f} GB"
