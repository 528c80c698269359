"""Answers for programs: in every verb `--json` prints one object, and `--json FILE` writes it to a file."""

import argparse
import contextlib
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from data_pipelines.durable import json_line, refuse_foreign, replace_file

PRINTED = "-"
"""What `--json` without a FILE means."""
_FILE_NAME = re.compile(r"-|[^\s\[<]+\.jsonl?")


def add_json(parser: argparse.ArgumentParser, what: str = "one JSON object") -> None:
    """Let the verb answer for programs; `what` they get."""
    about = f"print {what} and nothing else; with FILE, write it there and print the usual text (put it last)"
    parser.add_argument("--json", nargs="?", const=PRINTED, metavar="FILE", help=about)


def answer(target: str | None, facts: dict[str, Any], show: Callable[[], None]) -> None:
    """Give the facts where `--json` asks for them; people get what `show` prints."""
    if target != PRINTED:
        show()
    if target is not None:
        write_json(target, facts)


def write_json(target: str, facts: dict[str, Any]) -> None:
    """Print the facts as one object, or put them in the place of an older file."""
    line = json_line(facts)
    if target == PRINTED:
        print(line, end="")
    elif Path(target).exists() and not Path(target).is_file():  # a pipe
        Path(target).write_text(line, encoding="utf-8")
    else:
        replace_file(Path(target), line.encode())


@contextlib.contextmanager
def json_lines(target: str | None) -> Iterator[Callable[[dict[str, Any], Callable[[], None]], None]]:
    """The same for a verb that answers line for line: yields an `answer` that gives one object a line, each at once."""
    to_file = target not in (None, PRINTED)
    with open(str(target), "w", encoding="utf-8") if to_file else contextlib.nullcontext() as file:

        def answer_line(facts: dict[str, Any], show: Callable[[], None]) -> None:
            if target != PRINTED:
                show()
            if target is not None:
                print(json_line(facts), end="", file=file, flush=True)

        yield answer_line


def check_json(target: str | None) -> None:
    """Refuse, before the work, a place that cannot be written."""
    if target is None or target == PRINTED:
        return
    if Path(target).is_dir():
        raise ValueError(f"--json: {target} is a folder; name a file in it")
    if not Path(target).resolve().parent.is_dir():
        raise ValueError(f"--json: there is no folder {Path(target).parent}")
    refuse_foreign(Path(target), b"{", "an answer")


def settle_json(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    """Decide whether the word after `--json` is its FILE, where argparse alone would always take it.

    It is FILE if the verb could not take it otherwise. A verb that takes any word (a folder, a corpus, a text) takes
    FILE only as the last one, if its name ends in .json or .jsonl and nothing is missing without it. `--json=FILE`
    needs no rule.
    """
    place = words.index("--json") if "--json" in words else len(words)
    if "--json" not in parser._option_string_actions or place + 1 >= len(words) or "--" in words[:place]:
        return words
    word, after, rest = words[place + 1], words[place + 2 : place + 3], words[:place] + words[place + 2 :]
    choices = [action.choices for action in parser._actions if not action.option_strings]
    if all(names is not None for names in choices):
        is_file = not any(word in names for names in choices if names is not None)
    else:
        last = not after or after[0].startswith("-")
        is_file = last and bool(_FILE_NAME.fullmatch(word)) and _parses(parser, rest)
    if is_file:
        return words
    return [*words[:place], f"--json={PRINTED}", *words[place + 1 :]]


def _parses(parser: argparse.ArgumentParser, words: list[str]) -> bool:
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            parser.parse_known_args(words)
    except SystemExit:
        return False
    return True
