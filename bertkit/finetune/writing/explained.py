"""How a text came to be written: what every pass or step decided, how surely, and where in the source it looked."""

# L tokens of a row, N tokens of the target, S of the source

from typing import Any, NamedTuple

import numpy as np
import torch

from bertkit.finetune.batches import collate
from bertkit.finetune.writing.drafts import Pass
from bertkit.finetune.writing.left_to_right import Search, write_left_to_right
from bertkit.finetune.writing.parallel import write_parallel
from bertkit.finetune.writing.script import Script, make_script, source_length, with_prefix, with_slots
from bertkit.finetune.writing.writer import Writer
from data_pipelines.labels.sentence import Sentence


class Explained(NamedTuple):
    source: list[str]
    """Its tokens, the special ones and the features included."""
    passes: list[tuple[list[str], list[float], list[bool]]]
    """What each pass decided: tokens, their probabilities, and whether they stay. Left to right there is one, in which
    every token stays."""
    attention: np.ndarray
    """(N, S): how much each token of the target looked at each of the source, the mean of all heads and blocks."""


def explain(writer: Writer, source: str, features: list[str]) -> Explained:
    """How the writer rewrites a text, of a model that knows features with these."""
    tagger = writer.tagger
    script = make_script(tagger.tokenizer, tagger.form, tagger.settings)
    (row,) = tagger.task.rows([Sentence([source, *features], None, "", [])], tagger.encode, tagger.form)
    if script.parallel:
        ((draft, passes),) = write_parallel(tagger.ask, script, [row], tagger.settings["passes"])
        final = with_slots(script, row, np.array(passes[-1].ids))
        slots = _shown_slots(script, passes, len(draft.sure))
        passes = [one.at(slots) for one in passes]
    else:
        search = Search(tagger.settings["beams"], 1, tagger.settings["length_penalty"])
        draft = write_left_to_right(tagger.ask, script, [row], search)[0][0]
        ids = [*draft.ids, script.end][: len(draft.sure)]
        passes = [Pass(ids, draft.sure, [True] * len(ids))]
        final = with_prefix(script, row, np.array(draft.ids, np.int64))
        slots = list(range(len(ids)))
    start = source_length(final)
    with torch.inference_mode():
        encoder = tagger.model.encoder
        blocks = encoder.attention_weights(collate([final]).to(encoder.tokens.weight.device))
    mean_LL = torch.stack([weights.mean(dim=0) for (weights,) in blocks]).mean(dim=0).cpu().numpy()
    shown = [(_tokens(tagger.tokenizer, one.ids), one.sure, one.kept) for one in passes]
    return Explained(_tokens(tagger.tokenizer, final.ids_L[:start]), shown, mean_LL[final.index_M[slots], :start])


def _shown_slots(script: Script, passes: list[Pass], length: int) -> list[int]:
    """The slots up to the end; between a source's tokens those that held anything in any pass."""
    if script.between is None:
        return list(range(length))
    return [slot for slot in range(length) if any(one.ids[slot] != script.end for one in passes)]


def _tokens(tokenizer: Any, ids: Any) -> list[str]:
    return [str(tokenizer.backend.id_to_token(int(index))) for index in ids]
