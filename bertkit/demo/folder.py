"""How many minutes the demo in a folder takes; nothing heavy is imported."""

import json
from pathlib import Path

from data_pipelines import durable

MINUTES = 4.0
"""What the whole demo takes on 2 cores by default."""
_ABOUT = "demo.json"


def agreed_minutes(folder: Path, minutes: float | None) -> float:
    """The minutes that the folder's demo began with. Refuses other minutes, and a folder of something else."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _ABOUT
    # It is written first, so a folder without it holds the user's files, perhaps a train.conll.
    foreign = sorted(file.name for file in folder.iterdir() if file != durable.temporary_path(path))
    if foreign and not path.is_file():
        raise ValueError(f"{folder} holds something other than a demo ({foreign[0]}); give another --dir")
    before = json.loads(path.read_bytes())["minutes"] if path.is_file() else None
    if before is not None and minutes not in (None, before):
        raise ValueError(
            f"{folder} holds a demo of {before:g} minutes; leave out --minutes to resume it, or give another --dir"
        )
    chosen = before or minutes or MINUTES
    durable.replace_file(path, durable.json_bytes({"minutes": chosen}))
    return chosen
