"""The verb plan: what it says agrees with hand-made arithmetic, with a measured step, and with the laws of a step."""

import json
import re
import time
from dataclasses import replace

import pytest
import torch
from gpu_step import needs_fake_cuda
from grammar import write_corpus
from small_model import save_small_model

from bertkit.cli import main
from bertkit.cli.plan import read_job
from bertkit.config.recipe import shipped_recipes
from bertkit.plan.gpus import FRAGMENTED, GPUS, REACHED, REACHED_BANDWIDTH, RESERVED_GIB
from bertkit.plan.plan import make_plan
from bertkit.plan.roofline import bytes_sent, kernel_seconds
from bertkit.plan.watch import Kernel, Memory, Message, num_pairs
from bertkit.plan.words import plan_lines

pytestmark = needs_fake_cuda
SMALL = ["model.num_hidden_layers=2", "train.micro_batch=4", "train.global_batch=64", "data.seq_len=64"]
KEYS = {
    *("recipe", "gpu", "gpus", "mode", "parameters", "peak_gib", "fits", "largest_micro_batch", "mflop_per_token"),
    *("host_waits_per_step", "mixed_products", "bytes_sent_per_step", "tokens_per_second", "hours", "gpu_hours"),
    *("cost", "assumptions"),
}


def planned(tmp_path, *arguments: str) -> dict:
    assert main(["plan", *arguments, "--json", str(tmp_path / "plan.json")]) == 0
    return json.loads((tmp_path / "plan.json").read_text())


def test_a_plan_says_what_it_should(tmp_path, capsys):
    facts = planned(tmp_path, "bert-base", *SMALL, "--gpu", "H100", "--gpus", "8")
    assert set(facts) >= KEYS
    assert (facts["gpu"], facts["gpus"], facts["mode"], facts["fits"]) == ("H100", 8, "ddp", True)
    assert (facts["host_waits_per_step"], facts["mixed_products"]) == (1, 0)
    # Every gradient travels twice, but for the share that a rank has itself.
    assert facts["bytes_sent_per_step"] == pytest.approx(2 * 7 / 8 * 4 * facts["parameters"], rel=1e-4)
    assert facts["gpu_hours"] == pytest.approx(8 * facts["hours"])
    assert facts["cost"] == pytest.approx(facts["gpu_hours"] * GPUS["H100"].price)
    parts = [facts[f"{part}_gib"] for part in ("weights", "gradients", "moments", "activations")]
    assert sum(parts) == pytest.approx(facts["peak_gib"])
    assert facts["moments_gib"] == pytest.approx(2 * facts["weights_gib"], rel=1e-3)
    assert "H100" in capsys.readouterr().out


def test_sharding_divides_what_stays(tmp_path):
    whole, shards = (planned(tmp_path, "bert-base", *SMALL, "--gpus", "8", "--mode", mode) for mode in ("ddp", "fsdp"))
    assert shards["weights_gib"] == pytest.approx(whole["weights_gib"] / 8, rel=0.02)
    assert shards["moments_gib"] == pytest.approx(whole["moments_gib"] / 8, rel=0.02)
    assert (shards["host_waits_per_step"], shards["mixed_products"]) == (1, 0)


def test_what_does_not_fit_is_said_with_what_would_help(tmp_path, capsys):
    facts = planned(tmp_path, "bert-base", *SMALL, "train.micro_batch=64", "--memory", "2.45")
    assert not facts["fits"]
    assert 0 < facts["largest_micro_batch"] < 64
    out = capsys.readouterr().out
    assert "train.micro_batch" in out
    assert "train.gradient_checkpointing" in out


@pytest.mark.plans
@pytest.mark.parametrize("name", ["bert-base", "modernbert-base", "roberta-style", "bert-large"])
@pytest.mark.parametrize(("gpus", "mode"), [(1, "ddp"), (8, "ddp"), (8, "fsdp"), (64, "ddp"), (64, "fsdp")])
def test_every_large_recipe_keeps_the_laws_on_many_gpus(name, gpus, mode, tmp_path):
    start = time.process_time()
    facts = planned(tmp_path, name, "--gpu", "H100", "--gpus", str(gpus), "--mode", mode)
    assert time.process_time() - start < 60
    assert (facts["mixed_products"], facts["host_waits_per_step"]) == (0, 1)


@pytest.mark.plans
@pytest.mark.parametrize(
    ("goal", "arguments"),
    [
        (320_000, ["modernbert-base", "--gpu", "H100"]),
        (95_000, ["bert-large", "data.seq_len=128", "train.micro_batch=256", "train.global_batch=65536"]),
    ],
)
def test_speed_by_roofline_does_not_fall(goal, arguments, tmp_path):
    assert planned(tmp_path, *arguments)["tokens_per_second"] >= goal


@pytest.mark.plans
@pytest.mark.parametrize("name", ["bert-base", "modernbert-base", "roberta-style", "bert-large"])
def test_a_recipe_says_what_its_plan_says(name, tmp_path):
    """Hours at best in its comment, and memory that suffices."""
    text = shipped_recipes()[name].read_text()
    hours, kind = re.search(r"(\d+) hours on (one A100|8 H100s) at best", text).groups()
    where = {"one A100": [], "8 H100s": ["--gpu", "H100", "--gpus", "8"]}[kind]
    facts = planned(tmp_path, name, *where)
    assert facts["hours"] == pytest.approx(int(hours), abs=0.6)
    assert facts["peak_gib"] * FRAGMENTED + RESERVED_GIB < int(re.search(r"(\d+) GB or more", text)[1])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["bert-base", "--gpu", "H10"], "H100"),
        (["bert-base", "--gpus", "0"], "--gpus"),
        (["bert-base", "--memory", "-1"], "--memory"),
        (["continued", "model.init=folder"], "continued"),
        (["bert-base", "data.seq_len=600"], "model.max_position_embeddings=512"),
        (["bert-base", "data.seqlen=64"], "data.seq_len"),
        (["bert-base", "trian.micro_batch=8"], "'train'"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments, named, capsys):
    assert main(["plan", *arguments]) == 2
    assert named in capsys.readouterr().err


def test_a_tokenizer_that_is_there_says_how_large_the_vocabulary_is(tmp_path):
    text = write_corpus(tmp_path / "text.txt", count=20)
    folder = save_small_model(tmp_path / "given", text, vocab_size=99, positions=16)
    assert read_job("bert-base", [f"tokenizer.path={folder}", "tokenizer.extend=5"]).encoder.vocab_size == 104


def test_a_kernel_is_as_slow_as_its_operations_or_its_traffic():
    gpu = GPUS["A100-80"]
    busy = Kernel("mm", "", 1000, "product", 10**12, (torch.bfloat16,))
    assert kernel_seconds(busy, gpu) == pytest.approx(1 / (312 * REACHED["product"]), rel=1e-2)
    precise = busy._replace(dtypes=(torch.float32,))
    assert kernel_seconds(precise, gpu) == pytest.approx(1 / (19.5 * REACHED["product"]), rel=1e-2)
    moving = Kernel("add", "", 10**10)
    assert kernel_seconds(moving, gpu) == pytest.approx(10 / (2039 * REACHED_BANDWIDTH), rel=1e-2)


def test_attention_looks_at_the_pairs_in_reach():
    assert num_pairs([3, 2], None) == 13
    assert num_pairs([3, 2], 1) == 7 + 4
    assert num_pairs([3], 10) == 9


def test_messages_of_the_host_are_not_sent_by_gpus():
    gradients = Message("allreduce_", 800, torch.float32, on_device=True)
    assert bytes_sent([gradients, gradients._replace(on_device=False)], 4) == 1200


def test_memory_is_counted_once_and_given_back():
    memory = Memory("cpu")
    values = torch.zeros(1024)
    assert memory.note_all([values, values[3:], values.view(2, 512)]) == 4096
    del values
    assert (memory.now, memory.peak) == (0, 4096)


def test_lines_for_people_name_every_number(tmp_path):
    asked = ["train.first_batch=16", "train.objective=diffusion", "train.tokens=20_000_000"]
    plan = make_plan(read_job("bert-base", [*SMALL, *asked]), "L4", GPUS["L4"], 1, None)
    assert {change.partition("=")[0] for change in asked[:2]} <= plan.assumptions.keys(), (
        "what it does not follow, it says"
    )
    text = "\n".join(plan_lines(plan))
    for words in (
        "bert-base on 1 × L4",
        "weights",
        "activations",
        "tokens a second",
        "GPU-hours",
        "share of bandwidth",
    ):
        assert words in text
    assert f"{plan.hours * 60:.0f} minutes at best" in text, "a short run is not told in hours"
    timed = replace(plan, minutes=90, hours=1.5, gpu_hours=1.5, cost=1.05)
    assert "1.5 hours as asked for, 1.50 GPU-hours, $1.05" in "\n".join(plan_lines(timed)), "slow or not, it ends then"
