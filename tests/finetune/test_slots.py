"""Slots between the tokens of a source: where they stand, and what they are to hold."""

import random

import numpy as np
import pytest

from bertkit.finetune.writing.slots import EMPTY, Slots, align, fitting_slots


def coded(text):
    return np.array([ord(character) for character in text], int)


def shown(source, target, slots):
    """What the slots hold, those of a character in brackets, _ for an empty one."""
    held = "".join("_" if index == EMPTY else chr(index) for index in align(coded(source), coded(target), slots))
    ends = slots.before, len(held) - slots.after
    inside = held[slice(*ends)]
    return (
        f"{held[: ends[0]]}" + "".join(f"({inside[at : at + 2]})" for at in range(0, len(inside), 2)) + held[ends[1] :]
    )


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("ab", "ab", "__(a_)(b_)____"),
        ("absetzen", "setzten ab", "__(__)(__)(s_)(e_)(t_)(zt)(e_)(n )ab__"),
        ("geben", "gegeben", "ge(g_)(e_)(b_)(e_)(n_)____"),
        ("talo", "taloon", "__(t_)(a_)(l_)(oo)n___"),
        ("Haus", "Häusern", "__(H_)(ä_)(u_)(se)rn__"),
        ("ab", "", "__(__)(__)____"),
        ("", "ab", "ab____"),
    ],
)
def test_slots_hold_a_target_next_to_where_it_comes_from(source, target, expected):
    assert shown(source, target, Slots(2, 4)) == expected


def test_slots_hold_any_target_in_its_order_and_cut_it_only_where_room_ends():
    rng = random.Random(0)
    for _ in range(300):
        source, target = ([rng.randint(5, 8) for _ in range(rng.randint(0, most))] for most in (6, 14))
        slots = Slots(rng.randint(0, 3), rng.randint(0, 3))
        held = align(np.array(source, int), np.array(target, int), slots)
        assert len(held) == slots.count(len(source))
        assert slots.source_length(len(held)) == len(source)
        assert held[held != EMPTY].tolist() == target[: len(held)]


def test_tokens_and_slots_stand_at_positions_of_their_own():
    tokens, slots = Slots(2, 1).positions(3)
    assert tokens.tolist() == [2, 5, 8]
    assert slots.tolist() == [0, 1, 3, 4, 6, 7, 9, 10, 11]
    assert np.sort(np.concatenate(Slots(0, 4).positions(5))).tolist() == list(range(19))


def test_as_many_slots_stand_before_and_after_as_most_pairs_need():
    usual, long = ("geben", "gegeben"), ("geben", "hat gegeben und nimmt")
    pairs = [(coded(source), coded(target)) for source, target in [usual] * 99 + [long]]
    assert fitting_slots(pairs, 0.98) == Slots(2, 0)
    assert fitting_slots(pairs, 1.0).before >= 6
