"""Fills the [MASK]s of a text with the likeliest tokens, and its [SPAN]s with as many tokens as fit best."""

# T tokens, M masks still open, V vocabulary

import math
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from bertkit.hf.folder import GRAPHS, check_vocabulary, choose_backend, resolve
from bertkit.hf.onnx import open_graph
from data_pipelines.vocab.marks import INSIDE, SPACES, word_mark
from data_pipelines.vocab.tokenizer import load_tokenizer

MASK, SPAN = "[MASK]", "[SPAN]"
Order = Literal["left-to-right", "easiest-first", "together"]


class Candidate(NamedTuple):
    token: str
    """As a reader would write it; whatever the vocabulary, "##ing" continues the word before it."""
    id: int
    probability: float


class Filled(NamedTuple):
    text: str
    """The text with every mask and span replaced by the likeliest tokens."""
    masks: list[list[Candidate]]
    """For each mask, in the order of the text, its candidates at the moment it was filled, the likeliest first; a span
    is as many masks as it has tokens."""

    @property
    def score(self) -> float:
        """Mean logarithm of the probabilities of the tokens taken."""
        return sum(math.log(candidates[0].probability) for candidates in self.masks) / len(self.masks)


class FillMask:
    """Fills the masks of a text: one at a time, each with those filled before it in view, or together.

    `FillMask.load(folder)("Paris is the [MASK] of France.").text`
    """

    @classmethod
    def load(cls, folder: str | Path, backend: str = "auto") -> "FillMask":
        """Open a run, an export or a Hugging Face folder with a masked-LM head. `backend` names one of those that the
        folder has: torch, bf16, onnx or int8."""
        return cls(folder, backend)

    def __init__(self, folder: str | Path, backend: str = "auto"):
        self.folder = path = resolve(folder)
        backend = choose_backend(path, backend)
        if backend not in GRAPHS:
            self.model, self._logits = open_torch(path, half=backend == "bf16")
        else:
            self.model = open_graph(path, backend, "masked-lm")
            self._logits = lambda ids_T, places: self.model([ids_T])[0, places]
        tokenizer = load_tokenizer(path)
        check_vocabulary(tokenizer, self.model.config.vocab_size, path)
        if tokenizer.special.mask_id is None:
            raise ValueError(f"{path}: the tokenizer has no mask token")
        self.backend = tokenizer.backend
        self.vocab_size = tokenizer.vocab_size
        self.mask_id = tokenizer.special.mask_id
        self.mask_token = self._token(self.mask_id)
        self.special_ids = sorted(tokenizer.special.special_ids)
        self.mark = word_mark(self.backend.get_vocab())

    def __call__(
        self, text: str, top_k: int = 5, order: Order = "left-to-right", passes: int = 4, max_span: int = 4
    ) -> Filled:
        """`passes` is how often masks are filled "together": all of them, then again those that were least sure, ever
        fewer. `max_span` is how many tokens a [SPAN] may have."""
        if order not in get_args(Order):
            raise ValueError(f"order must be one of {', '.join(get_args(Order))}, got {order!r}")
        for name, value in (("top_k", top_k), ("passes", passes), ("max_span", max_span)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        text = text.replace(self.mask_token, MASK)
        # One span after the other: those to the right count as one mask until it is their turn.
        while SPAN in text:
            lengths = range(1, max_span + 1)
            tried = {n: text.replace(SPAN, " ".join([MASK] * n), 1) for n in lengths}
            scores = {n: self._fill(tried[n].replace(SPAN, MASK), 1, order, passes).score for n in lengths}
            text = tried[max(lengths, key=scores.__getitem__)]
        return self._fill(text, top_k, order, passes)

    def __repr__(self) -> str:
        config = self.model.config
        return (
            f"{type(self).__name__}({str(self.folder)!r}, {config.num_hidden_layers} layers of {config.hidden_size}, "
            f"vocabulary of {self.vocab_size})"
        )

    def _fill(self, text: str, top_k: int, order: Order, passes: int) -> Filled:
        ids_T = np.array(self.backend.encode(self._as_trained(text)).ids)
        places = np.flatnonzero(ids_T == self.mask_id).tolist()
        if not places:
            raise ValueError(f"nothing to fill: write {MASK} where a token is missing, {SPAN} for some; got {text!r}")
        if len(places) != text.count(MASK):
            raise ValueError(f"the tokenizer reads {len(places)} of the {text.count(MASK)} masks in {text!r}")
        if order == "together":
            masks = self._fill_together(ids_T, places, top_k, passes)
        else:
            masks = self._fill_one_by_one(ids_T, places, top_k, order)
        in_order = [masks[place] for place in places]
        tokens = [candidates[0].token for candidates in in_order]
        return Filled(_filled(text, tokens, spaced=self.mark in SPACES), in_order)

    def _fill_one_by_one(
        self, ids_T: np.ndarray, places: list[int], top_k: int, order: Order
    ) -> dict[int, list[Candidate]]:
        masks: dict[int, list[Candidate]] = {}
        while len(masks) < len(places):
            open_places = [place for place in places if place not in masks]
            # From the left only the first open mask is filled, so only it is looked at.
            looked_at = open_places[:1] if order == "left-to-right" else open_places
            found = dict(zip(looked_at, self._candidates(ids_T, looked_at, top_k), strict=True))
            place = max(looked_at, key=lambda place: found[place][0].probability)
            masks[place] = found[place]
            ids_T[place] = found[place][0].id
        return masks

    def _fill_together(
        self, ids_T: np.ndarray, places: list[int], top_k: int, passes: int
    ) -> dict[int, list[Candidate]]:
        masks: dict[int, list[Candidate]] = {}
        open_places = places
        for number in range(1, passes + 1):
            for place, candidates in zip(open_places, self._candidates(ids_T, open_places, top_k), strict=True):
                masks[place] = candidates
                ids_T[place] = candidates[0].id
            # The least sure tokens are asked for again with the others in view, in the last pass none.
            unsure = sorted(places, key=lambda place: masks[place][0].probability)
            open_places = sorted(unsure[: len(places) * (passes - number) // passes])
            if not open_places:
                break
            ids_T[open_places] = self.mask_id
        return masks

    def _as_trained(self, text: str) -> str:
        """Where a word's token begins with its space, a mask replaces both."""
        if self.mark in SPACES:
            text = re.sub(r"\s+" + re.escape(MASK), MASK, text)
        return text.replace(MASK, self.mask_token)

    def _candidates(self, ids_T: np.ndarray, places: list[int], top_k: int) -> list[list[Candidate]]:
        # A model may have more rows than its tokenizer has tokens; the rest have no token.
        logits_MV = self._logits(ids_T, places)[:, : self.vocab_size].astype(np.float64)
        probability_MV = np.exp(logits_MV - logits_MV.max(axis=1, keepdims=True))
        probability_MV /= probability_MV.sum(axis=1, keepdims=True)
        probability_MV[:, self.special_ids] = -1  # never what a text is missing
        top_k = min(top_k, self.vocab_size - len(self.special_ids))
        likeliest_MK = np.argsort(-probability_MV, axis=1, kind="stable")[:, :top_k]
        return [
            [Candidate(self._spelled(token), token, float(row[token])) for token in ids]
            for ids, row in zip(likeliest_MK.tolist(), probability_MV, strict=True)
        ]

    def _spelled(self, token_id: int) -> str:
        token = self._token(token_id)
        text = self.backend.decode([token_id], skip_special_tokens=False).strip() or token
        is_inside = self.mark in SPACES and not token.startswith(self.mark)
        return INSIDE + text if is_inside else text

    def _token(self, token_id: int) -> str:
        token = self.backend.id_to_token(token_id)
        assert token is not None, token_id
        return token


def open_torch(folder: Path, half: bool) -> tuple[Any, Callable[[np.ndarray, list[int]], np.ndarray]]:
    """The model, and the function that computes its logits, (M, V), at some places of a text."""
    import torch

    from bertkit.hf.models import load_with_head
    from bertkit.model.packing import pack
    from bertkit.model.products import in_half

    model = load_with_head(folder, "masked-lm")

    @torch.inference_mode()
    def logits(ids_T: np.ndarray, places: list[int]) -> np.ndarray:
        batch, _ = pack(torch.from_numpy(ids_T)[None])
        return model.project(model.encoder.encode(batch, torch.tensor(places))).float().numpy()

    return model, in_half(logits, "cpu") if half else logits


def _filled(text: str, tokens: list[str], spaced: bool = False) -> str:
    """The text with its masks replaced. `spaced` says that every token that starts a word has a space before it."""
    filled, *rest = text.split(MASK)
    for token, after in zip(tokens, rest, strict=True):
        if token.startswith(INSIDE) and len(token) > len(INSIDE):
            filled = filled.rstrip() + token.removeprefix(INSIDE) + after
        else:
            is_close = bool(filled) and not filled[-1].isspace()
            apart = is_close and (spaced or (_joins(filled[-1]) and _joins(token[0])))
            filled += " " * apart + token + after
    return filled


def _joins(character: str) -> bool:
    """Whether words that begin or end so would run into one; letters without case may belong to scripts that write
    no spaces."""
    return character.isalnum() and unicodedata.category(character) != "Lo"
