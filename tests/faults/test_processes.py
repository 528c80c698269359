"""How many processes train, and how many read ahead, changes nothing; two runs never share a folder."""

import os
import signal
import socket
from functools import partial

import pytest
import safetensors.torch
import torch
from runs import EVERY, STEPS, dawdle, final_state, kill_before_step, newest, poison_steps, reached, start, wait_until
from telling import tells

from bertkit.cli import main
from bertkit.run.checkpoint import checkpoints


def test_one_two_one_processes_end_in_the_same_bits(home, expected, at_step_10, tried):
    """Row 9: with two micro-batches a step, of which each of two processes computes one."""
    run = home.start(at_step_10, ranks=2, before=dawdle)
    wait_until(lambda: reached(at_step_10) >= 5 * EVERY, run)
    run.kill()
    assert 2 * EVERY < newest(at_step_10) < STEPS
    home.finish(at_step_10)
    assert final_state(at_step_10) == expected
    tried()


def test_with_more_micro_batches_two_processes_differ_by_rounding_only(home, tmp_path, tried):
    """Row 9: the order in which gradients are added is another one then."""
    weights = []
    for ranks in (1, 2):
        folder = tmp_path / str(ranks)
        home.finish(folder, "train.micro_batch=2", f"train.steps={2 * EVERY}", ranks=ranks)
        tensors = safetensors.torch.load_file(checkpoints(folder / "checkpoints")[-1][1] / "model.safetensors")
        weights.append(torch.cat([tensor.flatten() for _, tensor in sorted(tensors.items())]))
    assert (weights[0] - weights[1]).norm() / weights[0].norm() <= 1e-5
    tried()


def test_a_batch_that_does_not_divide_is_refused_at_the_start(home, tmp_path, tried):
    """Row 9: by every process, before any of them waits for another."""
    run = home.start(tmp_path / "run", ranks=3)
    assert run.wait() == [2, 2, 2], run.said()
    assert run.said().count("a global batch of 8 rows does not divide over 3 processes") == 3
    assert not (tmp_path / "run").exists()
    tried()


@pytest.mark.parametrize("poison", ["loss", "gradient"])
def test_what_is_not_finite_on_one_rank_is_skipped_by_all(home, tmp_path, tried, poison):
    """Row 11: two processes end in the bits of one, and write down which steps they skipped."""
    ends = []
    for ranks in (1, 2):
        folder = tmp_path / f"{ranks}"
        run = home.start(folder, f"train.steps={2 * EVERY}", ranks=ranks, before=partial(poison_steps, poison, (3, 7)))
        assert run.wait() == [0] * ranks, run.said()
        ends.append(final_state(folder, 2 * EVERY))
        metrics = (folder / "metrics.jsonl").read_text()
        assert metrics.count('"skipped": 1') == 2
        tried()
    assert ends[0] == ends[1]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_loss_that_stays_infinite_ends_the_run(home, tmp_path, tried, ranks):
    """Row 11: on every rank, with the remedy, after as many steps as the recipe says."""
    steps = tuple(range(4, STEPS))
    run = home.start(
        tmp_path / "run", "train.max_bad_steps=3", ranks=ranks, before=partial(poison_steps, "loss", steps)
    )
    assert run.wait() == [1] * ranks, run.said()
    assert run.said().count("loss or gradients were not finite in 3 steps in a row, up to 7; lower optim.lr") == ranks
    assert "Traceback" not in run.said()
    tried()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_loader_workers_changes_nothing(home, expected, tmp_path, tried, workers):
    """Row 12: the run that nothing disturbed had none; this one is killed and changes its mind."""
    run = home.start(tmp_path / "run", f"run.num_workers={workers}", before=partial(kill_before_step, 12))
    assert run.wait() == [-signal.SIGKILL]
    home.finish(tmp_path / "run", f"run.num_workers={3 - workers}")
    assert final_state(tmp_path / "run") == expected
    tried()


def test_a_second_run_in_a_folder_ends_at_once_and_a_killed_one_holds_nothing(home, expected, tmp_path, tried, within):
    """Row 19: the holder is named; what it started before it was killed does not hold the folder either."""
    folder = tmp_path / "run"
    first = home.start(folder, "run.num_workers=1", before=dawdle)
    wait_until(lambda: reached(folder) > EVERY, first)
    first.signal(signal.SIGSTOP)
    second = home.start(folder)
    assert second.wait(within(5)) == [os.EX_TEMPFAIL], second.said()
    assert f"{folder} is in use by process {first.ranks[0].pid} on" in second.said()
    assert "Traceback" not in second.said()
    tried()
    first.kill()
    home.finish(folder)
    assert final_state(folder) == expected
    tried()


def test_ranks_whose_port_is_taken_are_told_to_try_again(home, tmp_path, within):
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        run = start(home.argv(tmp_path / "run"), ranks=2, log=tmp_path / "log", before=partial(meet_at, port))
        assert run.wait(within(60)) == [os.EX_TEMPFAIL, 1], run.said()
    assert f"port {port} (MASTER_PORT) is in use" in run.said()
    assert "rank 0 did not appear" in run.said()


@pytest.mark.parametrize(("rank", "named"), [("0", "MASTER_ADDR"), ("1", "MASTER_ADDR"), (None, "RANK")])
def test_what_is_left_of_a_launch_is_told(home, tmp_path, monkeypatch, capsys, rank, named):
    """Row 28: variables of a launcher without a launcher, as in a shell on a node of a cluster."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    assert main(home.argv(tmp_path / "run")) == 2
    said = capsys.readouterr().err
    assert tells(said, f"WORLD_SIZE=2 … {named} is … torchrun … unset")
    assert "\n" not in said.strip()


def meet_at(port: int) -> None:
    from bertkit.run import heartbeat

    os.environ["MASTER_PORT"] = str(port)
    heartbeat.SILENT_BEATS, heartbeat._ANSWER_SECONDS = 2, 2.0
