"""A corpus is cleaned whole or not at all, resumes after a kill to the same text, and tells what went."""

import html
import json
import random
import signal
import subprocess
import sys

import pytest

from bertkit.cli import main
from bertkit.report.cleaning import write_cleaning_page
from data_pipelines.clean import clean as module
from data_pipelines.clean import decision
from data_pipelines.clean.clean import clean, decide, finish, make_part
from data_pipelines.clean.config import CleanConfig
from data_pipelines.clean.job import open_job
from data_pipelines.clean.measured import measure_block
from data_pipelines.clean.rules import RULES
from data_pipelines.text import parts
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.parts import Part

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


GERMAN = (
    "Am Abend gingen die Kinder mit ihrem Vater an den Fluss hinunter, weil dort ein großes Schiff lag, das am "
    "nächsten Morgen weiterfahren sollte. Sie sahen den Matrosen zu, die Kisten trugen, und hörten, wie der alte "
    "Mann auf der Brücke ein Lied sang, das niemand von ihnen kannte und das doch jeder sofort mitsummen konnte."
)
ENGLISH = (
    "In the evening the children went down to the river with their father, because a large ship was lying there which "
    "was to sail on the next morning. They watched the sailors carry boxes and heard how the old man on the bridge "
    "sang a song that none of them knew and that everyone could hum along with at once."
)


def test_documents_in_other_languages_go(tmp_path):
    pytest.importorskip("py3langid", reason="the extra languages is not installed")
    path = tmp_path / "corpus.txt"
    path.write_text(f"{GERMAN}\n\n{ENGLISH}", "utf-8")
    facts = clean(CorpusConfig(corpus=[str(path)]), CleanConfig(languages=["de", "fr"]), tmp_path / "out", ignore)
    assert texts(tmp_path / "out") == [GERMAN]
    assert facts["dropped"] == {"another language": 1}
    assert facts["languages"] == {"de": 1, "en": 1}
    write_cleaning_page(tmp_path / "page.html", facts)
    assert "by language" in (tmp_path / "page.html").read_text("utf-8")


def test_the_package_that_tells_languages_is_asked_for_only_where_they_are(corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "py3langid", None)
    clean(corpus, CleanConfig(), tmp_path / "out", ignore)
    with pytest.raises(ValueError, match=r"bertkit\[languages\]"):
        clean(corpus, CleanConfig(languages=["en"]), tmp_path / "other", ignore)


def test_test_sets_and_private_data_go(tmp_path):
    path, test_set = tmp_path / "corpus.txt", tmp_path / "test.txt"
    forbidden = " ".join(WORDS[:15])
    path.write_text(f"{document(1)}\n{forbidden.upper()}!\nwrite to a.b@example.org", "utf-8")
    test_set.write_text(forbidden, "utf-8")
    config = CleanConfig(against=[str(test_set)], private=["email"])
    facts = clean(CorpusConfig(corpus=[str(path)]), config, tmp_path / "out", ignore)
    assert texts(tmp_path / "out") == [document(1) + "\nwrite to [EMAIL]"]
    assert (facts["removed_lines"], facts["private"]) == (1, {"email": 1})


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of about three documents."""
    monkeypatch.setattr(parts, "BLOCK_CHARS", 1500)


def files(folder):
    """What a folder of cleaned text holds, file by file."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.json*"))}


def clean_in_parts(corpus, config, out, num_parts, order=1):
    """As workers do it, each part in turn; `order` -1 makes the last part first."""
    for _ in ("measure", "write"):
        for number in range(1, num_parts + 1)[::order]:
            make_part(open_job(corpus, config, out), Part(number, num_parts), ignore)
        job = open_job(corpus, config, out)
        facts = finish(job) if job.decided else decide(job, num_parts)
    return facts


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("unit", ["documents", "paragraphs"])
@pytest.mark.parametrize(("num_parts", "order"), [(2, 1), (3, -1), (7, 1)])
def test_any_number_of_parts_gives_the_same_files(corpus, tmp_path, unit, num_parts, order):
    config = CleanConfig(unit=unit, min_words=5)
    whole = clean(corpus, config, tmp_path / "whole", ignore)
    assert clean_in_parts(corpus, config, tmp_path / "out", num_parts, order) == whole
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    assert len(files(tmp_path / "out")) > 4


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("killed_while", ["measuring", "writing"])
def test_killed_anywhere_it_resumes_to_the_same_text(corpus, tmp_path, monkeypatch, killed_while):
    expected = clean(corpus, CleanConfig(), tmp_path / "whole", ignore)

    def killed(what, done):
        if what == killed_while and done > 3000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clean(corpus, CleanConfig(), tmp_path / "out", killed)
    assert not (tmp_path / "out").exists()
    state = tmp_path / ".cleaning-out"
    assert list((state / {"measuring": "measured", "writing": "written"}[killed_while]).iterdir())
    (state / ".cut-short").write_bytes(b"half a block")
    measured = []
    monkeypatch.setattr(module, "measure_block", lambda *block: measured.append(block) or measure_block(*block))
    assert clean(corpus, CleanConfig(), tmp_path / "out", ignore) == expected
    assert len(measured) < len(list((tmp_path / "whole" / "text").iterdir()))
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    assert not state.exists()


def test_killed_while_it_decides_it_decides_anew(corpus, tmp_path, monkeypatch):
    expected = clean(corpus, CleanConfig(), tmp_path / "whole", ignore)
    with monkeypatch.context() as patch:
        patch.setattr(decision, "find_copies", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            clean(corpus, CleanConfig(), tmp_path / "out", ignore)
    scratch = tmp_path / ".cleaning-out" / "deciding"
    assert not scratch.exists()
    scratch.mkdir()  # as a kill leaves it
    (scratch / "bands").write_bytes(b"half of it")
    assert clean(corpus, CleanConfig(), tmp_path / "out", ignore) == expected
    assert files(tmp_path / "out") == files(tmp_path / "whole")


@pytest.mark.usefixtures("small_blocks")
def test_begun_in_two_parts_it_ends_the_same_in_three(corpus, tmp_path):
    expected = clean(corpus, CleanConfig(), tmp_path / "whole", ignore)
    make_part(open_job(corpus, CleanConfig(), tmp_path / "out"), Part(1, 2), ignore)
    assert clean_in_parts(corpus, CleanConfig(), tmp_path / "out", 3) == expected
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_parts_are_decided_once_all_are_measured(corpus, tmp_path):
    job = open_job(corpus, CleanConfig(), tmp_path / "out")
    make_part(job, Part(1, 2), ignore)
    with pytest.raises(ValueError, match=r"part-00002-of-00002"):
        decide(job, 2)
    make_part(job, Part(2, 2), ignore)
    decide(job, 2)
    with pytest.raises(ValueError, match="block 00000-00000"):
        finish(job)


def test_other_settings_do_not_resume_what_was_measured(corpus, tmp_path):
    make_part(open_job(corpus, CleanConfig(), tmp_path / "out"), Part(), ignore)
    clean(corpus, CleanConfig(min_words=1, near=False, exact=False), tmp_path / "out", ignore)
    assert len(texts(tmp_path / "out")) == 13


def test_what_a_kill_left_before_anything_was_known_is_taken_up(corpus, tmp_path):
    argv = ["clean", "--corpus", corpus.corpus[0], "--out", str(tmp_path / "out")]
    killed = f"""
import os, signal
from bertkit.cli import main
os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
main({argv!r})
"""
    assert subprocess.run([sys.executable, "-c", killed], capture_output=True).returncode == -signal.SIGKILL
    assert [path for path in (tmp_path / ".cleaning-out").iterdir() if path.is_file()], "what was not finished"
    assert main(argv) == 0


def test_what_another_version_began_or_finished_is_refused(corpus, tmp_path, capsys):
    out = tmp_path / "out"
    make_part(open_job(corpus, CleanConfig(), out), Part(1, 2), ignore)
    path = tmp_path / ".cleaning-out" / "identity.json"
    whole = path.read_text("utf-8")
    path.write_text(json.dumps(json.loads(whole) | {"format": 2}), "utf-8")
    for command in (["--corpus", corpus.corpus[0], "--out", str(out)], ["--merge", str(out)]):
        assert main(["clean", *command]) == 2
        assert "another version" in capsys.readouterr().err
    path.write_text(whole, "utf-8")
    facts = clean(corpus, CleanConfig(), out, ignore)
    (out / "clean.json").write_text(json.dumps(facts | {"identity": facts["identity"] | {"format": 2}}), "utf-8")
    with pytest.raises(ValueError, match=r"out was written by another version"):
        clean(corpus, CleanConfig(), out, ignore)


def test_a_finished_folder_is_left_alone_and_another_is_refused(corpus, tmp_path):
    out = tmp_path / "out"
    first = clean(corpus, CleanConfig(), out, ignore)
    assert clean(corpus, CleanConfig(), out, ignore) == first
    with pytest.raises(ValueError, match="other settings"):
        clean(corpus, CleanConfig(min_words=1), out, ignore)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="mine"):
        clean(corpus, CleanConfig(), mine, ignore)
    (out / "clean.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        clean(corpus, CleanConfig(), out, ignore)


def test_what_a_kill_after_the_last_move_leaves_is_removed(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(module.durable, "remove_folder", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        clean(corpus, CleanConfig(), tmp_path / "out", ignore)
    monkeypatch.undo()
    assert (tmp_path / ".cleaning-out").is_dir()
    assert clean(corpus, CleanConfig(), tmp_path / "out", ignore)["kept_documents"] == 10
    assert not (tmp_path / ".cleaning-out").exists()


@pytest.mark.parametrize("text", ["", "too short"])
def test_a_corpus_of_which_nothing_stays_leaves_an_empty_folder(tmp_path, text):
    (tmp_path / "corpus.txt").write_text(text)
    facts = clean(CorpusConfig(corpus=[str(tmp_path / "corpus.txt")]), CleanConfig(), tmp_path / "out", ignore)
    assert facts["kept_documents"] == 0
    assert texts(tmp_path / "out") == []
    write_cleaning_page(tmp_path / "page.html", facts)


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


def test_the_verb_makes_parts_by_hand_and_on_an_engine(corpus, tmp_path, capsys):
    given = ["clean", "--corpus", corpus.corpus[0], "--out"]
    assert main([*given, str(tmp_path / "whole")]) == 0
    out = str(tmp_path / "by-hand")
    for told in ("once more", "kept 10 of 13"):
        for part in ("1/2", "2/2"):
            assert main([*given, out, "--part", part]) == 0
        assert f"bertkit clean --merge {out}" in capsys.readouterr().out
        assert main(["clean", "--merge", out]) == 0
        assert told in capsys.readouterr().out
    assert main([*given, str(tmp_path / "engine"), "--engine", "local", "--parts", "2"]) == 0
    assert files(tmp_path / "engine") == files(tmp_path / "by-hand") == files(tmp_path / "whole")
    assert main([*given, str(tmp_path / "engine"), "--engine", "local", "--parts", "2"]) == 0
    assert "was finished before" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--parts", "2"], "--engine"), (["--merge", "absent"], "takes no other"), (["--part", "3/2"], "3/2"),
     (["--languages", "englisch"], "--languages"),
     (["--min-words", "-1"], "--min-words"), (["--private", "adress"], "--private"), (["--unit", "page"], "--unit"),
     (["--against", "absent.txt"], "absent.txt")],
)  # fmt: skip
def test_wrong_arguments_end_with_2_before_anything_is_written(corpus, tmp_path, capsys, arguments, named):
    assert main(["clean", "--corpus", corpus.corpus[0], "--out", str(tmp_path / "out"), *arguments]) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
