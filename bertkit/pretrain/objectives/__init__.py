"""What pretraining learns: one file an objective, one row in this table.

A row is a function of the recipe and its data that returns an `Objective`: the model to train, the batches that feed
it, the scores of held-out rows, and what is exported. The loop knows nothing else of it. Nothing heavy is imported
before a row is asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from data_pipelines.table import Table

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from bertkit.config.recipe import Recipe
    from bertkit.evaluate.judge import EncodedPairs
    from bertkit.hf import Model
    from bertkit.pretrain.data import PretrainingData
    from bertkit.run.ranks import Evaluation
    from data_pipelines.masks.loader import RowCollator
    from data_pipelines.rows.shards import Rows

    Row = Callable[[Recipe, PretrainingData], "Objective"]

Scorer = Callable[["Evaluation"], dict[str, Any]]
OBJECTIVES: "Table[Row]" = Table(
    "objective",
    {
        "masked-lm": "bertkit.pretrain.objectives.masked_lm:masked_lm",
        "causal-masked": "bertkit.pretrain.objectives.causal_masked:causal_masked",
        "masked-next-token": "bertkit.pretrain.objectives.masked_next_token:masked_next_token",
        "causal-first": "bertkit.pretrain.objectives.causal_first:causal_first",
        "diffusion": "bertkit.pretrain.objectives.diffusion:diffusion",
        "hard-targets": "bertkit.pretrain.objectives.hard_targets:hard_targets",
        "replaced-token-detection": "bertkit.pretrain.objectives.replaced_tokens:replaced_token_detection",
        "token-dropping": "bertkit.pretrain.objectives.token_dropping:token_dropping",
    },
)
SHARES_OF_STEPS = {"causal-first": ("causal_share",)}
"""Keys of the section `train` that an objective reads as a share of the steps."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    summary: str
    """What is learned, as the model card says it."""

    make_model: "Callable[[Model, int], nn.Module]"
    """The model to train, from a new encoder or from the model that model.init names, and a seed for whatever is new
    beside it. It has an `encoder`. Called with a batch, it returns the loss summed over the batch's targets; the loop
    divides by the number of `target_ids` in the whole step. Under FSDP the parameters it is given have no values yet:
    it can use them, but not compute with them or copy them."""

    make_collator: "Callable[[int], RowCollator]"
    """What turns rows into batches, in a run of this many steps."""

    make_scorer: "Callable[[Rows], Scorer] | None" = None
    """What scores the model on held-out rows: a dict with at least "loss", the lower the better. Where that is not the
    masked loss, "measures" says what it is of."""

    judge: "Callable[[EncodedPairs, Evaluation], np.ndarray] | None" = None
    """What gives each sentence of minimal pairs a score, (pairs, 2), the higher the likelier."""

    exported: Callable[[Any], Any] = lambda model: model
    """The part of the trained model that is written to the export: an encoder, or one with a head. It takes the
    tensors themselves, as under FSDP each rank has shards of them."""

    opening: float = 0.0
    """Share of the steps, at the start, that compute something else than the others do and so take another time."""

    make_later_collator: "Callable[[int], RowCollator] | None" = None
    """`make_collator` for the steps after the opening alone."""

    baseline_loss: float | None = None
    """The loss that the frequencies of tokens alone would reach; a run that stays there gets advice."""
