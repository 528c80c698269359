"""The card of a corpus counts what is there."""

import json

import pytest

from bertkit.cli import main
from bertkit.report.corpus_card import write_corpus_page
from data_pipelines.clean import card as module
from data_pipelines.clean.card import Card, describe
from data_pipelines.text.config import CorpusConfig


@pytest.fixture
def path(tmp_path):
    documents = ["the old harbour wall stood long\nthe old harbour", "THE old harbour wall stood long! the old harbour",
                 "привет мир и всем", "hello\u200b wor\ufffdld", "春天 到了"]  # fmt: skip
    path = tmp_path / "my.txt"
    path.write_text("\n\n".join(documents), "utf-8")
    return path


def counted(path):
    return describe(CorpusConfig(corpus=[str(path)]), lambda done: None)


def test_documents_words_and_scripts_are_counted(path):
    card = counted(path)
    assert (card.documents, card.words) == (5, 9 + 9 + 4 + 3 + 4)
    assert list(card.scripts) == ["LATIN", "CYRILLIC", "CJK"]
    assert (card.scripts["CYRILLIC"], card.scripts["CJK"]) == (14, 4)
    assert sum(card.lengths) == 5
    assert (card.longest["words"], card.longest["place"]) == (9, f"{path}:1")


def test_repeats_phrases_and_odd_characters_are_found(path):
    card = counted(path)
    assert (card.repeated, card.nearly_repeated) == (1, 0)
    assert card.ngrams[3][0] == ("the old harbour", 4)
    assert card.ngrams[1][0] == ("the", 4)
    assert card.ngrams[2][0] == ("the old", 4)
    assert {(code, kind, count) for code, kind, _, count in card.odd} == {
        ("U+200B", "invisible", 1),
        ("U+FFFD", "was unreadable", 1),
    }


def test_of_too_many_phrases_the_frequent_ones_stay(path, monkeypatch):
    monkeypatch.setattr(module, "_MAX_NGRAMS", 12)
    assert counted(path).ngrams[3][0][0] == "the old harbour"


def test_languages_are_counted_where_the_package_is_there(path, tmp_path, monkeypatch):
    pytest.importorskip("py3langid", reason="the extra languages is not installed")
    card = counted(path)
    assert sum(card.languages.values()) == 5
    assert card.languages["en"] >= 2
    monkeypatch.setattr(module, "is_installed", lambda: False)
    card = counted(path)
    assert card.languages is None
    write_corpus_page(tmp_path / "page.html", "my.txt", card, None)
    assert "bertkit[languages]" in (tmp_path / "page.html").read_text("utf-8")


def test_the_verb_writes_a_page_and_answers_programs(path, tmp_path, capsys):
    page = tmp_path / "card.html"
    assert main(["corpus", "report", "--corpus", str(path), "--out", str(page), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["documents"], facts["repeated"], facts["tokenizer"]) == (5, 1, None)
    text = page.read_text("utf-8")
    assert all(word in text for word in ("the old harbour", "CYRILLIC", "U+200B"))
    assert main(["corpus", "report", "--corpus", str(path), "--out", str(page)]) == 0
    assert "5 documents" in capsys.readouterr().out


def test_the_page_of_an_empty_corpus_and_of_one_with_a_tokenizer(tmp_path):
    facts = {"unknown_rate": 0.031, "pieces_per_word": 1.4, "bytes_per_token": 4.2}
    write_corpus_page(tmp_path / "page.html", "<none>", Card(), facts)
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "3.100%" in text
    assert "&lt;none&gt;" in text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--corpus", "absent.txt"], "absent.txt"), (["--tokenizer", "nowhere"], "nowhere"), (["--out", "."], "folder")],
)
def test_wrong_arguments_are_told_before_the_work(path, capsys, arguments, named):
    assert main(["corpus", "report", "--corpus", str(path), *arguments]) == 2
    assert named in capsys.readouterr().err
