"""The demo runs from end to end, resumes from what is there, and says how to do the same with your own files."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from grammar import write_conll, write_corpus

from bertkit.cli import VERBS, Parser, main
from bertkit.demo import stages as demo_module
from bertkit.demo.folder import agreed_minutes
from bertkit.demo.stages import COMMANDS
from data_pipelines.demo.corpus import CORPUS, DEV, TRAIN

torch.set_num_threads(1)


def write_data(folder: Path) -> None:
    """What the demo would write first and its first stage would collect, in small."""
    folder.mkdir()
    (folder / "demo.json").write_text('{"minutes": 0.02}')
    write_conll(folder / TRAIN, 40)
    write_conll(folder / DEV, 20, seed=1)
    write_corpus(folder / CORPUS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "demo"
    write_data(folder)
    assert main(["demo", "--minutes", "0.02", "--dir", str(folder)]) == 0
    return folder


@pytest.fixture
def again(finished, tmp_path, capsys) -> str:
    """The output of a second run on a copy."""
    shutil.copytree(finished, tmp_path / "demo")
    capsys.readouterr()
    assert main(["demo", "--dir", str(tmp_path / "demo"), "--sentence", "x=f(y.z)"]) == 0
    return capsys.readouterr().out


def test_a_second_run_trains_nothing(finished, tmp_path, monkeypatch, capsys):
    for name in ("write_demo_data", "pretrain", "finetune"):
        monkeypatch.setattr(demo_module, name, None)
    capsys.readouterr()
    assert main(["demo", "--dir", str(finished)]) == 0
    out = capsys.readouterr().out
    for part in (CORPUS, "cache", "encoder", "pretrained", "scratch"):
        assert f"done before: {finished / part}" in out


def test_the_last_line_is_the_page(again):
    url = again.splitlines()[-1]
    assert url.startswith("file:///")
    assert "<html" in Path(url.removeprefix("file://")).read_text()


def test_scores_stand_beside_the_baselines(again):
    table = [line for line in again.splitlines() if "%" in line and "│" in line]
    names = ("majority tag", "most frequent tag of the word", "from scratch", "the pretrained encoder")
    for name in names:
        assert sum(name in line for line in table) == 1, again


def test_a_given_line_is_tagged_word_by_word(again):
    tagged = again.partition("8/9")[2].partition("9/9")[0]
    assert re.sub(r"\(B?I?-?[A-Z]+\) ", "", tagged.splitlines()[2]).split() == list("x=f(y.z)")


def test_a_log_has_no_escape_codes_and_80_columns(again):
    assert "\x1b" not in again
    told = [line for line in again.splitlines() if "/demo" not in line and "[CLS]" not in line]
    assert max(map(len, told)) <= 80


def test_another_number_of_minutes_needs_another_folder(tmp_path):
    assert agreed_minutes(tmp_path / "demo", 3.0) == agreed_minutes(tmp_path / "demo", None) == 3.0
    with pytest.raises(ValueError, match="a demo of 3 minutes"):
        agreed_minutes(tmp_path / "demo", 7.0)


def test_a_folder_of_other_files_is_refused_and_left_alone(tmp_path, capsys):
    (tmp_path / TRAIN).write_text("mine\tO\n")
    assert main(["demo", "--dir", str(tmp_path)]) == 2
    assert f"({TRAIN})" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == [TRAIN]
    assert (tmp_path / TRAIN).read_text() == "mine\tO\n"


@pytest.mark.parametrize("stage", ["open_data", "pretrain", "finetune", "write_report"])
def test_an_interrupted_demo_says_how_to_go_on(stage, finished, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "my demo"
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / "encoder" / "export")
    (folder / "scratch" / "scores.json").unlink()

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(demo_module, stage, interrupt)
        assert main(["demo", "--dir", str(folder)]) == 130
    said = capsys.readouterr().err.splitlines()[-1]
    command = said.partition("to resume:  bertkit ")[2]
    assert shlex.split(command) == ["demo", "--dir", str(folder)]


def test_a_stopped_stage_ends_the_demo_with_its_code(finished, tmp_path, monkeypatch, capsys):
    shutil.copytree(finished, tmp_path / "demo")
    (tmp_path / "demo" / "scratch" / "scores.json").unlink()
    monkeypatch.setattr(demo_module, "finetune", lambda recipe: 143)
    assert main(["demo", "--dir", str(tmp_path / "demo")]) == 143
    assert "to resume:" in capsys.readouterr().err


def test_what_was_interrupted_is_done_and_nothing_else(finished, tmp_path, monkeypatch):
    shutil.copytree(finished, tmp_path / "demo")
    (tmp_path / "demo" / "scratch" / "scores.json").unlink()
    trained = []
    monkeypatch.setattr(demo_module, "pretrain", None)
    finetune = demo_module.finetune
    monkeypatch.setattr(demo_module, "finetune", lambda recipe: trained.append(recipe.run.dir) or finetune(recipe))
    assert main(["demo", "--dir", str(tmp_path / "demo")]) == 0
    assert trained == [str(tmp_path / "demo" / "scratch")]


@pytest.mark.parametrize("command", [c for text in COMMANDS.values() for c in re.split(r"\n(?=bertkit)", text)])
def test_every_printed_command_is_one(command, capsys):
    """Verb and flags are known; a recipe and its changes make a config."""
    program, verb, *rest = shlex.split(command.replace("\\\n", ""))
    assert program == "bertkit"
    if verb in ("pretrain", "finetune"):
        assert main([verb, *rest, "--print-config"]) == 0
    else:
        module = __import__(VERBS[verb].module, fromlist=[verb])
        parser = Parser(prog=verb)
        getattr(module, verb.replace("-", "_"))(parser)
        parser.parse_args(rest)
    assert max(map(len, command.splitlines())) <= 73, "indented it must fit 80 columns"


def test_minutes_must_be_some(capsys):
    for minutes in ("0", "-1", "nan"):
        assert main(["demo", "--minutes", minutes]) == 2
