"""A run ends in the same bits however it was stopped, split or fed; what does not fit is refused by name."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from dying_steps import dies_before, newest_hashes
from grammar import write_corpus
from telling import tells

from bertkit.cli import main
from bertkit.config.recipe import read_recipe
from bertkit.model.initialization import fill
from bertkit.pretrain import budget, train
from bertkit.pretrain.checks import check_pretraining
from bertkit.pretrain.train import pretrain
from bertkit.run.checkpoint import checkpoints
from bertkit.run.ranks import wrap

torch.set_num_threads(1)

STEPS = 12
BUDGETS = ("train.steps=", "train.tokens=", "train.minutes=")
SMALL = [
    "data.seq_len=32",
    "data.validation_share=0.1",
    "tokenizer.vocab_size=160",
    "model.embeddings=random",
    "model.hidden_size=32",
    "model.num_hidden_layers=2",
    "model.num_attention_heads=2",
    "model.intermediate_size=64",
    "model.hidden_dropout_prob=0.1",
    "model.attention_probs_dropout_prob=0.1",
    "train.global_batch=16",
    "train.micro_batch=8",
    "optim.name=adamw",
    "optim.lr=0.005",
    "run.save_every=3",
    "run.log_every=4",
    "run.num_workers=0",
    "eval.every=5",
    "eval.max_rows=20",
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "text.txt", count=60)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def arguments(corpus: Path, folder: Path, *changes: str) -> list[str]:
    budget = [] if any(change.startswith(BUDGETS) for change in changes) else [f"train.steps={STEPS}"]
    return ["bert-mini", f"data.corpus={corpus}", f"run.dir={folder}", *SMALL, *budget, *changes]


def run(corpus: Path, folder: Path, *changes: str) -> int:
    name, *rest = arguments(corpus, folder, *changes)
    return pretrain(read_recipe(name, rest))


def run_until(step: int, corpus: Path, folder: Path, *changes: str) -> None:
    """A run that dies when it is about to compute this step."""
    with dies_before(step):
        run(corpus, folder, *changes)


def final_state(folder: Path, steps: int = STEPS) -> dict[str, str]:
    """The hashes of the final weights and moments."""
    step, hashes = newest_hashes(folder)
    assert step == steps
    return hashes


def records(folder: Path, kind: str) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


@pytest.fixture(scope="module")
def undisturbed(corpus, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert run(corpus, folder) == 0
    return folder


def test_a_run_leaves_what_others_rely_on(undisturbed):
    assert {path.name for path in undisturbed.iterdir()} >= {"checkpoints", "export", "metrics.jsonl", "recipe.yaml"}
    assert [line["step"] for line in records(undisturbed, "train")] == [1, 4, 8, 12]
    assert [line["step"] for line in records(undisturbed, "eval")] == [5, 10, 12]
    assert records(undisturbed, "eval")[-1]["buckets"].keys() >= {"masked", "frequent", "rare", "first_piece"}
    card = (undisturbed / "export" / "README.md").read_text()
    assert "text.txt" in card
    assert "| all |" in card
    assert read_recipe(str(undisturbed / "recipe.yaml")).train.steps == STEPS


def test_the_loss_goes_down(undisturbed):
    losses = [line["loss"] for line in records(undisturbed, "train")]
    assert losses[-1] < losses[0] - 0.5


def test_a_run_of_shards_begins_with_an_outline(undisturbed, corpus, tmp_path, monkeypatch):
    """Without FSDP: the outline is filled where it would be sharded, so that bits can be compared."""

    def wrapped(accelerator, model, *rest):
        assert all(param.is_meta for param in model.parameters())
        return wrap(accelerator, fill(model), *rest)

    monkeypatch.setattr(train, "is_sharded", lambda accelerator: True)
    monkeypatch.setattr(train, "wrap", wrapped)
    assert run(corpus, tmp_path / "run") == 0
    assert final_state(tmp_path / "run") == final_state(undisturbed)


def test_a_kill_does_not_change_the_result_twice_in_one_epoch_and_across_a_border(undisturbed, corpus, tmp_path):
    folder = tmp_path / "run"
    for step in (4, 5, 8, 11):  # an epoch has fewer than 5 steps
        run_until(step, corpus, folder)
        lost = step - checkpoints(folder / "checkpoints")[-1][0]
        assert lost <= 3
    assert run(corpus, folder) == 0
    assert final_state(folder) == final_state(undisturbed)
    steps = [line["step"] for line in records(folder, "train")]
    assert steps == sorted(set(steps))


def test_workers_do_not_matter(undisturbed, corpus, tmp_path):
    assert run(corpus, tmp_path / "run", "run.num_workers=2") == 0
    assert final_state(tmp_path / "run") == final_state(undisturbed)


def test_muon_and_schedules_resume_bit_identically(corpus, tmp_path):
    changes = (
        "optim.name=muon",
        "optim.schedule=wsd",
        "train.first_batch=4",
        "train.batch_warmup=0.5",
        "mask.final_rate=0.3",
    )
    assert run(corpus, tmp_path / "straight", *changes) == 0
    run_until(7, corpus, tmp_path / "stopped", *changes)
    assert run(corpus, tmp_path / "stopped", *changes) == 0
    assert final_state(tmp_path / "stopped") == final_state(tmp_path / "straight")


def test_a_finished_run_says_so_and_changes_nothing(undisturbed, corpus, capsys, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    before = (undisturbed / "metrics.jsonl").read_bytes(), final_state(undisturbed)
    assert run(corpus, undisturbed) == 0
    told = capsys.readouterr().err
    assert "is finished" in told
    assert "64" not in told
    assert ((undisturbed / "metrics.jsonl").read_bytes(), final_state(undisturbed)) == before


def test_a_damaged_checkpoint_costs_one_interval_and_not_the_result(undisturbed, corpus, tmp_path, caplog):
    folder = tmp_path / "run"
    run_until(10, corpus, folder)
    newest = checkpoints(folder / "checkpoints")[-1][1] / "model.safetensors"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    assert run(corpus, folder) == 0
    assert str(newest) in caplog.text
    assert final_state(folder) == final_state(undisturbed)


@pytest.mark.parametrize(
    ("change", "named"),
    [("optim.lr=0.5", "optim.lr: 0.005 -> 0.5"), ("run.seed=3", "run.seed: 0 -> 3"), ("mask.rate=0.4", "mask.rate")],
)
def test_another_recipe_in_the_folder_is_refused_by_name(undisturbed, corpus, change, named):
    with pytest.raises(ValueError, match="holds a run of another recipe") as caught:
        run(corpus, undisturbed, change)
    assert named in str(caught.value)


def test_another_text_is_refused_by_name(corpus, tmp_path):
    changed = tmp_path / "text.txt"
    changed.write_bytes(corpus.read_bytes())
    run_until(4, changed, tmp_path / "run")
    write_corpus(changed, count=61)
    with pytest.raises(ValueError, match=r"the text of data.corpus changed"):
        run(changed, tmp_path / "run")


def test_a_corpus_that_moved_goes_on(undisturbed, corpus, tmp_path):
    run_until(4, corpus, tmp_path / "run")
    moved = tmp_path / "text.txt"
    moved.write_bytes(corpus.read_bytes())
    assert run(moved, tmp_path / "run") == 0
    assert final_state(tmp_path / "run") == final_state(undisturbed)


def test_a_start_that_failed_does_not_claim_the_folder(corpus, tmp_path):
    with pytest.raises(ValueError, match="there is no tokenizer at"):
        run(corpus, tmp_path / "run", f"tokenizer.path={tmp_path}")
    assert run(corpus, tmp_path / "run", "train.steps=0") == 0


def test_a_folder_with_other_things_is_refused(corpus, tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match=r"thesis.tex.* and no run"):
        run(corpus, tmp_path)
    with pytest.raises(ValueError, match="is a file"):
        run(corpus, tmp_path / "thesis.tex")


def test_a_loss_that_stays_infinite_ends_the_run_with_a_remedy(corpus, tmp_path, monkeypatch):
    from bertkit.model import MaskedLM

    monkeypatch.setattr(MaskedLM, "loss", lambda self, batch: self.target_logits(batch).sum() * float("inf"))
    with pytest.raises(FloatingPointError, match=r"not finite in 3 steps in a row.*optim.lr"):
        run(corpus, tmp_path / "run", "train.max_bad_steps=3")


def test_no_steps_export_the_initial_model(corpus, tmp_path):
    assert run(corpus, tmp_path / "run", "train.steps=0") == 0
    assert (tmp_path / "run" / "export" / "model.safetensors").is_file()
    assert records(tmp_path / "run", "eval")[0]["step"] == 0


@pytest.mark.parametrize("share", ["0", "0.01"])
def test_one_sentence_is_enough(tmp_path, share):
    corpus = tmp_path / "one.txt"
    corpus.write_text("The quick brown fox jumps over the lazy dog.\n")
    assert run(corpus, tmp_path / "run", f"data.validation_share={share}", "train.steps=3") == 0
    assert (tmp_path / "run" / "export").is_dir()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("data.corpus=absent.txt", "'absent.txt'"),
        ("run.dir=CORPUS", "is a file"),
        ("tokenizer.path=absent", "tokenizer.path=absent"),
        ("train.stps=3", "did you mean 'train.steps'?"),
        (
            "train.objective=masked-ml",
            "train.objective … masked-lm … 'masked-ml'",
        ),
        ("optim.name=adam", "optim.name … adamw, muon … 'adam' … 'adamw'"),
    ],
)
def test_what_can_be_seen_to_fail_fails_before_anything_heavy(corpus, tmp_path, change, complaint):
    argv = ["pretrain", *arguments(corpus, tmp_path / "run", change.replace("CORPUS", str(corpus)))]
    code = f"import sys; from bertkit.cli import main; code = main({argv!r}); print(*sys.modules); sys.exit(code)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert tells(done.stderr, complaint)
    assert not {"torch", "numpy", "tokenizers", "accelerate"} & set(done.stdout.split())
    assert not (tmp_path / "run").exists()


def test_an_empty_corpus_is_one_clear_line(tmp_path, capsys):
    corpus = tmp_path / "empty.txt"
    corpus.write_text("\n\n")
    assert main(["pretrain", *arguments(corpus, tmp_path / "run")]) == 2
    assert "holds no text" in capsys.readouterr().err


def test_a_corpus_smaller_than_a_batch_repeats_rows_with_new_masks(tmp_path):
    corpus = write_corpus(tmp_path / "few.txt", count=3)
    assert run(corpus, tmp_path / "run", "train.global_batch=64", "train.steps=2") == 0


def test_a_token_budget_is_turned_into_steps(corpus, tmp_path):
    assert run(corpus, tmp_path / "run", "train.tokens=1500") == 0
    tokens = records(tmp_path / "run", "train")[-1]["tokens"]
    assert 1200 < tokens < 2200


def test_minutes_are_measured_once_and_then_are_steps(corpus, tmp_path):
    changes = ("train.minutes=0.02", "run.save_every=5")
    assert run(corpus, tmp_path / "run", *changes) == 0
    steps = json.loads((tmp_path / "run" / "run.json").read_bytes())["total_steps"]
    assert steps == checkpoints(tmp_path / "run" / "checkpoints")[-1][0] > 3
    assert run(corpus, tmp_path / "run", *changes) == 0
    assert json.loads((tmp_path / "run" / "run.json").read_bytes())["total_steps"] == steps


def test_measuring_leaves_no_trace(undisturbed, corpus, tmp_path, monkeypatch):
    """A minutes run that is measured to as many steps as a steps run ends in the same bits."""
    monkeypatch.setattr(budget, "steps_for_rows", lambda rows, train: STEPS)
    assert run(corpus, tmp_path / "run", "train.minutes=0.001") == 0
    assert final_state(tmp_path / "run") == final_state(undisturbed)


@pytest.fixture
def fresh_accelerator():
    """Accelerate allows one precision a process, unless it forgets the one before."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.usefixtures("fresh_accelerator")
def test_bf16_trains(corpus, tmp_path):
    assert run(corpus, tmp_path / "run", "train.precision=bf16", "train.steps=2") == 0


def test_gradient_checkpointing_does_not_change_the_result(undisturbed, corpus, tmp_path):
    assert run(corpus, tmp_path / "run", "train.gradient_checkpointing=true") == 0
    assert final_state(tmp_path / "run") == final_state(undisturbed)


@pytest.mark.usefixtures("fresh_accelerator")
def test_a_tracker_gets_the_metrics_and_a_missing_one_is_named(corpus, tmp_path):
    pytest.importorskip("tensorboard")
    assert run(corpus, tmp_path / "run", "run.trackers=tensorboard", "train.steps=2") == 0
    assert list((tmp_path / "run").rglob("events.out.tfevents*"))
    with pytest.raises(ValueError, match=r"'tensorbord'.*'tensorboard'"):
        run(corpus, tmp_path / "other", "run.trackers=tensorbord")


def test_a_batch_that_does_not_divide_is_refused_at_the_start(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    name, *changes = arguments(corpus, tmp_path / "run")
    with pytest.raises(ValueError, match=r"16 rows.* 3 processes"):
        check_pretraining(read_recipe(name, changes))
