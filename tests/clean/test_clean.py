"""A corpus is cleaned whole or not at all, resumes after a kill to the same text, and tells what went."""

import html
import json
import random

import pytest

from bertkit.cli import main
from bertkit.report.cleaning import write_cleaning_page
from data_pipelines.clean import clean as module
from data_pipelines.clean import measured
from data_pipelines.clean.clean import clean
from data_pipelines.clean.config import CleanConfig
from data_pipelines.clean.rules import RULES
from data_pipelines.text.config import CorpusConfig

WORDS = [f"{first}{vowel}{last}" for first in "bcdfglmnprst" for vowel in "aeiou" for last in ("ld", "me", "st", "rn")]
WORDS = [f"{word}{other}" for word in WORDS for other in ("", "ing", "ed", "less", "ful")]


def sentences(seed, count=6):
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=12)).capitalize() + "." for _ in range(count)]


def document(seed):
    return "\n".join(sentences(seed))


@pytest.fixture
def corpus(tmp_path):
    """Ten documents, a copy, a near copy, a short one."""
    documents = [document(seed) for seed in range(10)]
    documents.insert(4, documents[0].upper())
    documents.append(documents[1].replace(sentences(1)[0], sentences(99)[0]))
    documents.append("too short")
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join(documents), encoding="utf-8")
    return CorpusConfig(corpus=[str(path)])


def texts(folder):
    lines = [line for path in sorted(folder.glob("text/*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    return [json.loads(line)["text"] for line in lines]


def ignore(what, done):
    pass


def test_copies_near_copies_and_short_documents_go(corpus, tmp_path):
    facts = clean(corpus, CleanConfig(), tmp_path / "out", ignore)
    assert texts(tmp_path / "out") == [document(seed) for seed in range(10)]
    assert facts["dropped"] == {"number of words": 1, "repeated": 1, "nearly repeated": 1}
    assert (facts["documents"], facts["kept_documents"]) == (13, 10)
    assert facts["examples"]["repeated"][0]["kept"].startswith(sentences(0)[0])
    assert json.loads((tmp_path / "out" / "clean.json").read_text("utf-8")) == facts


def test_paragraphs_are_compared_one_by_one(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(sentences(1) + sentences(2)) + "\n\n" + "\n".join(sentences(2) + sentences(3)), "utf-8")
    facts = clean(CorpusConfig(corpus=[str(path)]), CleanConfig(unit="paragraphs"), tmp_path / "out", ignore)
    assert texts(tmp_path / "out") == ["\n".join(sentences(1) + sentences(2)), "\n".join(sentences(3))]
    assert facts["dropped"] == {"repeated": 6}


def test_test_sets_and_private_data_go(tmp_path):
    path, test_set = tmp_path / "corpus.txt", tmp_path / "test.txt"
    forbidden = " ".join(WORDS[:15])
    path.write_text(f"{document(1)}\n{forbidden.upper()}!\nwrite to a.b@example.org", "utf-8")
    test_set.write_text(forbidden, "utf-8")
    config = CleanConfig(against=[str(test_set)], private=["email"])
    facts = clean(CorpusConfig(corpus=[str(path)]), config, tmp_path / "out", ignore)
    assert texts(tmp_path / "out") == [document(1) + "\nwrite to [EMAIL]"]
    assert (facts["removed_lines"], facts["private"]) == (1, {"email": 1})


@pytest.mark.parametrize("killed_while", ["measuring", "writing"])
def test_killed_anywhere_it_resumes_to_the_same_text(corpus, tmp_path, monkeypatch, killed_while):
    monkeypatch.setattr(measured, "_CHUNK", 3)
    expected = clean(corpus, CleanConfig(), tmp_path / "whole", ignore)

    def killed(what, done):
        if what == killed_while and done > 3000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clean(corpus, CleanConfig(), tmp_path / "out", killed)
    assert not (tmp_path / "out").exists()
    progress = tmp_path / ".cleaning-out" / "progress.json"
    assert json.loads(progress.read_text())["findings"]["documents"] >= 3
    (tmp_path / ".cleaning-out" / "hashes").open("ab").write(b"cut short")
    assert clean(corpus, CleanConfig(), tmp_path / "out", ignore) == expected
    assert texts(tmp_path / "out") == texts(tmp_path / "whole")
    assert not (tmp_path / ".cleaning-out").exists()


def test_other_settings_do_not_resume_what_was_measured(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_write_kept", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        clean(corpus, CleanConfig(), tmp_path / "out", ignore)
    monkeypatch.undo()
    clean(corpus, CleanConfig(min_words=1, near=False, exact=False), tmp_path / "out", ignore)
    assert len(texts(tmp_path / "out")) == 13


def test_a_finished_folder_is_left_alone_and_another_is_refused(corpus, tmp_path):
    out = tmp_path / "out"
    first = clean(corpus, CleanConfig(), out, ignore)
    assert clean(corpus, CleanConfig(), out, ignore) == first
    with pytest.raises(ValueError, match="otherwise"):
        clean(corpus, CleanConfig(min_words=1), out, ignore)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="mine"):
        clean(corpus, CleanConfig(), mine, ignore)
    (out / "clean.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        clean(corpus, CleanConfig(), out, ignore)


def test_a_corpus_that_changes_while_it_is_read_is_refused(corpus, tmp_path):
    def change(what, done):
        if what == "measuring":
            with open(corpus.corpus[0], "a", encoding="utf-8") as file:
                file.write("\n\n" + document(50))

    with pytest.raises((ValueError, AssertionError)):
        clean(corpus, CleanConfig(), tmp_path / "out", change)
    assert not (tmp_path / "out").exists()


def test_weights_are_refused(corpus, tmp_path):
    with pytest.raises(ValueError, match="weight"):
        clean(CorpusConfig(corpus=[f"{corpus.corpus[0]}@2"]), CleanConfig(), tmp_path / "out", ignore)


def test_files_of_cleaned_text_have_a_bounded_size(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MAX_SHARD", 1500)
    monkeypatch.setattr(module, "_AT_ONCE", 100)
    clean(corpus, CleanConfig(), tmp_path / "out", ignore)
    files = sorted((tmp_path / "out").glob("text/*.jsonl"))
    assert len(files) > 3
    assert all(path.stat().st_size <= 1500 for path in files)
    assert len(texts(tmp_path / "out")) == 10


def test_the_page_shows_reasons_examples_and_what_each_rule_measured(corpus, tmp_path):
    facts = clean(corpus, CleanConfig(), tmp_path / "out", ignore)
    write_cleaning_page(tmp_path / "page.html", facts)
    page = (tmp_path / "page.html").read_text("utf-8")
    assert all(html.escape(reason) in page for reason in facts["dropped"])
    assert "too short" in page
    assert all(name in page for name in RULES)
    # The one document under min_words is the only thing outside a rule's bounds.
    assert page.count('class="bar outside"') == 1


def test_the_verb_writes_text_that_every_other_verb_reads_and_a_page(corpus, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["clean", "--corpus", corpus.corpus[0], "--out", str(out)]) == 0
    assert "kept 10 of 13 documents" in capsys.readouterr().out
    page = (out / "report.html").read_text("utf-8")
    assert "nearly repeated" in page
    assert sentences(0)[0].upper() in page
    assert main(["clean", "--corpus", corpus.corpus[0], "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kept_documents"] == 10
    again = tmp_path / "again"
    assert main(["clean", "--corpus", str(out / "text"), "--out", str(again), "--no-near"]) == 0
    assert texts(again) == texts(out)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--min-words", "-1"], "--min-words"), (["--private", "adress"], "--private"), (["--unit", "page"], "--unit"),
     (["--against", "absent.txt"], "absent.txt")],
)  # fmt: skip
def test_wrong_arguments_end_with_2_before_anything_is_written(corpus, tmp_path, capsys, arguments, named):
    assert main(["clean", "--corpus", corpus.corpus[0], "--out", str(tmp_path / "out"), *arguments]) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
