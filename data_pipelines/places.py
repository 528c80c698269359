"""Where files are kept that can be made or fetched again."""

import os
from pathlib import Path


def cache_folder(chosen: str | None = None) -> Path:
    """The folder chosen, else that of $BERTKIT_CACHE, else ~/.cache/bertkit."""
    return Path(chosen or os.environ.get("BERTKIT_CACHE") or "~/.cache/bertkit").expanduser()
