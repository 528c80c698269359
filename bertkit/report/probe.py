"""What a run's records do not hold, computed from its model and its prepared rows where both still exist.

Heavy modules are imported inside the functions, so that a page of runs that lack both is made at once.
"""

# T tokens of the rows, M masked tokens, V vocabulary

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bertkit.terminal import printable
from data_pipelines.vocab.marks import INSIDE

if TYPE_CHECKING:
    from bertkit.config.recipe import Recipe
    from data_pipelines.masks.statistics import MaskRate
    from data_pipelines.rows.shards import Rows
    from data_pipelines.vocab.tokenizer import Tokenizer

_MASK_ROWS = 512
_SAMPLE_ROWS = 16
_SAMPLE_TOKENS = 48
_CANDIDATES = 3


class SampleToken(NamedTuple):
    """A token of a sample, as a reader would write it."""

    text: str
    continues: bool
    """Belongs to the word before it."""
    shown: str | None = None
    """What the model saw in its place; None where the token is no target."""
    guesses: tuple[tuple[str, float], ...] = ()
    """The likeliest tokens and their probabilities."""
    right: bool = False


@dataclass
class Probe:
    rates: "list[MaskRate]" = field(default_factory=list)
    """What masking did to some training rows, beside what the recipe asks for."""
    mask_rows: int = 0
    samples: list[list[SampleToken]] = field(default_factory=list)
    """Held-out sequences with the model's guesses."""
    no_rates: str = ""
    """Why there are no rates, if there are none."""
    no_samples: str = ""


def probe(folder: Path, num_samples: int) -> Probe:
    """Measure the masks and fill some. Where that is not possible, the reason is given instead."""
    found = Probe()
    try:
        recipe = _recipe(folder)
        from bertkit.pretrain.data import rows_of_run

        rows_folder = rows_of_run(folder)
    except (ValueError, OSError) as error:
        found.no_rates = found.no_samples = str(error)
        return found
    from data_pipelines.rows.shards import open_rows
    from data_pipelines.vocab.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(rows_folder / "tokenizer")
    try:
        found.rates, found.mask_rows = _mask_rates(recipe, open_rows(rows_folder, "train"), tokenizer)
    except (ValueError, OSError) as error:
        found.no_rates = str(error)
    try:
        found.samples = _samples(folder, recipe, open_rows(rows_folder, "validation"), tokenizer, num_samples)
    except (ValueError, OSError) as error:
        found.no_samples = str(error)
    return found


def _recipe(folder: Path) -> "Recipe":
    from bertkit.config.recipe import read_recipe

    if not (folder / "recipe.yaml").is_file():
        raise ValueError("the folder holds no recipe.yaml")
    return read_recipe(str(folder / "recipe.yaml"))


def _mask_rates(recipe: "Recipe", rows: "Rows", tokenizer: "Tokenizer") -> "tuple[list[MaskRate], int]":
    """Mask some training rows as the run did when it first saw them."""
    if not len(rows):
        raise ValueError("the run has no rows to train on")
    import numpy as np

    from data_pipelines.masks.collator import MaskingCollator
    from data_pipelines.masks.statistics import MaskStatistics

    collator = MaskingCollator.from_config(
        tokenizer, recipe.mask, seed=recipe.run.seed, layout="packed", return_tensors="np"
    )
    row_ids = np.arange(min(len(rows), _MASK_ROWS))
    before = rows.gather(row_ids)
    after = collator.collate_rows(before, row_ids, np.zeros_like(row_ids), step=0)
    seen = MaskStatistics()
    seen.add(before, after, collator)
    return seen.rates(recipe.mask, len(collator.vocabulary.drawable)), seen.rows


def _samples(
    folder: Path, recipe: "Recipe", rows: "Rows", tokenizer: "Tokenizer", num_samples: int
) -> list[list[SampleToken]]:
    """The first held-out sequences, masked as evaluation masks them, with what the exported model says."""
    if not len(rows):
        raise ValueError("the run holds no rows out (data.validation_share)")
    if not (folder / "export").is_dir():
        raise ValueError("the run has not exported a model yet")
    import numpy as np
    import torch

    from bertkit.evaluate.held_out import MASK_SEED
    from bertkit.hf.models import load_with_head
    from data_pipelines.masks.collator import MaskingCollator
    from data_pipelines.masks.config import MaskConfig

    model = load_with_head(folder / "export", "masked-lm")
    mask = MaskConfig(rate=recipe.eval.mask_rate)
    collator = MaskingCollator.from_config(tokenizer, mask, seed=MASK_SEED, layout="packed")
    row_ids = np.arange(min(len(rows), _SAMPLE_ROWS))
    before = rows.gather(row_ids)
    batch = collator.collate_rows(before, row_ids, np.zeros_like(row_ids), step=0)
    with torch.inference_mode():
        probabilities_MV = model.target_logits(batch)[:, : tokenizer.vocab_size].softmax(-1)
    top = probabilities_MV.topk(min(_CANDIDATES, probabilities_MV.shape[1]))
    targets = dict(zip(batch.target_index.tolist(), zip(*(part.tolist() for part in top), strict=True), strict=True))

    def piece(place: int) -> SampleToken:
        was = int(before.ids_T[place])
        text, continues = spelled(tokenizer.backend, was)
        if place not in targets:
            return SampleToken(text, continues)
        shares, ids = targets[place]
        guesses = tuple(
            (spelled(tokenizer.backend, i, marked=True)[0], share) for i, share in zip(ids, shares, strict=True)
        )
        shown, _ = spelled(tokenizer.backend, int(batch.input_ids[place]), marked=True)
        return SampleToken(text, continues, shown, guesses, ids[0] == was)

    samples: list[list[SampleToken]] = []
    for start, end in zip(before.sequence_starts[:-1], before.sequence_starts[1:], strict=True):
        # Without the frame of [CLS] and [SEP].
        pieces = [piece(place) for place in range(start + 1, min(end - 1, start + 1 + _SAMPLE_TOKENS))]
        if any(piece.shown is not None for piece in pieces) and len(samples) < num_samples:
            samples.append(pieces)
    return samples


def spelled(backend: Any, index: int, marked: bool = False) -> tuple[str, bool]:
    """A token as a reader would write it, and whether it continues the word before it. `marked` keeps the ## of a
    token that does, for one that stands alone."""
    token = backend.id_to_token(index) or "?"
    if token.startswith(INSIDE) and token != INSIDE:
        return printable(token if marked else token[2:]), True
    if type(backend.decoder).__name__ != "ByteLevel":
        return printable(token), False
    text = backend.decode([index], skip_special_tokens=False)
    return printable(text.strip() or token), not text.startswith((" ", "\n"))
