"""The verbs about raw text: clean takes out what is not worth training on, corpus says what a corpus is like, pairs
makes training data of it for a model that restores what was dropped."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.cli.answers import add_json, answer
from bertkit.config.fields import add_flags, from_flags
from bertkit.engines.flags import add_part_flags, asks_for_engine, make_parts, refuse_beside_merge
from bertkit.terminal import printable
from data_pipelines.clean.config import CleanConfig
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import corpus_bytes, find_sources
from data_pipelines.vocab.tokenizer_file import find_tokenizer

if TYPE_CHECKING:
    from data_pipelines.clean.card import Card
    from data_pipelines.clean.job import Job


def clean(parser: argparse.ArgumentParser):
    parser.epilog = (
        "examples:\n"
        "  bertkit clean --corpus crawl.jsonl.gz --out clean-text\n"
        "  bertkit clean --corpus my.txt --against test.txt --private email phone card --out clean-text\n"
        "  bertkit clean --corpus 's3://crawl/*.jsonl.gz' --out clean-text --engine slurm --parts 256\n"
        "  bertkit pretrain bert-mini data.corpus=clean-text/text\n\n"
        "FOLDER gets the kept documents as JSON Lines in text/, all counts in clean.json, and report.html with\n"
        "examples of what went and why. The same, whatever the number of parts. Run again after an interruption, it\n"
        "resumes. Run again when done, it says so. By hand: --part K/N for each K, --merge FOLDER, and both once more."
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="new folder for the cleaned text")
    add_part_flags(parser, "clean")
    add_json(parser)
    add_flags(parser, CorpusConfig, optional=("corpus",))
    add_flags(parser, CleanConfig)
    return _clean


def _clean(arguments: argparse.Namespace) -> None:
    if arguments.merge:
        _merge(arguments)
        return
    missing = [f"--{name}" for name in ("corpus", "out") if not getattr(arguments, name, None)]
    if missing:
        raise ValueError(f"clean needs {', '.join(missing)} (see 'bertkit clean --help')")
    corpus, config = from_flags(CorpusConfig, arguments), from_flags(CleanConfig, arguments)
    on_engine = asks_for_engine(arguments)

    from bertkit.run.lock import one_writer
    from bertkit.terminal import progress_bar
    from data_pipelines.clean.clean import clean as clean_corpus
    from data_pipelines.clean.clean import make_part
    from data_pipelines.clean.job import check_cleanable, open_job, read_finished
    from data_pipelines.text.parts import Part

    check_cleanable(corpus, config, arguments.out)
    done_before = read_finished(arguments.out) is not None
    total = corpus_bytes(corpus)
    if on_engine:
        with one_writer(arguments.out):
            facts = _clean_on_engine(arguments, open_job(corpus, config, arguments.out))
    else:
        part = Part.parse(arguments.part) if arguments.part else None
        with progress_bar("cleaning") as update:
            tell = lambda what, done: update(done, total and total // (part or Part()).of, what)  # noqa: E731
            if part is not None and not done_before:
                job = open_job(corpus, config, arguments.out)
                does = "written" if job.decided else "measured"
                make_part(job, part, tell)
                _answer_with_part(arguments, does)
                return
            try:
                with one_writer(arguments.out):
                    facts = clean_corpus(corpus, config, arguments.out, tell)
            except KeyboardInterrupt:
                raise KeyboardInterrupt("the same command resumes after the last block of text") from None
    _answer_with_findings(arguments.json, facts, arguments.out, done_before)


def _answer_with_part(arguments: argparse.Namespace, does: str) -> None:
    told = f"part {arguments.part} is {does}; once all parts are, run: bertkit clean --merge {arguments.out}"
    facts = {"folder": str(arguments.out), "part": arguments.part, "step": does, "finished": False}
    answer(arguments.json, facts, lambda: print(told))


def _clean_on_engine(arguments: argparse.Namespace, job: "Job") -> dict[str, Any]:
    """Let an engine run this verb for each part, twice: before and after it is decided what repeats what."""
    from data_pipelines.clean.clean import decide, finish
    from data_pipelines.clean.job import read_finished
    from data_pipelines.text.parts import Part

    if (finished := read_finished(arguments.out)) is not None:
        return finished
    num_parts = arguments.parts
    for does in ("writing",) if job.decided else ("measuring", "writing"):
        make_parts(
            ["clean"],
            arguments,
            does,
            lambda: {number for number in range(1, num_parts + 1) if job.is_done(Part(number, num_parts))},
            job.state / "logs",
        )
        if does == "measuring":
            decide(job, num_parts)
    return finish(job)


def _merge(arguments: argparse.Namespace) -> None:
    """After the first round of parts decide what repeats what, after the second finish."""
    refuse_beside_merge(arguments)

    from bertkit.run.lock import one_writer

    with one_writer(arguments.merge):
        _merge_parts(arguments)


def _merge_parts(arguments: argparse.Namespace) -> None:
    from data_pipelines.clean.clean import decide, finish
    from data_pipelines.clean.job import read_finished, reopen_job

    if (finished := read_finished(arguments.merge)) is not None:
        _answer_with_findings(arguments.json, finished, arguments.merge, done_before=True)
        return
    job = reopen_job(arguments.merge)
    if job.decided:
        _answer_with_findings(arguments.json, finish(job), arguments.merge, done_before=False)
        return
    findings = decide(job, job.measured_parts())
    told = "decided what repeats what; run the parts once more, which then write, and merge again"
    answer(arguments.json, {**findings.facts(), "finished": False}, lambda: print(told))


def _answer_with_findings(json: str | None, facts: dict[str, Any], out: Path, done_before: bool) -> None:
    from bertkit.report.cleaning import write_cleaning_page

    page = out / "report.html"
    write_cleaning_page(page, facts)

    def show() -> None:
        if done_before:
            print(f"{out} was finished before")
        print(
            f"kept {facts['kept_documents']:,} of {facts['documents']:,} documents, "
            f"{facts['kept_characters']:,} of {facts['characters']:,} characters"
        )
        for reason, count in sorted(facts["dropped"].items(), key=lambda item: -item[1]):
            print(f"  {count:>9,}  {reason}")
        if facts["removed_lines"]:
            against = ", ".join(facts["identity"]["clean"]["against"])
            print(f"removed {facts['removed_lines']:,} lines that share text with {against}")
        for kind, count in facts["private"].items():
            print(f"private data replaced: {kind} {count:,} times")
        print(f"wrote {out} and {page}")

    answer(json, facts, show)


def corpus(parser: argparse.ArgumentParser):
    parser.epilog = (
        "examples:\n"
        "  bertkit corpus report --corpus my.txt\n"
        "  bertkit corpus report --corpus crawl.jsonl.gz --tokenizer my-tokenizer --out crawl.html --json crawl.json"
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    about = "describe a corpus: sizes, lengths, languages, duplicates, frequent words, unusual characters"
    report = actions.add_parser("report", help=about, description=f"{about[0].upper()}{about[1:]}.")
    report.add_argument("--out", type=Path, default=Path("corpus.html"), metavar="FILE", help="page to write")
    report.add_argument("--tokenizer", type=Path, metavar="PATH", help="also report how well this tokenizer fits")
    add_json(report)
    add_flags(report, CorpusConfig)
    return _corpus


def _corpus(arguments: argparse.Namespace) -> None:
    corpus = from_flags(CorpusConfig, arguments)

    from bertkit.cli.data import examine_corpus
    from bertkit.report.page import check_page

    find_sources(corpus)
    check_page(arguments.out)
    if arguments.tokenizer is not None:
        find_tokenizer(arguments.tokenizer)

    from bertkit.report.corpus_card import write_corpus_page
    from bertkit.terminal import progress_bar
    from data_pipelines.clean.card import describe

    total, tokenizer = corpus_bytes(corpus), None
    with progress_bar("reading") as update:
        card = describe(corpus, lambda done: update(done, total, ""))
    if arguments.tokenizer is not None:
        from data_pipelines.vocab.tokenizer import load_tokenizer

        tokenizer = examine_corpus(load_tokenizer(arguments.tokenizer), corpus).facts()
    write_corpus_page(arguments.out, ", ".join(corpus.corpus), card, tokenizer)
    facts = {**card.facts(), "tokenizer": tokenizer, "page": str(arguments.out)}
    answer(arguments.json, facts, lambda: _show(card, tokenizer, arguments.out))


def _show(card: "Card", tokenizer: dict[str, Any] | None, page: Path) -> None:
    from data_pipelines.clean.card import NGRAMS

    print(f"{card.documents:,} documents, {card.words:,} words, {card.characters:,} characters")
    letters = max(sum(card.scripts.values()), 1)
    print("scripts: " + ", ".join(f"{name} {count / letters:.1%}" for name, count in list(card.scripts.items())[:5]))
    print(f"repeated documents: {card.repeated:,} word for word, {card.nearly_repeated:,} nearly")
    if card.languages is not None:
        told = [f"{code} {count / max(card.documents, 1):.1%}" for code, count in list(card.languages.items())[:5]]
        print("languages: " + ", ".join(told))
    if card.ngrams[NGRAMS[-1]]:
        phrase, count = card.ngrams[NGRAMS[-1]][0]
        print(f"most frequent phrase: {printable(phrase)!r}, {count:,} times")
    if card.odd:
        print("odd characters: " + ", ".join(f"{code} {kind} {count:,}" for code, kind, _, count in card.odd[:5]))
    if tokenizer is not None:
        print(f"unknown tokens: {tokenizer['unknown_rate']:.3%}")
    print(f"wrote {page}")


def pairs(parser: argparse.ArgumentParser):
    parser.epilog = (
        "examples:\n"
        "  bertkit pairs --corpus my.txt --drop case,punctuation --out pairs\n"
        "  bertkit finetune rewrite data.train=pairs/train.tsv data.dev=pairs/dev.tsv run.dir=runs/restored\n\n"
        "FOLDER gets train.tsv and dev.tsv: a sentence a line, without what is dropped and as it is. A sentence that\n"
        "occurs twice in the corpus is taken once."
    )
    parser.add_argument(
        "--drop",
        required=True,
        type=lambda value: value.split(","),
        metavar="NAME,NAME",
        help="what to drop from the source: case, punctuation, accents",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder for the two files")
    about = "longest sentence, in characters; longer ones are left out (default: 200)"
    parser.add_argument("--max-chars", type=int, default=200, metavar="N", help=about)
    parser.add_argument(
        "--dev-share",
        type=float,
        default=0.05,
        metavar="SHARE",
        help="share of the sentences for dev.tsv (default: 0.05)",
    )
    add_json(parser)
    add_flags(parser, CorpusConfig)
    return _pairs


def _pairs(arguments: argparse.Namespace) -> None:
    corpus = from_flags(CorpusConfig, arguments)

    from bertkit.run.lock import one_writer
    from data_pipelines.labels.dropping import DEV, DROPS, FACTS, TRAIN, write_dropped_pairs

    for name in arguments.drop:
        if name not in DROPS:
            raise ValueError(f"--drop: unknown value {name!r}; choose from {', '.join(DROPS)}")
    if arguments.max_chars < 1:
        raise ValueError(f"--max-chars must be at least 1, got {arguments.max_chars}")
    if not 0 <= arguments.dev_share < 1:
        raise ValueError(f"--dev-share must be in [0, 1), got {arguments.dev_share}")
    found = {path.name for path in arguments.out.iterdir()} if arguments.out.is_dir() else set()
    if found and (FACTS not in found or found - {TRAIN, DEV, FACTS}):
        raise ValueError(f"--out: {arguments.out} holds other files, which would be overwritten; choose a new folder")
    find_sources(corpus)
    with one_writer(arguments.out):
        counts = write_dropped_pairs(corpus, arguments.drop, arguments.out, arguments.max_chars, arguments.dev_share)
    if not counts.train:
        sources = ", ".join(corpus.corpus)
        raise ValueError(f"--corpus: {sources} holds no sentence of at most {arguments.max_chars} characters")

    def show() -> None:
        print(f"wrote {counts.train:,} pairs to {arguments.out / TRAIN}, {counts.dev:,} to {arguments.out / DEV}")
        if counts.too_long:
            print(f"left out {counts.too_long:,} sentences of more than {arguments.max_chars} characters (--max-chars)")

    answer(arguments.json, {**counts._asdict(), "folder": str(arguments.out)}, show)
