"""Stands in for the commands of the READMEs in their test: a command is checked as written, and its work done short.

A command is first checked exactly as it is written: its verb and flags parse, and its recipe resolves with
`--print-config`. Only then it runs, with what makes it short appended: the overrides below, on a corpus of a few
kilobytes that the test wrote. Nothing that is written is taken away but a budget (train.minutes=60), which the
appended train.steps replaces. Four kinds of commands are checked and not run, because something else runs them or
nothing here can:

    make TARGET        `make -n` resolves the target; `make test` runs this very test
    bertkit demo       tests/demo runs it
    bertkit bench ...  tests/bench runs every workload
    accelerate launch  accelerate parses the line and reads its launch file, the recipe resolves;
                       tests/run/test_launch_files.py starts the launch files on CPUs
"""

import contextlib
import io
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from stand_ins import without_stand_ins

from bertkit import cli
from bertkit.cli import VERBS, Parser

CHECKOUT = Path(__file__).parent.parent.parent
COMMANDS = ("bertkit", "accelerate", "torchrun", "make")
PYTHON = "python-block"
"""Runs its one argument as `python -c` does."""

BUDGETS = ("train.steps=", "train.tokens=", "train.minutes=")

_STEPS = ["train.steps=2", "train.global_batch=4", "train.micro_batch=2", "data.seq_len=32", "run.num_workers=0"]
_NARROW = [
    *("model.hidden_size=32", "model.num_hidden_layers=1", "model.num_attention_heads=2", "model.intermediate_size=64"),
    *("tokenizer.vocab_size=300", "train.first_batch=null", "train.precision=fp32"),
]
_CONTINUED = ["tokenizer.extend=5"]
_LABELED = ["train.epochs=1", "train.global_batch=8", "train.micro_batch=8", "data.max_length=32"]
_REWRITTEN = ["train.epochs=0.02", "train.global_batch=8", "train.micro_batch=8"]


def main(command: str, arguments: list[str]) -> int:
    """Do the work of one command; the exit code leaves."""
    known = {"bertkit": bertkit, "accelerate": accelerate, "torchrun": torchrun, "make": make, PYTHON: python}
    return known[command](arguments)


def warm_up() -> None:
    """Import what the commands will import."""
    for verb in VERBS.values():
        import_module(verb.module)
    for module in (
        *("bertkit.evaluate.fill", "bertkit.hf.info", "bertkit.report.inspect_masks", "bertkit.pretrain.train"),
        *(
            "bertkit.evaluate.folder",
            "bertkit.evaluate.judge",
            "bertkit.finetune.train",
            "bertkit.finetune.predict.files",
        ),
        *("bertkit.report.training_report", "bertkit.report.attention_page", "data_pipelines.rows.prepare"),
        "torch._dynamo",  # torch imports it with the first operator of ours
    ):
        import_module(module)


def bertkit(arguments: list[str]) -> int:
    check(arguments)
    if arguments[0] in ("demo", "bench"):
        return 0
    return cli.main(short(arguments))


def accelerate(arguments: list[str]) -> int:
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import launch_command_parser

    assert arguments[0] == "launch", arguments
    parsed = launch_command_parser().parse_args(arguments[1:])
    assert parsed.module, "bertkit is started with -m"
    assert parsed.training_script == "bertkit", parsed.training_script
    launch = load_config_from_file(parsed.config_file)
    assert launch.num_processes > launch.num_machines, "a launch file is for several processes"
    assert (launch.num_machines == 1) == (parsed.machine_rank is None), "several machines have ranks, one has none"
    check(parsed.training_script_args)
    return 0


def torchrun(arguments: list[str]) -> int:
    module = arguments.index("-m")
    assert arguments[module + 1] == "bertkit", arguments
    check(arguments[module + 2 :])
    command = [*arguments[: module + 2], *short(arguments[module + 2 :])]
    return subprocess.run([sys.executable, "-m", "torch.distributed.run", *command]).returncode


def make(arguments: list[str]) -> int:
    # A make that runs the tests hands its own flags down.
    flags = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {key: value for key, value in without_stand_ins(os.environ).items() if key not in flags}
    return subprocess.run(["make", "--dry-run", "--directory", CHECKOUT, *arguments], env=environment).returncode


def python(arguments: list[str]) -> int:
    block = sys.modules["__main__"] = ModuleType("__main__")
    sys.path[0] = ""  # was the folder of the server
    exec(compile(arguments[0], "<block>", "exec"), block.__dict__)
    return 0


def check(arguments: list[str]) -> None:
    """Fail unless the verb, its flags, and its recipe with all changes are right as they are written."""
    name = arguments[0]
    assert name in VERBS, f"unknown verb {name}"
    parser = Parser(prog=f"bertkit {name}")
    getattr(import_module(VERBS[name].module), name.replace("-", "_"))(parser)
    parser.parse_args(arguments[1:])
    if name in ("pretrain", "finetune"):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            code = cli.main([*arguments, "--print-config"])
        assert code == 0, f"--print-config ended with {code}"
        assert "run:" in printed.getvalue()


def short(arguments: list[str]) -> list[str]:
    """The same command with what makes it short appended."""
    verb, *rest = arguments
    if verb == "finetune":
        # A text that is rewritten is read as a whole.
        return [*arguments, *(_REWRITTEN if rest[0] in ("rewrite", "inflection") else _LABELED)]
    if verb == "anneal":
        # The checkpoints of a short run are its last step.
        return ["anneal", rest[0], "--steps", "2", *_without_flags(rest[1:], "--steps", "--minutes", "--from")]
    if verb not in ("pretrain", "ablate"):
        return arguments
    appended = _CONTINUED if rest[0] == "continued" else _NARROW
    appended = [*_STEPS, *appended]
    if any(word.startswith("data.prepared=") for word in rest):
        # Prepared rows have their length and their tokenizer.
        appended = [word for word in appended if not word.startswith(("data.", "tokenizer."))]
    return [verb, *(word for word in rest if not word.startswith((*BUDGETS, "optim.warmup_steps="))), *appended]


def _without_flags(words: list[str], *flags: str) -> list[str]:
    """The words without these flags and their values."""
    pairs = zip(words, ["", *words], strict=False)
    return [word for word, before in pairs if word not in flags and before not in flags]
