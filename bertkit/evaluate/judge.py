"""How often a model finds the good sentence of a minimal pair likelier than the bad one, by paradigm and group."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bertkit.evaluate.config import JudgeConfig
from bertkit.evaluate.folder import open_masked_lm
from bertkit.evaluate.minimal_pairs import MinimalPair
from bertkit.evaluate.ngram import NGram
from bertkit.evaluate.pseudo_likelihood import Sentence, encode_sentences, token_log_probs
from bertkit.hf.folder import check_vocabulary, choose_backend, has_weights, resolve
from bertkit.terminal import printable, progress_bar
from data_pipelines.rows.shards import Rows
from data_pipelines.vocab.tokenizer import Tokenizer, load_tokenizer

# P pairs, 2 the good and the bad sentence of each

CHANCE = 0.5
_Z = 1.959964
"""Standard deviations to either side of a 95% interval."""


class Judgment(NamedTuple):
    facts: dict[str, Any]
    pairs: list[MinimalPair]
    scores_P2: np.ndarray
    """Pseudo-log-likelihoods of the sentences, in nats."""
    ngram_P2: np.ndarray | None
    """Log-likelihoods that an n-gram model of the same rows gives them."""

    def predictions(self) -> list[dict[str, Any]]:
        """A record for each pair."""
        ngram_P2 = self.ngram_P2 if self.ngram_P2 is not None else [None] * len(self.pairs)
        return [
            pair._asdict()
            | {"good_score": float(good), "bad_score": float(bad), "winner": _winner(good, bad)}
            | ({} if ngram is None else {"ngram_winner": _winner(*ngram)})
            for pair, (good, bad), ngram in zip(self.pairs, self.scores_P2, ngram_P2, strict=True)
        ]


def judge_folder(
    model_folder: str, pairs: list[MinimalPair], config: JudgeConfig, rows: Rows | None, backend: str = "auto"
) -> Judgment:
    """Judge the pairs with the model of a folder, and with an n-gram model of `rows`, if there are any."""
    folder = resolve(model_folder)
    if backend == "auto" and has_weights(folder):
        backend = "torch"  # a graph predicts every token of a sentence, torch only the one that is asked for
    remedy = "an objective that exports an encoder alone judges while it trains: eval.pairs"
    model, target_logits, device = open_masked_lm(folder, choose_backend(folder, backend), remedy)
    tokenizer = load_tokenizer(folder)
    check_vocabulary(tokenizer, model.config.vocab_size, folder)
    encoded = EncodedPairs(pairs, tokenizer, model.config.max_position_embeddings)
    with progress_bar(f"judging {len(pairs):,} pairs") as update:
        scores_P2 = encoded.scores(
            target_logits,
            device,
            word_wise=config.method == "word-wise",
            report=lambda done, total: update(done, total, f"{done:,} of {total:,} tokens"),
        )
    ngram_P2, ngram = None, None
    if rows is not None and config.ngram:
        with progress_bar(f"counting {config.ngram}-grams of the rows"):
            borders = tokenizer.special.special_ids - {tokenizer.special.unk_id}
            ngram = NGram.of_rows(rows, config.ngram, sorted(borders))
            ngram_P2 = encoded.of_pairs(ngram.log_probs([sentence.ids for sentence in encoded.sentences]))
    facts = {
        "model": str(model_folder),
        "method": config.method,
        "chance": CHANCE,
        "unknown_share": encoded.unknown_share,
        "ngram": None if ngram is None else {"order": config.ngram, "num_tokens": ngram.num_tokens},
        **summary(pairs, scores_P2, ngram_P2),
    }
    return Judgment(facts, pairs, scores_P2, ngram_P2)


class EncodedPairs:
    """The sentences of all pairs, each once."""

    def __init__(self, pairs: Sequence[MinimalPair], tokenizer: Tokenizer, longest: int):
        self.special = tokenizer.special
        texts = [text for pair in pairs for text in (pair.good, pair.bad)]
        encoded = encode_sentences(tokenizer, texts)
        for place, sentence in enumerate(encoded):
            if not 0 < len(sentence.ids) <= longest - 2:
                raise ValueError(
                    f"{pairs[place // 2].place}: a sentence has {len(sentence.ids)} tokens, but the model reads "
                    f"1 to {longest - 2}: {texts[place][:60]!r}; leave the pair out"
                )
        numbers: dict[Sentence, int] = {}
        self._number_P2 = np.array([numbers.setdefault(sentence, len(numbers)) for sentence in encoded]).reshape(-1, 2)
        self.sentences = list(numbers)
        unknown = sum(sentence.ids.count(self.special.unk_id) for sentence in encoded)
        self.unknown_share = unknown / sum(len(sentence.ids) for sentence in encoded)

    def scores(
        self,
        target_logits: Callable[[Any], Any],
        device: torch.device | None,
        rank: int = 0,
        world_size: int = 1,
        sum_over_ranks: Callable[[Tensor], Tensor] = lambda scores: scores,
        *,
        word_wise: bool = True,
        report: Callable[[int, int], None] = lambda done, total: None,
    ) -> np.ndarray:
        """(P, 2) pseudo-log-likelihoods, in nats. This rank scores its share of the sentences, and `sum_over_ranks`
        puts them together."""
        mine = slice(rank, None, world_size)
        log_probs = token_log_probs(
            target_logits, self.special, self.sentences[mine], device, word_wise=word_wise, report=report
        )
        scores = torch.zeros(len(self.sentences), dtype=torch.float64)
        scores[mine] = torch.tensor([float(sentence.sum()) for sentence in log_probs], dtype=torch.float64)
        return self.of_pairs(sum_over_ranks(scores).cpu().numpy())

    def of_pairs(self, values: np.ndarray) -> np.ndarray:
        """(P, 2) of one value for each of `sentences`."""
        return values[self._number_P2]


def summary(pairs: Sequence[MinimalPair], scores_P2: np.ndarray, ngram_P2: np.ndarray | None = None) -> dict[str, Any]:
    """Accuracy with its 95% interval, over all and by group and paradigm. A tie counts half. Paradigms count alike,
    however many pairs they have."""
    members: dict[str, list[int]] = {}
    for place, pair in enumerate(pairs):
        members.setdefault(pair.paradigm, []).append(place)
    points = {"": _points(scores_P2)} | ({} if ngram_P2 is None else {"ngram_": _points(ngram_P2)})

    def row(names: Sequence[str]) -> dict[str, Any]:
        places = [np.array(members[name]) for name in names]
        found: dict[str, Any] = {"num_pairs": sum(map(len, places))}
        for prefix, points_P in points.items():
            accuracy, low, high = interval([points_P[here] for here in places])
            ties = int(sum((points_P[here] == CHANCE).sum() for here in places))
            told = {"accuracy": accuracy, "low": low, "high": high, "ties": ties}
            found |= {f"{prefix}{key}": value for key, value in told.items()}
        return found

    group_of = {name: pairs[places[0]].group for name, places in members.items()}
    groups = {group: [name for name in members if group_of[name] == group] for group in group_of.values() if group}
    return {
        **row(list(members)),
        "groups": {group: row(names) for group, names in groups.items()},
        "paradigms": {name: {"group": group_of[name], **row([name])} for name in members},
    }


def interval(points: Sequence[np.ndarray]) -> tuple[float, float, float]:
    """The mean of the paradigms' means, and Wilson's 95% interval for it: of one paradigm the usual one; of several
    that of as many pairs as would vary as much."""
    means = [float(some.mean()) for some in points]
    mean, number = sum(means) / len(means), float(sum(map(len, points)))
    variance = sum(m * (1 - m) / len(some) for m, some in zip(means, points, strict=True)) / len(means) ** 2
    if variance:
        number = mean * (1 - mean) / variance
    middle, spread = mean + _Z**2 / (2 * number), _Z * math.sqrt(mean * (1 - mean) / number + (_Z / number) ** 2 / 4)
    low, high = ((middle + side * spread) / (1 + _Z**2 / number) for side in (-1, 1))
    return mean, max(low, 0.0), min(high, 1.0)


def _points(scores_P2: np.ndarray) -> np.ndarray:
    good_P, bad_P = scores_P2.T
    return np.where(good_P == bad_P, CHANCE, good_P > bad_P)


def _winner(good: float, bad: float) -> str:
    return "tie" if good == bad else "good" if good > bad else "bad"


def print_judgment(facts: dict[str, Any]) -> None:
    """A table: every paradigm under its group, then all."""
    width = max(map(len, facts["paradigms"]), default=0) + 2
    ngram = facts["ngram"] is not None
    print(f"{'':<{width}}{'pairs':>8}{'accuracy':>10}{'95% interval':>17}{'ties':>7}" + f"{'n-gram':>9}" * ngram)

    def show(name: str, row: dict[str, Any]) -> None:
        span = f"{row['low']:.1%} – {row['high']:.1%}"
        counted = f"{row['ngram_accuracy']:>9.1%}" if ngram else ""
        print(
            f"{printable(name):<{width}}{row['num_pairs']:>8,}{row['accuracy']:>10.1%}{span:>17}{row['ties']:>7,}{counted}"
        )

    for group in [*facts["groups"], ""]:
        names = [name for name, row in facts["paradigms"].items() if row["group"] == group]
        for name in names:
            show(f"  {name}" if group else name, facts["paradigms"][name])
        if group:
            show(group, facts["groups"][group])
    show("all", facts)
    above, below = (sum(test(row) for row in facts["paradigms"].values()) for test in (above_chance, below_chance))
    print(f"chance is {CHANCE:.0%}; of {len(facts['paradigms'])} paradigms {above} are above it and {below} below")
    if facts["unknown_share"] > 0.01:
        print(
            f"note: {facts['unknown_share']:.1%} of the tokens are unknown to the tokenizer; their scores mean nothing"
        )


def above_chance(row: dict[str, Any]) -> bool:
    return row["low"] > CHANCE


def below_chance(row: dict[str, Any]) -> bool:
    return row["high"] < CHANCE
