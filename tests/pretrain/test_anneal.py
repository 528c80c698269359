"""A branch of a long run ends as a run of its length would have ended; the mean of the last weights is exported."""

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from dying_steps import dies_before, newest_hashes
from grammar import write_corpus

from bertkit.cli import main
from bertkit.pretrain.anneal import branch
from bertkit.run.checkpoint import checkpoints
from bertkit.run.optim.average import average_weights, averaged

torch.set_num_threads(1)

SMALL = [
    *("data.seq_len=24", "data.validation_share=0.2", "tokenizer.vocab_size=160", "mask.rate=0.3"),
    *("model.hidden_size=16", "model.num_hidden_layers=2", "model.num_attention_heads=2"),
    *("model.intermediate_size=32", "model.embeddings=random", "model.mlp_dropout=0.1"),
    *("train.global_batch=8", "train.micro_batch=8", "run.log_every=1", "run.num_workers=0", "eval.every=5"),
    *("eval.max_rows=20", "run.save_every=2", "run.keep=50"),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("places")
    corpus = write_corpus(folder / "text.txt", count=60)
    return [f"data.corpus={corpus}", f"data.cache_dir={folder / 'cache'}"]


def pretrain(places, folder: Path, *changes: str) -> Path:
    assert main(["pretrain", "modernbert-mini", *places, *SMALL, f"run.dir={folder}", *changes]) == 0
    return folder


@pytest.fixture(scope="module")
def long(places, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("long") / "long"
    return pretrain(places, folder, "train.steps=20", "optim.warmup=0.2", "optim.decay=0.25")


def test_a_branch_ends_in_the_bits_of_a_run_of_its_length_also_when_it_was_killed(long, places, tmp_path):
    before = newest_hashes(long)
    command = ["anneal", str(long), "--from", "8", "--steps", "4", "--out", str(tmp_path / "branch")]
    with dies_before(11):
        main(command)
    assert main(command) == 0
    dedicated = pretrain(places, tmp_path / "dedicated", "train.steps=12", "optim.warmup_steps=4", "optim.decay=0.3334")
    assert newest_hashes(tmp_path / "branch") == newest_hashes(dedicated)
    assert newest_hashes(tmp_path / "branch")[0] == 12
    assert (tmp_path / "branch" / "export" / "model.safetensors").read_bytes() == (
        dedicated / "export" / "model.safetensors"
    ).read_bytes()
    facts = json.loads((tmp_path / "branch" / "run.json").read_text())
    assert facts["annealed_from"] == {"run": "long", "step": 8}
    lines = [json.loads(line) for line in (tmp_path / "branch" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, 13))
    assert newest_hashes(long) == before


def test_minutes_are_steps_at_the_speed_of_the_run_and_the_newest_full_rate_is_the_default(long):
    lines = [json.loads(line) for line in (long / "metrics.jsonl").read_text().splitlines()]
    seconds = {line["step"]: line["seconds"] for line in lines if line["kind"] == "train"}
    recipe = branch(long, minutes=1.0)
    # The rate falls from step 15 on, whose own rate is still full.
    assert recipe.run.dir == f"{long}-annealed-16"
    pace = (seconds[16] - seconds[8]) / 8
    assert recipe.train.steps == pytest.approx(16 + 60 / pace, rel=1e-6, abs=1)
    assert recipe.optim.warmup_steps == 4
    assert branch(long, minutes=5.0) == recipe


@pytest.mark.parametrize(
    ("changes", "flags", "told"),
    [
        (["optim.schedule=linear"], [], "optim.schedule"),
        (["mask.final_rate=0.2"], [], "mask.final_rate"),
        (["optim.warmup=0.5", "optim.decay=0.5"], [], "optim.decay=0"),
        ([], ["--from", "3"], "--from 3"),
        ([], ["--steps", "0"], "--steps"),
    ],
)
def test_what_cannot_be_branched_is_told(places, tmp_path, capsys, changes, flags, told):
    run = pretrain(places, tmp_path / "run", "train.steps=4", *changes)
    assert main(["anneal", str(run), "--steps", "2", *flags]) == 2
    assert told in capsys.readouterr().err


def test_another_folder_is_not_overwritten(long, tmp_path, capsys):
    """Row 30: what is there stays."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    assert main(["anneal", str(long), "--steps", "2", "--out", str(tmp_path / "out")]) == 2
    assert "--out" in capsys.readouterr().err
    assert (tmp_path / "out" / "thesis.txt").read_text() == "years of work"
    assert main(["anneal", str(tmp_path), "--steps", "2"]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_the_mean_of_the_last_weights_is_exported_and_resumes_in_the_same_bits(places, tmp_path):
    changes = ("train.steps=8", "train.average=0.5", "run.save_every=1", "optim.name=adamw")
    whole = pretrain(places, tmp_path / "whole", *changes)
    states = [safetensors.torch.load_file(path / "model.safetensors") for _, path in checkpoints(whole / "checkpoints")]
    assert len(states) == 8
    mean = {name: torch.stack([state[name] for state in states[4:]]).mean(0) for name in states[0]}
    exported = safetensors.torch.load_file(whole / "export" / "model.safetensors")
    torch.testing.assert_close(exported["model.embeddings.tok_embeddings.weight"], mean["encoder.tokens.weight"])
    assert not torch.equal(exported["model.embeddings.tok_embeddings.weight"], states[-1]["encoder.tokens.weight"])
    plain = pretrain(places, tmp_path / "plain", "train.steps=8", "optim.name=adamw")
    last = [folder / "checkpoints" / "step-00000008" / "model.safetensors" for folder in (whole, plain)]
    assert last[0].read_bytes() == last[1].read_bytes()
    losses = [
        [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines() if '"eval"' in line]
        for folder in (whole, plain)
    ]
    assert losses[0] != losses[1]

    with dies_before(6):
        pretrain(places, tmp_path / "run", *changes)
    pretrain(places, tmp_path / "run", *changes)
    assert newest_hashes(tmp_path / "run") == newest_hashes(whole)
    assert (tmp_path / "run" / "export" / "model.safetensors").read_bytes() == (
        whole / "export" / "model.safetensors"
    ).read_bytes()


def test_a_mean_is_of_the_weights_after_each_step_and_is_put_back_bit_for_bit():
    param = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.AdamW([param], lr=0.1)
    seen = []
    for step in range(1, 6):
        param.grad = torch.randn(3, generator=torch.Generator().manual_seed(step))
        optimizer.step()
        average_weights([optimizer], step, 5, 0.6)
        seen.append(param.detach().clone())
    with averaged([optimizer]):
        torch.testing.assert_close(param.detach(), torch.stack(seen[2:]).mean(0))
    assert torch.equal(param, seen[-1])
    other = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    average_weights([other], 5, 5, 0.6)
    with averaged([other]):
        assert not other.state
