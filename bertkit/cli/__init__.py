"""The `bertkit` command: a verb and its arguments enter, one call and an exit code leave."""

import argparse
import contextlib
import errno
import importlib
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple, NoReturn

from bertkit.cli.answers import check_json, settle_json
from bertkit.events import event, json_log
from bertkit.plugins import import_plugins
from bertkit.terminal import DroppingStream, open_closed_streams, printable, silence_if_lost
from data_pipelines.table import did_you_mean


class Verb(NamedTuple):
    """Where a verb lives and what it is for. The module has a function of the verb's name that adds the
    verb's arguments to a parser and returns what to call with the parsed ones."""

    module: str
    summary: str


# Everything heavy is imported inside a verb's `run`, so that help and mistakes answer at once.
VERBS: dict[str, Verb] = {
    "demo": Verb("bertkit.cli.training", "Run the main job end to end on text from this installation."),
    "corpus": Verb("bertkit.cli.corpus", "Describe a corpus before training on it."),
    "clean": Verb("bertkit.cli.corpus", "Remove duplicates and poor text from a corpus, and report what was removed."),
    "pairs": Verb(
        "bertkit.cli.corpus", "Make pairs from raw text, to train a model that restores capitals or punctuation."
    ),
    "tokenizer": Verb("bertkit.cli.data", "Train a tokenizer on a corpus, or examine one on held-out text."),
    "prepare": Verb("bertkit.cli.preparing", "Turn a corpus and a tokenizer into token shards for pretraining."),
    "inspect-masks": Verb("bertkit.cli.masks", "Show rows before and after masking, with the measured rates."),
    "pretrain": Verb("bertkit.cli.training", "Pretrain an encoder on raw text, or resume a run."),
    "anneal": Verb("bertkit.cli.training", "Branch from a checkpoint of a run and decay its learning rate to the end."),
    "ablate": Verb("bertkit.cli.ablating", "Train variants of a recipe with several seeds, and compare them in pairs."),
    "evaluate": Verb(
        "bertkit.cli.evaluating", "Score a masked-language model on a corpus, or a tagger on labeled files."
    ),
    "judge": Verb("bertkit.cli.judging", "Judge minimal pairs: is the good sentence more likely than the bad one?"),
    "finetune": Verb("bertkit.cli.finetuning", "Fine-tune an encoder on labeled sentences or texts."),
    "tag": Verb("bertkit.cli.finetuning", "Tag raw text, CoNLL or JSON Lines with a fine-tuned model."),
    "write": Verb("bertkit.cli.finetuning", "Rewrite texts with a fine-tuned model: correct, normalise, inflect."),
    "fill": Verb("bertkit.cli.models", "Fill the [MASK]s of a text."),
    "import": Verb("bertkit.cli.models", "Convert a Hugging Face model folder, checking every name and shape."),
    "export": Verb("bertkit.cli.models", "Write a folder that transformers opens."),
    "info": Verb("bertkit.cli.models", "Describe a model folder: parts, memory, operations, labels."),
    "report": Verb("bertkit.cli.pages", "Write a page that shows one run or compares several."),
    "attention": Verb("bertkit.cli.pages", "Write a page that shows where every head looks in a text."),
    "plan": Verb("bertkit.cli.plan", "Compute, without a GPU, the memory, hours and cost of a recipe on GPUs."),
    "bench": Verb("bertkit.cli.bench", "Measure this machine, alone or against another library."),
}
PRINTING = {"inspect-masks", "evaluate", "judge", "tag", "write", "fill", "info", "bench"}
"""Commands that only print, and end when nothing reads it; the others finish their work."""
_FAILURES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Of the machine, which no other argument mends."""
_REMEDIES = {
    errno.EIO: "; the disk fails: check the system log, and choose a folder on another disk",
    errno.EROFS: "; choose a writable folder",
    errno.EMFILE: "; raise the limit with 'ulimit -n'",
}


def main(argv: list[str] | None = None) -> int:
    """Run one verb. Exit codes: 0 done, 1 failed, 2 something the user can mend, 75 something that passes, 130
    interrupted."""
    argv = sys.argv[1:] if argv is None else argv
    prints = next((word in PRINTING for word in argv if word in VERBS), True)
    open_closed_streams()
    stdout, stderr = sys.stdout, sys.stderr
    with (
        contextlib.redirect_stderr(DroppingStream(stderr)),
        contextlib.redirect_stdout(stdout if prints else DroppingStream(stdout)),
        json_log() if "--json-log" in argv else contextlib.nullcontext(),
    ):
        code = _answer(argv, prints)
    silence_if_lost(stdout, awaited=prints)
    silence_if_lost(stderr, awaited=False)
    return code


def _answer(argv: list[str], prints: bool) -> int:
    """The exit code of a verb, however it ends."""
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt as stop:
        print(f"\nbertkit: interrupted{'; ' if stop.args else ''}{stop}", file=sys.stderr)
        event("stopped", exit_code=130)
        return 130
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        if prints and isinstance(error, BrokenPipeError):  # the reader (head, less) has seen enough
            return 0
        if os.environ.get("BERTKIT_TRACEBACK"):
            raise
        code, message = _exit_code(error), _told(error) if isinstance(error, OSError) else str(error)
        if isinstance(error, ModuleNotFoundError):
            message += "; `pip install bertkit` installs what every command needs"
        print(f"bertkit: {printable(message, lines=True)}", file=sys.stderr)
        event("failed", exit_code=code, message=message)
        return code
    except Exception as error:  # ours to mend; Python shows where
        event("failed", exit_code=1, message=f"{type(error).__name__}: {error}")
        raise


def _path_here(name: str) -> Path:
    """Of flags that take no URL: a folder called s3: would be made of one."""
    if "://" in name:
        raise argparse.ArgumentTypeError(f"{name} is a URL; give a local path")
    return Path(name)


class Parser(argparse.ArgumentParser):
    """argparse that names the nearest flag on a typo and never guesses from a prefix."""

    def __init__(self, **options):
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        # Read before the parser is made (`import_plugins`), since a plugin may change what it lists.
        self.add_argument("--plugin", metavar="MODULE", help="Python module to import first; may be repeated")
        self.register("type", Path, _path_here)

    def parse_known_args(self, args=None, namespace=None):
        """Report unknown words from the parser that met them, since that of a sub-command knows its flags; and a
        mistyped flag before a missing one."""
        if args is not None and not any(isinstance(action, argparse._SubParsersAction) for action in self._actions):
            flags = [word.partition("=")[0] for word in args[: args.index("--") if "--" in args else None]]
            unknown = [flag for flag in flags if flag.startswith("--") and flag not in self._option_string_actions]
            if unknown:
                self.error(f"unrecognized arguments: {unknown[0]}")
            args = settle_json(self, args)
        parsed, unknown = super().parse_known_args(args, namespace)
        # argparse fills a list from the words before the first flag alone; those after it belong there as well.
        lists = [action.dest for action in self._actions if action.nargs == "*" and not action.option_strings]
        if lists and not any(word.startswith("-") for word in unknown):
            setattr(parsed, lists[0], [*getattr(parsed, lists[0]), *unknown])
            unknown = []
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        check_json(getattr(parsed, "json", None))
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        kind, _, words = message.partition("unrecognized arguments: ")
        if not kind and words:
            flag = words.split()[0].partition("=")[0]
            known = [option for action in self._actions for option in action.option_strings]
            message = f"unknown argument {flag!r}{did_you_mean(flag, known)}"
        elif choice := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            message += did_you_mean(choice[1], re.findall(r"[\w-]+", choice[2]))
        print(f"{self.prog}: {printable(message, lines=True)}\nTry '{self.prog} --help'.", file=sys.stderr)
        event("failed", exit_code=2, message=message)
        raise SystemExit(2)


def _dispatch(argv: list[str]) -> int:
    argv = import_plugins(argv)
    if not argv or argv[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if argv[0] == "--version":
        from bertkit import __version__

        print(f"bertkit {__version__}")
        return 0
    name = argv[0]
    if name not in VERBS:
        hint = did_you_mean(name, VERBS)
        print(f"bertkit: unknown verb {printable(name)!r}{hint}\nTry 'bertkit --help'.", file=sys.stderr)
        return 2
    verb = VERBS[name]
    module = importlib.import_module(verb.module)
    parser = Parser(prog=f"bertkit {name}", description=verb.summary)
    run = getattr(module, name.replace("-", "_"))(parser)
    try:
        arguments = parser.parse_args(argv[1:])
    except SystemExit as exit:  # argparse: 0 after --help, 2 after a mistake
        return int(exit.code or 0)
    return run(arguments) or 0


def _overview() -> str:
    width = max(map(len, VERBS), default=0)
    lines = [f"  {name:<{width}}  {verb.summary}" for name, verb in VERBS.items()]
    return "\n".join(
        [
            "usage: bertkit VERB ...",
            "",
            "Raw text to a BERT-style encoder, and the encoder to a tagger.",
            "",
            *lines,
            "",
            "'bertkit VERB --help' explains a verb, 'bertkit --version' names the version.",
            "'--plugin MODULE' imports your module first; it can add tasks, objectives, formats and more.",
        ]
    )


def _told(error: OSError) -> str:
    """The system's complaint about a path, with the remedy. What we raised ourselves names its remedy already."""
    named = error.filename2 or error.filename  # of a move, where to
    if error.strerror is None or not isinstance(named, (str, bytes, Path)):
        return (error.strerror or str(error)) + _REMEDIES.get(error.errno or 0, "")
    path = Path(os.fsdecode(named))
    if error.errno == errno.ENAMETOOLONG:
        return f"the path {str(path)[:60]!r}... of {len(str(path)):,} characters is too long; choose a shorter name"
    in_the_way = next((place for place in (path, *path.parents) if place.is_file()), None)
    if isinstance(error, (FileExistsError, NotADirectoryError)) and in_the_way:
        return f"{in_the_way} is a file, but a folder is needed; choose another path"
    if isinstance(error, IsADirectoryError):
        return f"{path} is a folder, but a file is needed; choose another path"
    if isinstance(error, FileNotFoundError):
        return f"there is no folder {path.parent}" if not path.parent.is_dir() else f"there is no {path}"
    return f"{path}: {error.strerror}{_REMEDIES.get(error.errno or 0, '')}"


def _exit_code(error: Exception) -> int:
    """What a supervisor may do about it: 75 is to try again later, 1 to look at the machine, 2 at what was asked."""
    from data_pipelines.text.stores import StoreFails

    if isinstance(error, (BlockingIOError, StoreFails)) or getattr(error, "errno", None) == errno.EADDRINUSE:
        return os.EX_TEMPFAIL
    # An OSError without a number is one of ours: what the machine could not do during the work.
    machine = type(error) is OSError and error.errno in (None, *_FAILURES)
    return 1 if machine or isinstance(error, (ChildProcessError, ConnectionError, FloatingPointError)) else 2
