"""The main job from end to end, on text that every Python installation holds.

Each stage says what it does, and which command does the same with your own files. Run again, a stage that is done is
skipped, and one that was stopped resumes.
"""

import contextlib
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from bertkit.config.finetune import FinetuneRecipe, read_finetune_recipe
from bertkit.config.recipe import Recipe, read_recipe
from bertkit.demo.folder import MINUTES
from bertkit.evaluate.fill import FillMask
from bertkit.finetune.metrics import mean_and_deviation
from bertkit.finetune.predict.tagger import Tagger
from bertkit.finetune.results import SCORES, WORST
from bertkit.finetune.train import finetune
from bertkit.pretrain.data import open_data
from bertkit.pretrain.train import pretrain
from bertkit.report.inspect_masks import inspect_rows, rows_from_shards
from bertkit.report.training_report import write_report
from bertkit.run.folder import EXPORT
from data_pipelines.demo.corpus import CORPUS, DEV, TRAIN, write_demo_data
from data_pipelines.demo.roles import code_words

_PRETRAINING_SHARE = 0.5
_MASKED = (
    "def __init__([MASK], name):",
    "for i in range([MASK](items)):",
    "return os.path.[MASK](folder, name)",
)
_CODE = "def area(shapes): return sum(math.pi * shape.radius ** 2 for shape in shapes)"
_SHOWN = {"accuracy": "accuracy", "macro_f1": "macro-F1"}
_STARTS = {"pretrained": "the pretrained encoder", "scratch": "scratch"}

# The command of each stage for your own files: my.txt, train.conll and dev.conll.
COMMANDS = {
    "tokenizer": "bertkit tokenizer train --corpus my.txt --out my-tokenizer\n"
    "bertkit prepare --corpus my.txt --tokenizer my-tokenizer --out my-rows",
    "masks": "bertkit inspect-masks --data my-rows",
    "pretrain": "bertkit pretrain modernbert-mini data.corpus=my.txt run.dir=runs/mine",
    "fill": 'bertkit fill --model runs/mine "Paris is the [MASK] of France."',
    "finetune": "bertkit finetune ner data.train=train.conll data.dev=dev.conll \\\n"
    "    model.init=runs/mine run.dir=runs/tagger",
    "tag": "bertkit tag --model runs/tagger my.txt",
    "report": "bertkit report runs/mine runs/tagger",
}


def demo(folder: Path, minutes: float, sentence: str | None) -> int:
    """Corpus, tokenizer, masks, pretraining, filled masks, two taggers, their scores, a sentence, a page."""
    console = Console(highlight=False, markup=False, emoji=False)
    with _saying_how_to_resume(folder):
        console.print(
            f"From the text of this Python installation to a tagger, in about {minutes:g} min. After each $ "
            "is the command that does the same with your own files. Ctrl-C stops; the same command resumes."
        )
        recipe = read_recipe("demo", _pretraining(folder, minutes))
        _collect(console, folder)
        _prepare_and_inspect(console, recipe)
        code = _pretrain(console, recipe) or _finetune(console, folder, minutes)
        if code:
            print(_how_to_resume(folder), file=sys.stderr)
            return code
        _compare(console, folder)
        _tag(console, folder, sentence)
        _report(console, folder)
    return 0


@contextlib.contextmanager
def _saying_how_to_resume(folder: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_how_to_resume(folder)) from None


def _how_to_resume(folder: Path) -> str:
    return f"to resume:  bertkit demo --dir {shlex.quote(str(folder))}"


def _pretraining(folder: Path, minutes: float) -> list[str]:
    return [
        f"data.corpus=[{json.dumps(str(folder / CORPUS))}]",
        f"data.cache_dir={folder / 'cache'}",
        f"run.dir={folder / 'encoder'}",
        "tokenizer.lowercase=false",
        f"train.minutes={_PRETRAINING_SHARE * minutes:g}",
    ]


def _collect(console: Console, folder: Path) -> None:
    _stage(console, 1, "Collect text: the sources of Python and of the installed packages.")
    console.print("     yours: any UTF-8 text, a blank line between documents (my.txt)", style="dim")
    if not (folder / CORPUS).is_file():
        sizes = write_demo_data(folder)
        console.print(f"{sizes.documents:,} documents; {sizes.train} labeled functions to learn, {sizes.dev} to test")
    else:
        _found(console, folder / CORPUS)
    console.print(f"{folder / CORPUS}: {(folder / CORPUS).stat().st_size / 1e6:.1f} MB", soft_wrap=True)


def _prepare_and_inspect(console: Console, recipe: Recipe) -> None:
    _stage(console, 2, "Train a tokenizer on it and turn the text into rows of tokens.", "tokenizer")
    cache = Path(recipe.data.cache_dir or "")
    if any(cache.glob("rows/*/manifest.json")):
        _found(console, cache)
    data = open_data(recipe.data, recipe.tokenizer, recipe.model, recipe.run)
    console.print(f"{data.tokenizer.vocab_size:,} tokens in the vocabulary, {len(data.train):,} rows")

    _stage(console, 3, "Look at the masks before training on them.", "masks")
    inspect_rows(rows_from_shards(data.train.folder, 500), recipe.mask, seed=recipe.run.seed, epoch=0, show=1).print()


def _pretrain(console: Console, recipe: Recipe) -> int:
    minutes = f"{recipe.train.minutes:.2g} minutes" if recipe.train.minutes else "a while"
    _stage(console, 4, f"Pretrain a small encoder for {minutes}: it learns to fill masks.", "pretrain")
    export = Path(recipe.run.dir) / EXPORT
    if export.is_dir():
        _found(console, export)
    else:
        code = pretrain(recipe)
        if code:
            return code

    _stage(console, 5, "Let it fill masks.", "fill")
    fill = FillMask.load(export)
    for text in _MASKED:
        guesses = ", ".join(f"{guess.token} {guess.probability:.0%}" for guess in fill(text, top_k=3).masks[0])
        console.print(f"{text}\n     → {guesses}")
    return 0


def _finetune(console: Console, folder: Path, minutes: float) -> int:
    """One tagger from the pretrained encoder, one of the same shape from random weights; all else is equal."""
    _stage(console, 6, "Fine-tune it to predict the role of each name, and another from scratch.", "finetune")
    for name, start in _STARTS.items():
        recipe = _tagging(folder, name, minutes)
        if (folder / name / SCORES).is_file():
            _found(console, folder / name)
            continue
        console.print(f"from {start}, seeds {', '.join(map(str, recipe.run.seeds))}:")
        # The full results are too long for this page; they are kept next to the run.
        with open(folder / f"{name}.txt", "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
            code = finetune(recipe)
        if code:
            return code
        console.print(f"scores and confusions: {folder / name}.txt; worst: {folder / name / WORST}", soft_wrap=True)
    return 0


def _tagging(folder: Path, name: str, minutes: float) -> FinetuneRecipe:
    start = "init" if name == "pretrained" else "like"
    full = read_finetune_recipe("roles", ["data.train=none"]).train.epochs
    changes = [
        f"data.train=[{json.dumps(str(folder / TRAIN))}]",
        f"data.dev=[{json.dumps(str(folder / DEV))}]",
        f"model.{start}={folder / 'encoder' / EXPORT}",
        f"train.epochs={full * min(1.0, minutes / MINUTES):g}",
        f"run.dir={folder / name}",
        "run.seeds=[0,1,2]",
        "run.log_every=100",
    ]
    return read_finetune_recipe("roles", changes)


def _compare(console: Console, folder: Path) -> None:
    _stage(console, 7, "Compare their scores on modules that neither has seen.")
    scores = {name: json.loads((folder / name / SCORES).read_bytes()) for name in _STARTS}
    table = Table("dev", *(Column(name, justify="right") for name in _SHOWN.values()))
    for name, found in scores["scratch"]["dev"]["baselines"].items():
        table.add_row(f"no model: {name}", *(f"{found[key]:.1%}" for key in _SHOWN))
    for name in ("scratch", "pretrained"):
        table.add_row(f"fine-tuned from {_STARTS[name]}", *(_spread(scores[name], key) for key in _SHOWN))
    console.print(table)
    gained = scores["pretrained"]["dev"]["mean"] - scores["scratch"]["dev"]["mean"]
    console.print(
        f"Pretraining adds {100 * gained:.1f} points of accuracy." if gained > 0 else "More minutes would help."
    )


def _spread(scores: dict[str, Any], key: str) -> str:
    mean, deviation = mean_and_deviation(seed["dev"][key] for seed in scores["seeds"])
    return f"{mean:.1%} ± {deviation:.1%}"


def _tag(console: Console, folder: Path, sentence: str | None) -> None:
    _stage(console, 8, "Tag a line of Python.", "tag")
    if sentence is None and sys.stdin.isatty():
        console.print(f"Type one; an empty line uses: {_CODE}", style="dim")
        with contextlib.suppress(EOFError):
            sentence = input("> ")
    words = code_words(sentence or "") or code_words(_CODE)
    tagging = Tagger.load(folder / "pretrained").tag(words)
    text = Text()
    for word, tag in zip(words, tagging.tags, strict=True):
        text.append(f"{word} ", style="" if tag == "O" else "bold")
        text.append("" if tag == "O" else f"({tag}) ", style="cyan")
    console.print(text)


def _report(console: Console, folder: Path) -> None:
    _stage(console, 9, "Write a page that shows it all.", "report")
    page = write_report([folder / "encoder", folder / "pretrained", folder / "scratch"], folder / "report.html")
    console.print(page.resolve().as_uri(), soft_wrap=True)


def _stage(console: Console, number: int, what: str, command: str | None = None) -> None:
    console.print(f"\n{number}/9  {what}", style="bold")
    for line in COMMANDS[command].splitlines() if command else ():
        sign = "$" if line.startswith("bertkit") else " "
        console.print(f"     {sign} {line}", style="dim", soft_wrap=True)


def _found(console: Console, path: Path) -> None:
    console.print(f"done before: {path}", soft_wrap=True)
