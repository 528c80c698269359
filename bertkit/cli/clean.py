"""The verb that takes out of a corpus what is not worth training on: clean."""

import argparse
from pathlib import Path

from bertkit.cli.answers import add_json, answer
from bertkit.config.fields import add_flags, from_flags
from data_pipelines.clean.config import CleanConfig
from data_pipelines.text.config import CorpusConfig


def clean(parser: argparse.ArgumentParser):
    parser.epilog = (
        "examples:\n"
        "  bertkit clean --corpus crawl.jsonl.gz --out clean-text\n"
        "  bertkit clean --corpus my.txt --against test.txt --private email phone card --out clean-text\n"
        "  bertkit pretrain bert-mini data.corpus=clean-text/text\n\n"
        "FOLDER gets the kept documents as JSON Lines in text/, all counts in clean.json, and report.html with\n"
        "examples of what went and why. Run again after an interruption, it resumes. Run again when done, it says so."
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="new folder for the cleaned text")
    add_json(parser)
    add_flags(parser, CorpusConfig)
    add_flags(parser, CleanConfig)
    return _clean


def _clean(arguments: argparse.Namespace) -> None:
    corpus, config = from_flags(CorpusConfig, arguments), from_flags(CleanConfig, arguments)

    from bertkit.report.cleaning import write_cleaning_page
    from bertkit.terminal import progress_bar
    from data_pipelines.clean.clean import check_cleanable, read_finished
    from data_pipelines.clean.clean import clean as clean_corpus
    from data_pipelines.text.corpus import corpus_bytes

    check_cleanable(corpus, arguments.out)
    done_before = read_finished(arguments.out) is not None
    total = corpus_bytes(corpus)
    with progress_bar("cleaning") as update:
        facts = clean_corpus(corpus, config, arguments.out, lambda what, done: update(done, total, what))
    page = arguments.out / "report.html"
    write_cleaning_page(page, facts)

    def show() -> None:
        if done_before:
            print(f"{arguments.out} was finished before")
        print(
            f"kept {facts['kept_documents']:,} of {facts['documents']:,} documents, "
            f"{facts['kept_characters']:,} of {facts['characters']:,} characters"
        )
        for reason, count in sorted(facts["dropped"].items(), key=lambda item: -item[1]):
            print(f"  {count:>9,}  {reason}")
        if facts["removed_lines"]:
            print(f"removed {facts['removed_lines']:,} lines that share text with {', '.join(config.against)}")
        for kind, count in facts["private"].items():
            print(f"replaced {count:,} of the kind {kind}")
        print(f"wrote {arguments.out} and {page}")

    answer(arguments.json, facts, show)
