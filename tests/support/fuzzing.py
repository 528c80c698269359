"""What a stranger might feed us: values of every kind, and the only two ends that may have."""

import contextlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from bertkit.cli import main

SETTINGS = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "60")),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

texts = st.text(max_size=40)
odd_numbers = st.sampled_from(
    [0, -1, 1, 2, 3, 7, 10**9, 2**31, 2**63, 2**64, -(2**63), 10**40, 10**400, 0.5, -0.0, 1e-300, 1e300]
)
not_finite = st.sampled_from([float("nan"), float("inf"), float("-inf")])
odd_texts = st.sampled_from(
    [
        "",
        " ",
        "\0",
        "\x1b[31m",
        "../..",
        "/etc/passwd",
        "nan",
        "1e999",
        "null",
        "true",
        "[",
        "{",
        "~",
        "é",
        "\ud7ff",
        "𝕏",
    ]
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), odd_numbers, not_finite, odd_texts, texts)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts | odd_texts, inner, max_size=4),
    max_leaves=12,
)


def run(argv: list[str]) -> tuple[int, str]:
    """The exit code and what was said; anything but success or one complaint is a failure."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main(argv)
    assert code in (0, 2), (argv, code, said.getvalue())
    assert "Traceback" not in said.getvalue()
    if code == 2:
        assert said.getvalue().strip(), argv
        assert len(said.getvalue()) < 5000, "a value of any size is not repeated in full"
    return code, said.getvalue()


def refused(act: Callable[[], Any]) -> str | None:
    """Do it; the complaint if it was refused as something the user can mend."""
    try:
        act()
    except (ValueError, OSError) as error:
        return str(error) or "a complaint that says nothing"
    return None


def as_json(value: Any) -> str:
    """With NaN and infinities spelled as Python reads them."""
    return json.dumps(value, ensure_ascii=False)


def changed_bytes(data: bytes) -> st.SearchStrategy[bytes]:
    """The data cut, with bytes replaced, doubled, or followed by others."""
    places = st.integers(0, max(len(data) - 1, 0))
    return st.one_of(
        places.map(lambda end: data[:end]),
        st.tuples(places, st.binary(min_size=1, max_size=8)).map(
            lambda change: data[: change[0]] + change[1] + data[change[0] + len(change[1]) :]
        ),
        st.tuples(places, places).map(lambda cut: data[: cut[0]] + data[min(cut) : max(cut)] + data[cut[0] :]),
        st.binary(max_size=64).map(lambda more: data + more),
        st.binary(max_size=200),
    )


def nested_paths(value: Any, path: tuple = ()) -> list[tuple]:
    """The path of everything inside a JSON value."""
    found = [path] if path else []
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        found += nested_paths(child, (*path, key))
    return found


def replaced(value: Any, path: tuple, new: Any) -> Any:
    """The value with something else at this path."""
    if not path:
        return new
    key, *rest = path
    if isinstance(value, dict):
        return {**value, key: replaced(value[key], tuple(rest), new)}
    return [replaced(child, tuple(rest), new) if index == key else child for index, child in enumerate(value)]


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    return path
