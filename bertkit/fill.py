"""A text with [MASK] in it enters, the likeliest tokens and the filled text leave."""

# T tokens, M masks still open, V vocabulary

from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from bertkit.hf import load
from bertkit.hf.folder import resolve
from bertkit.model.heads import MaskedLM
from bertkit.model.packing import pack
from data_pipelines.tokenizer import load_tokenizer

MASK = "[MASK]"
Order = Literal["left-to-right", "easiest-first"]


class Candidate(NamedTuple):
    token: str
    id: int
    probability: float


class Filled(NamedTuple):
    text: str
    """The text with every mask replaced by its likeliest token."""
    masks: list[list[Candidate]]
    """For each mask, in the order of the text, its candidates at the moment it was filled, the likeliest first."""


class FillMask:
    """Fills the masks of a text one at a time, each with those filled before it in view."""

    def __init__(self, folder: str | Path):
        path = resolve(folder)
        model = load(path)
        if not isinstance(model, MaskedLM):
            raise ValueError(f"{path} holds a {type(model).__name__} without a masked-LM head, so it cannot fill masks")
        tokenizer = load_tokenizer(path)
        if tokenizer.special.mask_id is None:
            raise ValueError(f"{path}: the tokenizer has no mask token")
        if tokenizer.vocab_size > model.config.vocab_size:
            raise ValueError(
                f"{path}: the tokenizer has {tokenizer.vocab_size} tokens, but the model only {model.config.vocab_size}"
            )
        self.model = model
        self.backend = tokenizer.backend
        self.vocab_size = tokenizer.vocab_size
        self.mask_id = tokenizer.special.mask_id
        self.mask_token = self._token(self.mask_id)

    def __call__(self, text: str, top_k: int = 5, order: Order = "left-to-right") -> Filled:
        if order not in get_args(Order):
            raise ValueError(f"order must be one of {', '.join(get_args(Order))}, got {order!r}")
        if top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {top_k}")
        text = text.replace(self.mask_token, MASK)
        ids_T = torch.tensor(self.backend.encode(text.replace(MASK, self.mask_token)).ids)
        places = (ids_T == self.mask_id).nonzero().squeeze(1).tolist()
        if not places:
            raise ValueError(f"nothing to fill: write {MASK} where a token is missing, got {text!r}")
        masks: dict[int, list[Candidate]] = {}
        while len(masks) < len(places):
            open_places = [place for place in places if place not in masks]
            # From the left only the first open mask is filled, so only it is looked at.
            looked_at = open_places[:1] if order == "left-to-right" else open_places
            found = dict(zip(looked_at, self._candidates(ids_T, looked_at, top_k), strict=True))
            place = max(looked_at, key=lambda place: found[place][0].probability)
            masks[place] = found[place]
            ids_T[place] = found[place][0].id
        in_order = [masks[place] for place in places]
        return Filled(_filled(text, [candidates[0].token for candidates in in_order]), in_order)

    @torch.inference_mode()
    def _candidates(self, ids_T: Tensor, places: list[int], top_k: int) -> list[list[Candidate]]:
        batch, _ = pack(ids_T[None])
        logits_MV = self.model.project(self.model.encoder.encode(batch, torch.tensor(places)))
        # A model may have more rows than its tokenizer has tokens; those are nobody's.
        logits_MV = logits_MV[:, : self.vocab_size]
        probability, ids = logits_MV.softmax(-1).topk(min(top_k, logits_MV.shape[1]))
        return [
            [Candidate(self._spelled(token), token, share) for token, share in zip(row_ids, row, strict=True)]
            for row_ids, row in zip(ids.tolist(), probability.tolist(), strict=True)
        ]

    def _spelled(self, token_id: int) -> str:
        """A token as a reader would write it; special tokens and pieces of words keep their marks."""
        return self.backend.decode([token_id], skip_special_tokens=False).strip() or self._token(token_id)

    def _token(self, token_id: int) -> str:
        token = self.backend.id_to_token(token_id)
        assert token is not None, token_id
        return token


def _filled(text: str, tokens: list[str]) -> str:
    for token in tokens:
        before, _, after = text.partition(MASK)
        # "##ing" continues the word before it.
        text = before.rstrip() + token[2:] + after if token.startswith("##") and before else before + token + after
    return text
