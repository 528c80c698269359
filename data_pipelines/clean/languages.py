"""The language of a text, by py3langid, which is imported only when it is asked for."""

import importlib.util
from collections.abc import Callable, Iterable

from data_pipelines.bounds import check_choice

_CHARS = 2000
"""Of a longer text the start is enough."""


def is_installed() -> bool:
    return importlib.util.find_spec("py3langid") is not None


def identifier(wanted: Iterable[str] = ()) -> Callable[[str], str]:
    """A function that gives the ISO code of a text's language. Codes in `wanted` that it never gives are refused."""
    try:
        from py3langid import classify, rank
    except ImportError:
        raise ValueError(
            "--languages needs the package py3langid; install it with: pip install 'bertkit[languages]'"
        ) from None
    known = sorted(code for code, _ in rank("any text"))
    for code in wanted:
        check_choice("--languages", code, known)
    return lambda text: classify(text[:_CHARS])[0]
