"""The main job from end to end on text that every installation holds; each stage says what it does and how to do it
on a text of one's own. Run again, every stage finds what is there and goes on."""

from pathlib import Path

from rich.console import Console

from bertkit.fill import FillMask
from bertkit.inspect_masks import inspect_rows, rows_from_shards
from bertkit.recipe import read_recipe
from bertkit.training.inputs import prepare_inputs
from bertkit.training.pretrain import pretrain
from data_pipelines.demo_corpus import write_demo_corpus

_FILL = (
    "Return the [MASK] of the given list.",
    "This function returns a new [MASK] with the same shape.",
    "Raise an [MASK] if the argument is not a string.",
)


def demo(folder: Path, minutes: float) -> int:
    """Corpus, tokenizer, masks, pretraining, filled masks. Returns the exit code of the training."""
    console = Console(highlight=False, soft_wrap=True)
    folder.mkdir(parents=True, exist_ok=True)
    corpus = folder / "corpus.txt"

    _stage(console, 1, "Collect a corpus: the documentation strings of Python and of the installed packages.", None)
    if not corpus.is_file():
        unfinished = corpus.with_suffix(".part")
        write_demo_corpus(unfinished)
        unfinished.replace(corpus)
    console.print(f"{corpus}: {corpus.stat().st_size / 1e6:.1f} MB")

    recipe = read_recipe("demo", _changes(corpus, folder, minutes))
    _stage(
        console, 2, "Train a tokenizer on it and turn the text into rows of tokens.",
        "bertkit tokenizer train --corpus my.txt --out my-tokenizer\n"
        "bertkit prepare --corpus my.txt --tokenizer my-tokenizer --out my-rows",
    )  # fmt: skip
    inputs = prepare_inputs(recipe)
    console.print(f"{inputs.tokenizer.vocab_size:,} tokens in the vocabulary, {len(inputs.train):,} rows")

    _stage(console, 3, "Look at the masks before training on them.", "bertkit inspect-masks --data my-rows")
    inspect_rows(rows_from_shards(inputs.train.folder, 500), recipe.mask, seed=recipe.run.seed, epoch=0, show=1)

    _stage(
        console, 4, f"Pretrain a small encoder for about {recipe.train.minutes:g} minutes.",
        "bertkit pretrain modernbert-mini data.corpus=my.txt run.dir=runs/mine",
    )  # fmt: skip
    code = pretrain(recipe)
    if code:
        return code

    export = Path(recipe.run.dir) / "export"
    _stage(console, 5, "Let it fill masks.", f'bertkit fill --model {export} "Return the [MASK] of the list."')
    _show_filled(console, export)
    return 0


def _changes(corpus: Path, folder: Path, minutes: float) -> list[str]:
    return [f"data.corpus=[{corpus}]", f"run.dir={folder / 'pretrain'}", f"train.minutes={minutes:g}"]


def _stage(console: Console, number: int, what: str, command: str | None) -> None:
    console.print(f"\n[bold]{number}. {what}[/bold]")
    if command:
        console.print(
            "   on your own text:  " + command.replace("\n", "\n                      "), style="dim", markup=False
        )


def _show_filled(console: Console, export: Path) -> None:
    fill = FillMask(export)
    for text in _FILL:
        filled = fill(text, top_k=3)
        guesses = ", ".join(f"{guess.token} {guess.probability:.0%}" for guess in filled.masks[0])
        console.print(f"{text}  →  {guesses}", markup=False)
