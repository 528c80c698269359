"""How a model reads a source and writes its target: the rows of training, and those with which writing begins.

A row is [CLS] source [SEP] features [SEP] target. Where the encoder has token types they mark source and target, and
both count their positions from the same place, so that copying looks straight across. With rotary positions the target
begins at a fixed distance instead, farther than any source reaches: copying then looks equally far back everywhere.

Left to right, a token of the target sees the source and what came before it, and says which token comes next, in the
end [SEP]. In parallel the target's slots are masks that see everything; slots that it does not need are to hold [SEP].
They follow the source, or stand between its tokens by their positions.
"""

# L tokens of a row, N tokens of a target, M answers

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertkit.finetune.windows import Row, RowForm, WordEncoder
from bertkit.finetune.writing.slots import EMPTY, Slots, align
from data_pipelines.labels.sentence import Sentence
from data_pipelines.vocab.tokenizer import Tokenizer
from data_pipelines.vocab.units import has_units

LEFT_TO_RIGHT, PARALLEL = "left-to-right", "parallel"
APART = "apart"
"""The setting of writers whose target begins at a fixed distance where positions are rotary."""
BETWEEN = "between"
"""The setting of writers whose slots stand between the tokens of a source: how many before it, and after."""
_ALL_MASKED = 0.75
"""Share of the training rows in which every slot is masked: the first pass decides most, and is the hardest."""


class Script(NamedTuple):
    """What rows depend on."""

    tokenizer: Tokenizer
    form: RowForm
    parallel: bool
    extra: int
    """Tokens that a target may have more than its source."""
    apart: bool
    """Whether the target begins at a fixed distance, farther than any source reaches."""
    between: Slots | None = None
    """In parallel: the slots between the tokens of a source; without them slots follow it."""
    corruption: float = 0.0
    """Share of the tokens of a target that a training row shows wrongly."""

    @property
    def end(self) -> int:
        """The token that ends a text."""
        assert self.tokenizer.special.sep_id is not None
        return self.tokenizer.special.sep_id

    @property
    def mask(self) -> int:
        assert self.tokenizer.special.mask_id is not None
        return self.tokenizer.special.mask_id

    @property
    def never_written(self) -> list[int]:
        special = self.tokenizer.special
        return sorted(special.special_ids - {special.sep_id, special.unk_id})


def make_script(tokenizer: Tokenizer, form: RowForm, settings: Mapping[str, Any]) -> Script:
    if tokenizer.special.sep_id is None or tokenizer.special.mask_id is None:
        raise ValueError("a writer ends its text with [SEP] and fills [MASK]s, but its tokenizer lacks one of them")
    units = settings["units"]
    if units != "token" and not has_units(tokenizer, units):
        raise ValueError(
            f"data.units={units}, but the encoder's tokenizer has longer tokens; take data.units=token, or an empty "
            "model.init to train from scratch"
        )
    # Writers that were trained before targets began there do not have the setting, and write as they learned to.
    apart = form.is_rotary and bool(settings.get(APART))
    parallel = settings["order"] == PARALLEL
    between = Slots(*settings[BETWEEN]) if parallel and settings.get(BETWEEN) else None
    corruption = settings.get("corruption", 0.0)
    return Script(tokenizer, form, parallel, int(settings["extra"]), apart, between, corruption)


def feature_token(feature: str) -> str:
    """How the vocabulary spells a feature."""
    return f"<{feature}>"


def knows_feature(tokenizer: Tokenizer, feature: str) -> bool:
    return tokenizer.backend.token_to_id(feature_token(feature)) is not None


def source_rows(script: Script, sentences: Sequence[Sentence], encode: WordEncoder, form: RowForm) -> list[Row]:
    """A row for each source: what the model reads first, and answers at its slots or, left to right, at its end."""
    encoded = encode([sentence.words[:1] for sentence in sentences])
    rows = []
    for index, (sentence, one) in enumerate(zip(sentences, encoded, strict=True)):
        features = np.array([_feature_id(script.tokenizer, word) for word in sentence.words[1:]], np.int64)
        parts = [form.before, one.ids_P, form.between, *([features, form.between] if len(features) else [])]
        ids_L = np.concatenate(parts)
        most, free = len(one.ids_P) + script.extra + 1, form.max_length - len(ids_L)
        if script.between is None:
            most = min(most, free)
        else:
            most = script.between.count(len(one.ids_P))
        if not 1 <= most <= free:
            raise ValueError(
                f"{sentence.place()}: a source of {len(ids_L):,} tokens leaves no room for a target in "
                f"data.max_length={form.max_length}; shorten it, or raise data.max_length as far as the encoder allows"
            )
        row = Row(ids_L, np.zeros(0, np.int64), np.zeros(0, np.int64), index, room=most)
        if script.parallel:
            rows.append(with_slots(script, row, np.full(most, script.mask)))
        else:
            rows.append(with_prefix(script, row, np.zeros(0, np.int64)))
    return rows


def _feature_id(tokenizer: Tokenizer, feature: str) -> int:
    index = tokenizer.backend.token_to_id(feature_token(feature))
    return (tokenizer.special.unk_id or 0) if index is None else index


def with_slots(script: Script, row: Row, slots_N: np.ndarray) -> Row:
    """The source of a row with these slots after it, where all of them are asked."""
    start = source_length(row)
    placed = _placed(script, row, slots_N)
    return row._replace(index_M=np.arange(start, start + len(slots_N)), prefix=None, **placed)


def with_prefix(script: Script, row: Row, target_N: np.ndarray) -> Row:
    """The source of a row with a target after it, where each of its tokens is asked from the place before it."""
    start = source_length(row)
    placed = _placed(script, row, target_N)
    return row._replace(index_M=np.arange(start - 1, start + len(target_N)), prefix=start, **placed)


def source_length(row: Row) -> int:
    """The tokens of a row before its target."""
    if row.prefix is not None:
        return row.prefix
    return int(row.index_M[0]) if len(row.index_M) else len(row.ids_L)


def _placed(script: Script, row: Row, target_N: np.ndarray) -> dict[str, Any]:
    sizes = [source_length(row), len(target_N)]
    first = target_position(script, sizes[0])
    return {
        "ids_L": np.concatenate((row.ids_L[: sizes[0]], target_N)),
        "position_L": (
            np.concatenate((np.arange(sizes[0]), np.arange(first, first + sizes[1])))
            if script.between is None
            else _between(script.between.widened(sizes[1] - row.room), len(script.form.before), *sizes)
        ),
        "type_L": np.repeat([0, 1], sizes) if script.form.has_types else None,
    }


def _between(slots: Slots, before: int, source_length: int, num_slots: int) -> np.ndarray:
    """Positions of a row whose slots stand between the tokens of its source, which follow `before` others."""
    position_P, position_S = slots.positions(slots.source_length(num_slots))
    rest = np.arange(before + len(position_P), source_length) + num_slots
    return np.concatenate((np.arange(before), before + position_P, rest, before + position_S))


def target_position(script: Script, source_length: int) -> int:
    """The position of a target's first token."""
    form = script.form
    if script.apart:
        return form.max_length
    return len(form.before) if form.has_types else source_length


def target_ids(
    script: Script, encode: WordEncoder, row: Row, sentence: Sentence, number: Mapping[str, int], settings: Any
) -> np.ndarray:
    """The tokens of a pair's target, without the one that ends it; between a source's tokens what each slot holds, with
    more of them at the end where a target is longer."""
    assert sentence.tags is not None
    ids_N = encode([sentence.tags])[0].ids_P if sentence.tags[0] else np.zeros(0, np.int64)
    length = source_length(row) + len(ids_N) + 1
    if length > script.form.max_length:
        raise ValueError(
            f"{sentence.place()}: source and target have {length:,} tokens together, but "
            f"data.max_length={script.form.max_length}; shorten them, or raise data.max_length as far as the encoder "
            "allows"
        )
    if script.between is None:
        return ids_N
    before = len(script.form.before)
    source_P = row.ids_L[before : before + script.between.source_length(row.room)]
    slots_S = align(source_P, ids_N, script.between.widened(max(0, len(ids_N) - row.room)))
    return np.where(slots_S == EMPTY, script.end, slots_S)


def training_row(script: Script, row: Row, key: int) -> Row:
    """What a step reads of a row whose `target_M` is the whole target: left to right all of it, in parallel with all
    of its slots masked, as in the first pass, or with a share that is drawn from (0, 1]."""
    assert row.target_M is not None
    random = np.random.default_rng(key)
    if not script.parallel:
        learnt = with_prefix(script, row, _corrupted(script, row.target_M, random))
        return learnt._replace(target_M=np.append(row.target_M, script.end))
    num_slots = max(len(row.target_M) + (script.between is None), row.room)
    target_N = np.append(row.target_M, np.full(num_slots - len(row.target_M), script.end))
    masks_all = random.random() < _ALL_MASKED
    count = num_slots if masks_all else max(1, math.ceil((1 - random.random()) * num_slots))
    masked = np.sort(random.permutation(num_slots)[:count])
    slots_N = _corrupted(script, target_N, random)
    slots_N[masked] = script.mask
    learnt = with_slots(script, row, slots_N)
    return learnt._replace(index_M=learnt.index_M[masked], target_M=target_N[masked])


def _corrupted(script: Script, target_N: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A copy with a share of the tokens replaced by any that can be written, the end included."""
    if not script.corruption:
        return target_N.copy()
    wrong_N = random.random(len(target_N)) < script.corruption
    never = np.array(script.never_written)
    drawn_N = random.integers(script.tokenizer.vocab_size - len(never), size=len(target_N))
    # The n-th token that can be written is n, and one more for each before it that cannot.
    drawn_N += np.searchsorted(never - np.arange(len(never)), drawn_N, side="right")
    return np.where(wrong_N, drawn_N, target_N)
