"""Languages are told apart by the package that does it, and wrong codes are refused with the nearest."""

import pytest

from data_pipelines.clean.languages import identifier

pytest.importorskip("py3langid", reason="the extra languages is not installed")


def test_languages_are_told_apart():
    language_of = identifier(["en", "de", "zh"])
    assert language_of("They watched the sailors carry boxes down to the river in the evening.") == "en"
    assert language_of("Am Abend gingen die Kinder mit ihrem Vater an den Fluss hinunter.") == "de"
    assert language_of("傍晚，孩子们和父亲一起走到河边，那里停着一艘大船。") == "zh"


def test_a_code_that_is_none_is_refused():
    with pytest.raises(ValueError, match="--languages"):
        identifier(["en", "english"])
