"""Minimal pairs that a run judges while it trains: the curve of what it knows of grammar."""

from typing import Any

from bertkit.config.recipe import Recipe
from bertkit.evaluate.config import PairKeys
from bertkit.evaluate.judge import EncodedPairs, summary
from bertkit.evaluate.minimal_pairs import read_pairs
from bertkit.pretrain.data import PretrainingData
from bertkit.pretrain.objectives import Objective, Scorer
from bertkit.run.ranks import Evaluation


def pair_scorer(recipe: Recipe, data: PretrainingData, objective: Objective, model: Any) -> Scorer | None:
    """What judges the pairs of eval.pairs with this model, by masks word-wise; None where there are none."""
    judge = objective.judge
    if not recipe.eval.pairs:
        return None
    if judge is None:
        raise ValueError(f"eval.pairs: train.objective={recipe.train.objective} judges no pairs")
    pairs = read_pairs(recipe.eval.pairs, PairKeys(), recipe.eval.max_pairs)
    encoded = EncodedPairs(pairs, data.tokenizer, model.encoder.config.max_position_embeddings)

    def score(evaluation: Evaluation) -> dict[str, Any]:
        found = summary(pairs, judge(encoded, evaluation))
        by_group = {group: row["accuracy"] for group, row in found.pop("groups").items()}
        by_paradigm = {name: row["accuracy"] for name, row in found.pop("paradigms").items()}
        return found | {"groups": by_group, "paradigms": by_paradigm}

    return score
