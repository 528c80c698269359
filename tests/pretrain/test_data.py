"""A folder that `bertkit prepare` made trains as its text would; what does not fit it is refused by name."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from grammar import write_corpus

from bertkit.cli import main
from bertkit.config.recipe import read_recipe, to_yaml
from bertkit.pretrain.train import pretrain
from bertkit.report.probe import probe
from bertkit.run.checkpoint import checkpoints
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.prepare import Part, merge, prepare
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

torch.set_num_threads(1)

CONFIG = PrepareConfig(seq_len=32, validation_share=0.1)
TINY = [
    "model.embeddings=random",
    "model.hidden_size=32",
    "model.num_hidden_layers=1",
    "model.num_attention_heads=2",
    "model.intermediate_size=64",
    "train.steps=3",
    "train.global_batch=8",
    "train.micro_batch=8",
    "run.num_workers=0",
    "eval.max_rows=8",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A text, a tokenizer, the rows of the text, and the same in two parts."""
    folder = tmp_path_factory.mktemp("home")
    corpus = CorpusConfig(corpus=[str(write_corpus(folder / "text.txt", count=60))])
    train_tokenizer(corpus, TokenizerConfig(vocab_size=160), folder / "tokenizer")
    prepare(corpus, folder / "tokenizer", CONFIG, folder / "rows")
    for number in (1, 2):
        prepare(corpus, folder / "tokenizer", CONFIG, folder / "parts", part=Part(number, 2))
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(folder: Path, *changes: str) -> int:
    return pretrain(read_recipe("bert-mini", [f"run.dir={folder}", *TINY, *changes]))


def weights(folder: Path) -> str:
    _, path = checkpoints(folder / "checkpoints")[-1]
    return json.loads((path / "manifest.json").read_bytes())["files"]["model.safetensors"]["sha256"]


def test_prepared_rows_train_to_the_bits_that_their_text_trains_to(home, tmp_path, cache):
    assert run(tmp_path / "prepared", f"data.prepared={home / 'rows'}") == 0
    assert not (cache / "rows").exists()
    text = [f"data.corpus={home / 'text.txt'}", "data.seq_len=32", "data.validation_share=0.1"]
    assert run(tmp_path / "text", *text, f"tokenizer.path={home / 'tokenizer'}") == 0
    assert weights(tmp_path / "prepared") == weights(tmp_path / "text")
    assert "- Text: text.txt\n" in (tmp_path / "prepared" / "export" / "README.md").read_text()


def test_merged_parts_train_and_their_run_can_be_looked_at(home, tmp_path, capsys):
    parts = shutil.copytree(home / "parts", tmp_path / "parts")
    changes = [f"data.prepared={parts}", *TINY, f"run.dir={tmp_path / 'run'}"]
    assert main(["pretrain", "bert-mini", *changes]) == 2
    assert f"bertkit prepare --merge {parts}" in capsys.readouterr().err
    merge(parts)
    assert main(["pretrain", "bert-mini", *changes]) == 0
    assert probe(tmp_path / "run", 1).mask_rows


def test_the_printed_recipe_of_prepared_rows_is_the_same_recipe(home, tmp_path):
    recipe = read_recipe("bert-mini", [f"data.prepared={home / 'rows'}", *TINY])
    assert (recipe.data.seq_len, recipe.data.validation_share, recipe.data.corpus) == (32, 0.1, [])
    (tmp_path / "printed.yaml").write_text(to_yaml(recipe))
    assert read_recipe(str(tmp_path / "printed.yaml")) == recipe
    assert read_recipe(str(tmp_path / "printed.yaml"), ["data.corpus=my.txt"]).data.prepared is None


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (["data.seq_len=64"], r"data.seq_len=64.*data.prepared=.*rows.* 32"),
        (["data.documents=line"], "data.documents=line contradicts"),
        (["data.corpus=my.txt"], "data.corpus.*data.prepared"),
        (["tokenizer.vocab_size=99"], "tokenizer.vocab_size.*data.prepared"),
        (["tokenizer.path=there"], "tokenizer.path.*data.prepared"),
        (["model.max_position_embeddings=16"], "data.seq_len=32 is longer than"),
    ],
)
def test_settings_that_the_rows_contradict_are_refused(home, changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_recipe("bert-mini", [f"data.prepared={home / 'rows'}", *changes])
    assert read_recipe("bert-mini", [f"data.prepared={home / 'rows'}", "data.seq_len=32"]).data.seq_len == 32


def test_what_is_no_whole_set_of_rows_is_refused(home, tmp_path):
    for folder, complaint in {
        home / "nowhere": "data.prepared: .*nowhere .*'bertkit prepare'",
        home / "text.txt": "data.prepared: .*text.txt .*'bertkit prepare'",
        home / "parts" / "part-00001-of-00002": "is part 1 of 2; .*'bertkit prepare --merge .*parts'",
    }.items():
        with pytest.raises(ValueError, match=complaint):
            read_recipe("bert-mini", [f"data.prepared={folder}"])


def test_a_run_goes_on_with_its_own_rows_only_wherever_they_lie(home, tmp_path):
    rows = shutil.copytree(home / "rows", tmp_path / "moved")
    assert run(tmp_path / "run", f"data.prepared={home / 'rows'}") == 0
    assert run(tmp_path / "run", f"data.prepared={rows}") == 0
    other = CorpusConfig(corpus=[str(write_corpus(tmp_path / "other.txt", count=30))])
    prepare(other, home / "tokenizer", CONFIG, tmp_path / "other")
    with pytest.raises(ValueError, match=r"what data\.prepared holds changed since .*run began"):
        run(tmp_path / "run", f"data.prepared={tmp_path / 'other'}")


def test_rows_of_another_tokenizer_are_refused(home, tmp_path):
    assert run(tmp_path / "run", f"data.prepared={home / 'rows'}") == 0
    corpus = CorpusConfig(corpus=[str(home / "text.txt")])
    train_tokenizer(corpus, TokenizerConfig(vocab_size=120), tmp_path / "tokenizer")
    prepare(corpus, tmp_path / "tokenizer", CONFIG, tmp_path / "other")
    changes = [f"model.init={tmp_path / 'run'}", "train.steps=1", "run.num_workers=0", f"run.dir={tmp_path / 'on'}"]
    with pytest.raises(ValueError, match=r"was made with another tokenizer than that of model\.init"):
        pretrain(read_recipe("continued", [*changes, f"data.prepared={tmp_path / 'other'}"]))
    assert pretrain(read_recipe("continued", [*changes, f"data.prepared={home / 'rows'}"])) == 0
    rows = shutil.copytree(home / "rows", tmp_path / "rows")
    shutil.copytree(tmp_path / "tokenizer", rows / "tokenizer", dirs_exist_ok=True)
    with pytest.raises(ValueError, match="is not the tokenizer"):
        run(tmp_path / "swapped-run", f"data.prepared={rows}")
