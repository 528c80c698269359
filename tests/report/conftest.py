"""Runs whose text is hostile, and the pages that are made of them."""

from pathlib import Path

import pytest
from grammar import documents
from report_runs import EVIL, write_run

from bertkit.cli import main
from bertkit.report.training_report import write_report

RECIPE = [
    *("data.seq_len=64", "data.validation_share=0.2", "tokenizer.vocab_size=200", "model.hidden_size=32"),
    *("model.num_hidden_layers=2", "model.num_attention_heads=2", "model.intermediate_size=64", "train.steps=6"),
    *("train.global_batch=16", "train.micro_batch=16", "run.log_every=2", "run.num_workers=0", "eval.every=3"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A tiny finished run whose text is hostile."""
    folder = tmp_path_factory.mktemp("pretrained")
    texts = [f"{text} {EVIL.format(index)}" for index, text in enumerate(documents(60))]
    (folder / "text.txt").write_text("\n\n".join(texts))
    cache = f"data.cache_dir={folder / 'cache'}"
    arguments = ["bert-mini", f"data.corpus={folder / 'text.txt'}", f"run.dir={folder / 'run'}", cache, *RECIPE]
    assert main(["pretrain", *arguments]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def tagger(tmp_path_factory) -> Path:
    """The folder of a tagger, as its training leaves it."""
    dev = {
        "f1": 0.5,
        "strict": {"f1": 0.8125, "gold": 1234},
        "types": {"PER": {"f1": 0.5, "gold": 7}},
        "confusions": [["O", EVIL, 4321]],
        "worst": [{"words": ["Anna", EVIL], "gold": ["B-PER", "O"], "predicted": ["B-LOC", "O"]}],
    }
    scores = {"score": "f1", "best_seed": 0, "seeds": [{"seed": 0, "dev": dev}], "dev": {"mean": 0.5, "deviation": 0.0}}
    records = [{"kind": "train", "step": step, "loss": 1 / step, "lr": 1e-4} for step in range(1, 30)]
    return write_run(tmp_path_factory.mktemp("tagger") / "run <b>", records, scores=scores)


@pytest.fixture(scope="module")
def pages(run, tagger, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {
        "run": write_report([run], folder / "run.html"),
        "tagger": write_report([tagger], folder / "tagger.html"),
        "both": write_report([run, tagger], folder / "both.html"),
    }
