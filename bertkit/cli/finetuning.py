"""The verbs `finetune`, `tag` and `write`."""

import argparse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.cli.answers import add_json, answer, check_json
from bertkit.cli.models import MODEL, add_backend, only_for
from data_pipelines.text.encodings import UTF_8, check_encoding

if TYPE_CHECKING:
    from bertkit.config.finetune import FinetuneRecipe

_FOLDS = 5
Run = Callable[[argparse.Namespace], int | None]


def finetune(parser: argparse.ArgumentParser) -> Run:
    """Arguments of `bertkit finetune`."""
    from bertkit.cli.training import add_recipe_arguments
    from bertkit.config.fields import check_names
    from bertkit.config.finetune import FinetuneRecipe, read_finetune_recipe
    from bertkit.config.recipe import to_yaml
    from bertkit.finetune.checks import NAMES, check_finetune

    add_recipe_arguments(parser, FinetuneRecipe, "finetune", NAMES, example="data.train=my.conll")
    parser.add_argument(
        "--find-errors",
        action="store_true",
        help="train no final model; list the labels of data.train that are most likely wrong, and write a page",
    )
    parser.add_argument(
        "--folds", type=int, metavar="K", help="with --find-errors: number of cross-validation folds (default: 5)"
    )
    add_json(parser, "what --find-errors finds as one JSON object")

    def run(arguments: argparse.Namespace) -> int:
        recipe = read_finetune_recipe(arguments.recipe, arguments.changes)
        if arguments.print_config:
            check_names(recipe, NAMES)
            print(to_yaml(recipe), end="")
            return 0
        check_finetune(recipe)
        if arguments.find_errors:
            return _find_errors(recipe, arguments)
        for flag, value in (("--folds", arguments.folds), ("--json", arguments.json)):
            if value is not None:
                raise ValueError(f"{flag} needs --find-errors")
        from bertkit.finetune.train import finetune

        return finetune(recipe)

    return run


def _find_errors(recipe: "FinetuneRecipe", arguments: argparse.Namespace) -> int:
    from bertkit.finetune.checks import check_find_errors

    folds = _FOLDS if arguments.folds is None else arguments.folds
    check_find_errors(recipe, folds)
    check_json(arguments.json)

    from bertkit.finetune.clinic.find_errors import find_errors
    from bertkit.finetune.clinic.suspects import suspect_lines
    from bertkit.report.clinic.errors_page import write_errors_page

    exit_code, found = find_errors(recipe, folds)
    if found is not None:
        page = Path(found["list"]).with_suffix(".html")
        write_errors_page(page, found, recipe.data.train)
        facts = {**found, "page": str(page)}
        answer(arguments.json, facts, lambda: print(*suspect_lines(facts), sep="\n"))
    return exit_code


def tag(parser: argparse.ArgumentParser) -> Run:
    """Arguments of `bertkit tag`."""
    from data_pipelines.vocab.segmenters import SEGMENTERS

    parser.epilog = (
        "examples:\n"
        "  bertkit tag --model runs/ner news.txt > news.conll\n"
        "  zcat news.jsonl.gz | bertkit tag --model runs/ner --input jsonl --output jsonl\n\n"
        "Each line of raw text is tagged separately. Tags in the input are ignored.\n"
        "If the output format is that of the files, everything else is kept: blank lines, comments, columns, fields.\n"
        "--output jsonl writes one JSON object per line, one for each sentence."
    )
    _add_files(parser, "tag")
    parser.add_argument(
        "--input",
        choices=("auto", "text", "conll", "conllu", "jsonl", "spans", "doccano", "label-studio", "spacy"),
        default="auto",
        help="format of the files (default: auto, by file name; columns if they hold tags of the model, else raw text)",
    )
    parser.add_argument(
        "--output",
        choices=(
            *("auto", "conll", "conllu", "jsonl", "spans", "doccano", "label-studio", "brat", "spacy"),
            *("csv", "tsv", "view"),
        ),
        default="auto",
        help="format of the output (default: auto, a coloured view on a terminal, otherwise that of the files; for raw "
        "text, and for files in several formats, CoNLL)",
    )
    parser.add_argument(
        "--segmenter",
        choices=list(SEGMENTERS),
        default="",
        help="segmenter for text without spaces (default: one learned from the training words)",
    )
    parser.add_argument(
        "--ask",
        type=int,
        metavar="N",
        help="write only the N sentences most worth labelling next, best first: uncertain ones, unlike each other",
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="with --ask: also write a page that shows them")
    add_backend(parser)
    return _tag


def _tag(arguments: argparse.Namespace) -> None:
    from bertkit.hf.folder import check_named

    _check_files(arguments)
    check_named(arguments.model, graph=True)
    _check_ask(arguments)

    from bertkit.finetune.predict.files import tag_files
    from bertkit.finetune.predict.tagger import Tagger

    model = only_for(arguments.model, arguments.backend)
    tagger = Tagger.load(model, arguments.device, arguments.backend, arguments.segmenter)
    form = (arguments.input, arguments.output, arguments.encoding, arguments.errors)
    if arguments.ask is None:
        tag_files(tagger, arguments.files, *form)
        return

    from bertkit.finetune.clinic.next_to_label import next_to_label

    chosen: list[Any] = []

    def choose(answers: Iterable[Any]) -> Iterator[Any]:
        chosen.extend(next_to_label(answers, arguments.ask))
        return iter(chosen)

    tag_files(tagger, arguments.files, *form, choose)
    if arguments.page is not None:
        from bertkit.report.clinic.ask_page import write_ask_page

        write_ask_page(arguments.page, chosen, arguments.model, tagger.task.examples)


def _check_ask(arguments: argparse.Namespace) -> None:
    if arguments.ask is None and arguments.page is not None:
        raise ValueError("--page needs --ask")
    if arguments.ask is not None and arguments.ask < 1:
        raise ValueError(f"--ask must be at least 1, got {arguments.ask}")
    if arguments.ask is not None and arguments.output == "brat":
        raise ValueError("--output brat refers to positions in the whole file; with --ask choose another format")


def write(parser: argparse.ArgumentParser) -> Run:
    """Arguments of `bertkit write`."""
    parser.epilog = (
        "examples:\n"
        "  bertkit write --model runs/restored draft.txt > clean.txt\n"
        "  printf 'Haus\\tN;DAT;PL\\n' | bertkit write --model runs/german\n\n"
        "Each line is rewritten separately, in the same order; features follow their source after a tab.\n"
        "--output jsonl writes one JSON object per line, with the score of each text."
    )
    _add_files(parser, "rewrite")
    parser.add_argument(
        "--input",
        choices=("auto", "text", "jsonl", "csv"),
        default="auto",
        help="format of the files (default: auto, by file name; otherwise one source per line)",
    )
    parser.add_argument(
        "--output", choices=("text", "jsonl"), default="text", help="format of the output (default: one text per line)"
    )
    parser.add_argument("--passes", type=int, help="for a model that writes in parallel: number of passes")
    parser.add_argument("--beams", type=int, help="for a model that writes left to right: number of beams")
    parser.add_argument(
        "--best", type=int, help="for a model that writes left to right: number of texts for each source"
    )
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="also write a page that shows how the first texts were written"
    )
    return _write


def _write(arguments: argparse.Namespace) -> None:
    from bertkit.hf.folder import check_named

    _check_files(arguments)
    check_named(arguments.model)

    from bertkit.finetune.predict.files import tag_files
    from bertkit.finetune.writing.writer import Writer

    given = {name: getattr(arguments, name) for name in ("passes", "beams", "best")}
    options = {name: value for name, value in given.items() if value is not None}
    writer = Writer.load(only_for(arguments.model), arguments.device, **options)
    form = (arguments.input, arguments.output, arguments.encoding, arguments.errors)
    if arguments.page is None:
        tag_files(writer.tagger, arguments.files, *form)
        return

    from bertkit.finetune.writing.explained import explain
    from bertkit.report.writing.write_page import MOST, write_write_page

    first: list[Any] = []

    def noting(answers: Iterable[Any]) -> Iterator[Any]:
        for one in answers:
            if one.result is not None and len(first) < MOST:
                first.append(one.result)
            yield one

    tag_files(writer.tagger, arguments.files, *form, noting)
    shown = ((f"{one.source} → {one.text}", explain(writer, one.source, one.features)) for one in first)
    write_write_page(arguments.page, shown, arguments.model)


def _add_files(parser: argparse.ArgumentParser, verb: str) -> None:
    """Which files a model reads, how, and where it computes."""
    parser.add_argument("files", metavar="FILE", nargs="*", help=f"files to {verb}, also .gz; standard input if none")
    parser.add_argument("--model", required=True, metavar="DIR", help=MODEL)
    parser.add_argument("--encoding", default=UTF_8, help=f"of the input, such as latin-1 (default: {UTF_8})")
    about = "bytes that are invalid in the encoding: stop, or replace them (default: strict)"
    parser.add_argument("--errors", choices=("strict", "replace"), default="strict", help=about)
    parser.add_argument("--device", default="cpu", help="where to compute, such as cuda (default: cpu)")


def _check_files(arguments: argparse.Namespace) -> None:
    from bertkit.report.page import check_page

    for file in arguments.files:
        if Path(file).is_dir():
            raise ValueError(f"{file!r} is a folder; name the files in it")
        if not Path(file).is_file():
            raise ValueError(f"there is no file {file!r}")
    check_encoding(arguments.encoding, "--encoding")
    check_page(arguments.page)
