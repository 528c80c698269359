"""Damages a file as disks and people do it."""

import random
from pathlib import Path

DAMAGES = ("bit", "zeros", "cut", "longer", "gone")


def damage(path: Path, how: str, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if how == "bit":
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == "zeros":
        place = max(i for i, byte in enumerate(data) if byte)
        data[place : place + 1] = bytes(1)
    elif how == "cut":
        del data[rng.randrange(len(data)) :]
    elif how == "longer":
        data += b"\0"
    path.unlink()
    if how != "gone":
        path.write_bytes(data)
