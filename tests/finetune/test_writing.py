"""Decoding and the rows it needs, without a trained model."""

import itertools
import math

import numpy as np
import pytest
import torch

from bertkit.config.finetune import read_finetune_recipe
from bertkit.finetune.batches import asking, collate
from bertkit.finetune.windows import RowForm, WordEncoder
from bertkit.finetune.writing.drafts import text_of
from bertkit.finetune.writing.left_to_right import Search, write_left_to_right
from bertkit.finetune.writing.parallel import write_parallel
from bertkit.finetune.writing.scores import apply_edits, edit_distance, frequent_edits, text_scores
from bertkit.finetune.writing.script import make_script, source_rows, target_ids, training_row
from bertkit.model import build_encoder
from bertkit.model.config import BertConfig, ModernBertConfig
from bertkit.model.heads import MaskedLM
from data_pipelines.labels.sentence import Sentence
from data_pipelines.vocab.units import unit_tokenizer

LETTERS = "abc"


def make(order, extra=1, config=BertConfig, layers=2, apart=True, **settings):
    tokenizer = unit_tokenizer("character", [LETTERS], ["<PL>"])
    shape = {"hidden_size": 16, "num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": 24}
    made = config(vocab_size=tokenizer.vocab_size, max_position_embeddings=40, **shape)
    form = RowForm.of(tokenizer, made, 40)
    settings = {"order": order, "extra": extra, "units": "character", "apart": apart, **settings}
    script = make_script(tokenizer, form, settings)
    model = MaskedLM(build_encoder(made, 3), 4).eval()
    # Far from uniform, so that searches differ.
    with torch.no_grad():
        model.encoder.tokens.weight.mul_(30)
    return script, model


def rows_of(script, *sources):
    pairs = [Sentence(source.split("|"), None, "f", [1]) for source in sources]
    return source_rows(script, pairs, WordEncoder(script.tokenizer), script.form)


def log_probabilities(script, model, row, ids):
    """Of a text and its end, computed all at once without a cache."""
    whole = training_row(script, row._replace(target_M=np.array(ids, np.int64)), 0)
    logits = model.target_logits(collate([whole])).float()
    logits[:, script.never_written] = -math.inf
    return torch.log_softmax(logits, -1)[torch.arange(len(ids) + 1), torch.tensor([*ids, script.end])].sum().item()


@pytest.mark.parametrize("config", [BertConfig, ModernBertConfig])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
@torch.no_grad()
def test_a_wide_beam_is_exhaustive_search(config, penalty):
    script, model = make("left-to-right", config=config)
    (row,) = rows_of(script, "ab|PL")
    written = [index for index in range(1, 8) if index not in {*script.never_written, script.end}]
    most = row.room - 1
    texts = [list(ids) for size in range(most + 1) for ids in itertools.product(written, repeat=size)]
    compared = {
        tuple(ids): log_probabilities(script, model, row, ids) / ((5 + len(ids) + 1) / 6) ** penalty for ids in texts
    }
    ranked = sorted(compared, key=lambda ids: -compared[ids])
    ask = asking(model.target_logits, "cpu")
    search = Search(beams=len(texts), best=5, length_penalty=penalty)
    (found,) = write_left_to_right(ask, script, [row], search)
    assert [tuple(draft.ids) for draft in found] == ranked[:5]
    for draft in found:
        assert draft.score == pytest.approx(log_probabilities(script, model, row, draft.ids), abs=1e-4)
        assert math.prod(draft.sure) == pytest.approx(math.exp(draft.score), rel=1e-3)


@torch.no_grad()
def test_as_many_texts_are_found_as_are_asked_for():
    script, model = make("left-to-right", extra=0)
    ask = asking(model.target_logits, "cpu")
    rows = rows_of(script, "a", "ab", "cab|PL")
    for best in (1, 2, 3, 5):
        found = write_left_to_right(ask, script, rows, Search(beams=best, best=best))
        assert [len({tuple(draft.ids) for draft in drafts}) for drafts in found] == [best] * len(rows)
        for row, drafts in zip(rows, found, strict=True):
            assert all(len(draft.sure) == len(draft.ids) + 1 <= row.room for draft in drafts)


@torch.no_grad()
def test_greedy_search_takes_the_likeliest_token_whatever_is_written_beside_it():
    script, model = make("left-to-right", extra=4)
    rows = rows_of(script, "ab", "c|PL", "abcabc", "a")
    ask = asking(model.target_logits, "cpu")
    together = write_left_to_right(ask, script, rows, Search())
    for row, (draft,) in zip(rows, together, strict=True):
        ids = []
        while len(ids) < row.room - 1:
            grown = training_row(script, row._replace(target_M=np.array(ids, np.int64)), 0)
            logits = model.target_logits(collate([grown]))[-1]
            logits[script.never_written] = -math.inf
            token = int(logits.argmax())
            if token == script.end:
                break
            ids.append(token)
        assert draft.ids == ids


def test_source_and_target_count_from_the_same_place_where_types_tell_them_apart():
    script, _ = make("left-to-right")
    (row,) = rows_of(script, "ab|PL")
    learnt = training_row(script, row._replace(target_M=np.array([7, 6])), 0)
    special = script.tokenizer.special
    plural = script.tokenizer.backend.token_to_id("<PL>")
    assert learnt.ids_L.tolist() == [special.cls_id, 5, 6, special.sep_id, plural, special.sep_id, 7, 6]
    assert learnt.position_L.tolist() == [0, 1, 2, 3, 4, 5, 1, 2]
    assert learnt.type_L.tolist() == [0] * 6 + [1] * 2
    assert learnt.index_M.tolist() == [5, 6, 7]
    assert learnt.target_M.tolist() == [7, 6, special.sep_id]
    assert learnt.prefix == 6


@pytest.mark.parametrize("order", ["left-to-right", "parallel"])
def test_with_rotary_positions_a_target_is_equally_far_from_every_source(order):
    script, _ = make(order, config=ModernBertConfig)
    for source, length in (("ab", 4), ("abcabc", 8)):
        (row,) = rows_of(script, source)
        learnt = training_row(script, row._replace(target_M=np.array([7, 6])), 0)
        assert learnt.position_L[:length].tolist() == list(range(length))
        target = learnt.position_L[length:].tolist()
        assert target == list(range(40, 40 + len(target)))
    before, _ = make(order, config=ModernBertConfig, apart=False)
    learnt = training_row(before, rows_of(before, "ab")[0]._replace(target_M=np.array([7])), 0)
    assert learnt.position_L.tolist() == list(range(len(learnt.ids_L))), "a writer that was trained before that"


def test_parallel_training_masks_all_slots_or_any_share_of_them_by_its_key():
    script, _ = make("parallel", extra=7)
    (row,) = rows_of(script, "ab")
    row = row._replace(target_M=np.array([5, 6, 7]))
    whole = [5, 6, 7] + [script.end] * 7
    counts = []
    for key in range(400):
        drawn, again = training_row(script, row, key), training_row(script, row, key)
        assert drawn.ids_L.tolist() == again.ids_L.tolist()
        slots = drawn.ids_L[4:].copy()
        slots[drawn.index_M - 4] = drawn.target_M
        assert slots.tolist() == whole
        assert (drawn.ids_L[drawn.index_M] == script.mask).all()
        assert drawn.prefix is None
        counts.append(len(drawn.index_M))
    assert set(counts) == set(range(1, 11))
    # Three quarters, and a tenth of the rest.
    assert 0.72 < np.mean(np.array(counts) == 10) < 0.83


def test_passes_keep_the_surest_slots_and_ask_for_the_others_again():
    script, _ = make("parallel", extra=1)
    rows = rows_of(script, "ab")
    asked = []
    a, b, c, end = 5, 6, 7, script.end

    def ask(given):
        """Sees the right text only where its last letter stands already."""
        slots = given[0].ids_L[4:].tolist()
        asked.append(slots)
        logits = np.full((4, script.tokenizer.vocab_size), -9.0, np.float32)
        best, heights = ([a, b, c, end], height_then) if slots[2] == c else ([b, a, c, end], (1.0, 0.5, 3.0, 2.0))
        for place, (token, height) in enumerate(zip(best, heights, strict=True)):
            logits[place, token] = height
        logits[:, script.mask] = 99
        yield [0], logits

    height_then = (1.5, 1.0, 3.0, 2.0)
    ((draft, passes),) = write_parallel(ask, script, rows, 2)
    mask = script.mask
    assert asked == [[mask] * 4, [mask, mask, c, end]]
    assert draft.ids == [a, b, c]
    assert [one.kept for one in passes] == [[False, False, True, True], [True] * 4]
    assert passes[0].ids == [b, a, c, end]
    ((draft, _),) = write_parallel(ask, script, rows, 1)
    assert draft.ids == [b, a, c]
    assert len(draft.sure) == 4
    height_then = (1.5, 0.4, 3.0, 2.0)
    ((draft, _),) = write_parallel(ask, script, rows, 2)
    assert draft.ids == [a, a, c], "a slot changes only where it becomes surer"


@pytest.mark.parametrize("config", [BertConfig, ModernBertConfig])
def test_slots_between_the_tokens_of_a_source_learn_what_becomes_of_their_neighbours(config):
    script, _ = make("parallel", config=config, between=[1, 2])
    (row,) = rows_of(script, "ab|PL")
    pair = Sentence(["ab", "PL"], ["cabc"], "f", [1])
    target_M = target_ids(script, WordEncoder(script.tokenizer), row, pair, {}, {})
    a, b, c, end = 5, 6, 7, script.end
    assert target_M.tolist() == [c, a, end, b, c, end, end]
    for key in range(50):
        drawn = training_row(script, row._replace(target_M=target_M), key)
        # [CLS] a b [SEP] <PL> [SEP] and the slots: each token at the place where it would be read.
        assert drawn.position_L.tolist() == [0, 2, 5, 10, 11, 12, 1, 3, 4, 6, 7, 8, 9]
        slots = drawn.ids_L[6:].copy()
        slots[drawn.index_M - 6] = drawn.target_M
        assert slots.tolist() == target_M.tolist()


def test_training_gives_a_target_that_is_longer_than_its_slots_more_of_them():
    """As it does with slots after a source: nothing is cut."""
    script, _ = make("parallel", between=[1, 0])
    (row,) = rows_of(script, "ab|PL")
    pair = Sentence(["ab", "PL"], ["cabcabc"], "f", [1])
    target_M = target_ids(script, WordEncoder(script.tokenizer), row, pair, {}, {})
    a, b, c = 5, 6, 7
    assert row.room == 5
    assert target_M.tolist() == [c, a, b, c, a, b, c]
    for key in range(20):
        drawn = training_row(script, row._replace(target_M=target_M), key)
        assert drawn.position_L.tolist() == [0, 2, 5, 10, 11, 12, 1, 3, 4, 6, 7, 8, 9]


def test_what_slots_between_tokens_hold_is_the_text_without_the_empty_ones():
    script, _ = make("parallel", between=[1, 2])
    rows = rows_of(script, "ab")
    a, b, c, end = 5, 6, 7, script.end

    def ask(given):
        logits = np.full((7, script.tokenizer.vocab_size), -9.0, np.float32)
        logits[np.arange(7), [c, a, end, b, c, end, end]] = 3
        yield [0], logits

    ((draft, _),) = write_parallel(ask, script, rows, 1)
    assert draft.ids == [c, a, b, c]
    assert draft.score == pytest.approx(sum(map(math.log, draft.sure)))
    assert len(draft.sure) == 7


def test_slots_between_tokens_are_refused_left_to_right():
    with pytest.raises(ValueError, match=r"slots=between.*order=parallel.*left-to-right"):
        read_finetune_recipe("inflection", ["data.train=pairs.tsv", "data.slots=between"])


@pytest.mark.parametrize("order", ["left-to-right", "parallel"])
def test_corruption_shows_wrong_tokens_by_its_key_and_never_changes_the_answers(order):
    script, _ = make(order, corruption=0.5, extra=20)
    usual, _ = make(order, extra=20)
    (row,) = rows_of(script, "ab")
    target = [5, 6, 7] * 5
    row = row._replace(target_M=np.array(target))
    wrong = []
    for key in range(200):
        drawn, again, right = (training_row(one, row, key) for one in (script, script, usual))
        assert drawn.ids_L.tolist() == again.ids_L.tolist()
        assert drawn.target_M.tolist() == right.target_M.tolist()
        assert drawn.index_M.tolist() == right.index_M.tolist()
        assert drawn.ids_L[:4].tolist() == right.ids_L[:4].tolist()
        masked = right.ids_L == script.mask
        assert (drawn.ids_L[masked] == script.mask).all()
        assert not set(drawn.ids_L[4:][~masked[4:]].tolist()) & {*script.never_written}
        if not masked[4:].all():
            wrong.append(np.mean((drawn.ids_L != right.ids_L)[4:][~masked[4:]]))
    # One draw in five is the right token: a, b, c, unknown, the end.
    assert np.mean(wrong) == pytest.approx(0.4, abs=0.05)


def test_an_unknown_character_is_copied_from_the_source():
    script, _ = make("left-to-right")
    unknown = script.tokenizer.special.unk_id
    assert text_of(script, [5, unknown, 6, unknown, unknown], "xay") == "axby"


def test_a_pair_without_room_is_refused_with_its_place():
    script, _ = make("left-to-right")
    encode = WordEncoder(script.tokenizer)
    with pytest.raises(ValueError, match=r"f\.tsv:7.*data\.max_length=40"):
        source_rows(script, [Sentence(["a" * 50], None, "f.tsv", [7])], encode, script.form)
    pair = Sentence(["a" * 20], ["b" * 30], "f.tsv", [8])
    (row,) = source_rows(script, [pair], encode, script.form)
    with pytest.raises(ValueError, match=r"f\.tsv:8.*data\.max_length=40"):
        target_ids(script, encode, row, pair, {}, {})


def test_scores_by_hand():
    assert edit_distance("kitten", "sitting") == 3
    assert edit_distance("", "ab") == 2
    scores = text_scores(["abc", "de", ""], ["abc", "ed", "x"])
    assert scores["exact"] == pytest.approx(1 / 3)
    assert scores["edit_distance"] == 1.0
    assert scores["character_f1"] == pytest.approx(2 / 3)


def test_the_most_frequent_edit_that_fits_is_applied():
    def pair(source, target, features):
        return Sentence([source, features], [target], "", [])

    known = frequent_edits(
        [
            pair("walk", "walked", "PST"),
            pair("talk", "talked", "PST"),
            pair("like", "liked", "PST"),
            pair("a", "as", "PL"),
        ]
    )
    assert apply_edits(known, pair("jump", "", "PST")) == "jumped"
    assert apply_edits(known, pair("jump", "", "PL")) == "jumps"
    assert apply_edits(known, pair("jump", "", "DAT")) == "jump"
    german = frequent_edits([pair("machen", "gemacht", "PTCP")])
    assert apply_edits(german, pair("lachen", "", "PTCP")) == "gelacht"


def test_units_that_a_tokenizer_does_not_have_are_refused():
    script, _ = make("left-to-right")
    settings = {"order": "parallel", "extra": 1, "units": "byte"}
    with pytest.raises(ValueError, match=r"data\.units=byte.*model\.init"):
        make_script(script.tokenizer, script.form, settings)
