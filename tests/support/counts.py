"""A fault test has a small number of cases for every day and its full number for `make test-faults`."""

import pytest


def counts(everyday: int, full: int) -> pytest.MarkDecorator:
    """Gives the test the argument `count`."""
    return pytest.mark.parametrize(
        "count",
        [
            pytest.param(everyday, marks=pytest.mark.everyday, id="everyday"),
            pytest.param(full, marks=pytest.mark.faults, id="full"),
        ],
    )
