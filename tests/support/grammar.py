"""Text from a small grammar: nobody's, the same on every machine, and with enough order that a model can learn it."""

import random
from pathlib import Path

NAMES = ["anna", "boris", "clara", "david", "emil", "frieda"]
NOUNS = ["house", "river", "letter", "garden", "window", "basket", "engine", "harbor"]
VERBS = ["paints", "carries", "watches", "repairs", "describes", "forgets"]
ADJECTIVES = ["old", "quiet", "yellow", "heavy", "narrow", "unfinished"]
PLACES = ["near the station", "behind the market", "under the bridge", "in the valley"]


def sentence(rng: random.Random) -> str:
    """A subject, a verb and an object; the adjective depends on the noun, the place on the verb."""
    noun, verb = rng.randrange(len(NOUNS)), rng.randrange(len(VERBS))
    adjective, place = ADJECTIVES[noun % len(ADJECTIVES)], PLACES[verb % len(PLACES)]
    return f"{rng.choice(NAMES)} {VERBS[verb]} the {adjective} {NOUNS[noun]} {place}."


def documents(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(sentence(rng) for _ in range(rng.randint(1, 6))) for _ in range(count)]


def write_corpus(path: Path, count: int = 200, seed: int = 0) -> Path:
    """Documents with a blank line between them."""
    path.write_text("\n\n".join(documents(count, seed)) + "\n")
    return path


def tagged_sentence(rng: random.Random) -> tuple[list[str], list[str], list[str]]:
    """Words of a sentence with their parts of speech and with IOB2 spans: people and places."""
    name, verb, noun = rng.choice(NAMES), rng.choice(VERBS), rng.choice(NOUNS)
    place = PLACES[VERBS.index(verb) % len(PLACES)].split()
    words = [name, verb, "the", ADJECTIVES[NOUNS.index(noun) % len(ADJECTIVES)], noun, *place, "."]
    parts = ["PROPN", "VERB", "DET", "ADJ", "NOUN", "ADP", "DET", "NOUN", "PUNCT"]
    spans = ["B-PER", "O", "O", "O", "O", "B-LOC", "I-LOC", "I-LOC", "O"]
    return words, parts, spans


def write_conll(path: Path, count: int, seed: int = 0) -> Path:
    """Three columns: word, part of speech, span tag."""
    rng = random.Random(seed)
    blocks = []
    for _ in range(count):
        blocks.append("".join(f"{w}\t{p}\t{s}\n" for w, p, s in zip(*tagged_sentence(rng), strict=True)))
    path.write_text("\n".join(blocks))
    return path
