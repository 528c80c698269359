"""`bertkit finetune` and `bertkit tag` explain themselves, and answer a mistake in one line and with exit code 2."""

import subprocess
import sys

import pytest

from bertkit.cli import main
from bertkit.config.fields import entries
from bertkit.config.finetune import FinetuneRecipe, read_finetune_recipe
from bertkit.config.recipe import shipped_recipes
from bertkit.finetune.tasks import TASKS


def test_help_lists_every_recipe_and_every_key_with_its_help(capsys):
    assert main(["finetune", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(name in shown for name in shipped_recipes("finetune"))
    assert f"task [{' | '.join(TASKS)}]" in shown
    for entry in entries(FinetuneRecipe):
        assert f" {entry.key} " in shown
        assert entry.help in shown


def test_what_would_run_is_printed_and_runs_again(tmp_path, capsys):
    assert main(["finetune", "pos", "data.train=x.conllu", "run.seeds=[3,4]", "--print-config"]) == 0
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out)
    recipe = read_finetune_recipe(str(tmp_path / "printed.yaml"))
    assert recipe == read_finetune_recipe("pos", ["data.train=x.conllu", "run.seeds=[3,4]"])
    assert (recipe.run.seeds, recipe.data.tag_column) == ([3, 4], "upos")


@pytest.mark.parametrize(
    "words",
    [
        ["finetune", "ner", "data.trian=x"],
        ["finetune", "ner", "data.train=x", "task=taging"],
        ["finetune", "--help"],
        ["pretrain", "bert-mini", "data.corpus=x", "optim.name=adam"],
        ["pretrain", "--help"],
        ["tag", "--modle"],
    ],
)
def test_mistakes_and_help_import_nothing_heavy(words):
    code = f"import sys; from bertkit.cli import main; main({words!r}); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["finetune", "ner"], "data.train"),
        (["finetune", "ner", "data.trian=x"], "did you mean 'data.train'?"),
        (["finetune", "ner", "data.train=x", "model.freeze=perhaps"], "model.freeze"),
        (["finetune", "ner", "data.train=x", "task=taging"], "did you mean 'tagging'?"),
        (["finetune", "ner", "data.train=x", "task=taging", "--print-config"], "did you mean 'tagging'?"),
        (["finetune", "ner", "data.train=x", "optim.name=adam", "--print-config"], "optim.name"),
        (["pretrain", "bert-mini", "data.corpus=x", "optim.name=adam", "--print-config"], "optim.name"),
        (["pretrain", "bert-mini", "data.corpus=x", "train.objective=maskedlm"], "did you mean 'masked-lm'?"),
        (["tag", "x.txt"], "--model"),
        (["tag", "--model", "nowhere", "nothing.txt"], "there is no file 'nothing.txt'"),
        (["tag", "--model", "nowhere", "."], "'.' is a folder"),
        (["tag", "--model", "nowhere/at/all"], "there is no folder 'nowhere/at/all'"),
        (["tag", "--model", ".", "--output", "xml"], "invalid choice: 'xml'"),
    ],
)
def test_a_mistake_is_named_in_a_line(words, complaint, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert "Traceback" not in said
