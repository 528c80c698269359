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
