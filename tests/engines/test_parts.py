"""Whoever runs the parts, what failed or was killed is made again, and the merged rows are those of parts by hand."""

import json
import os
import subprocess
import sys

import pytest
from engine_jobs import contents, fingerprint

from bertkit.cli import main
from bertkit.engines import ENGINES
from bertkit.engines.local import run as run_locally
from bertkit.engines.parts import TRIES, Commands, run_parts
from bertkit.engines.slurm import array_script
from bertkit.engines.slurm import run as run_on_slurm
from bertkit.run.lock import one_writer


def writing(folder, part):
    """A command that makes a part: a file."""
    return [sys.executable, "-c", f"open({str(folder / str(part))!r}, 'w')"]


def parts_of(tmp_path, engine, num_parts, command_of):
    seen = []
    done = lambda: {int(path.name) for path in tmp_path.glob("[0-9]")}  # noqa: E731
    run_parts(engine, num_parts, command_of, done, tmp_path / "logs", lambda *told: seen.append(told))
    return seen


@pytest.fixture
def engine():
    """An engine under test, by the name "toy"; the table is as before afterwards."""
    before = dict(ENGINES._rows)
    yield lambda run: ENGINES.add("toy", run)
    ENGINES._rows = before


def test_every_part_is_made_once_and_told(tmp_path):
    seen = parts_of(tmp_path, "local", 5, lambda part: writing(tmp_path, part))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "3", "4", "5", "logs"]
    assert (seen[0], seen[-1]) == ((0, 5), (5, 5))


def test_what_fails_is_tried_again_and_what_is_done_is_left_alone(tmp_path, engine):
    asked = []

    def unreliable(commands):
        """Loses all but the first part of each round."""
        asked.append(list(commands.by_part))
        first = asked[-1][0]
        run_locally(commands._replace(by_part={first: commands.by_part[first]}))

    engine(unreliable)
    (tmp_path / "2").touch()
    parts_of(tmp_path, "toy", 4, lambda part: writing(tmp_path, part))
    assert asked == [[1, 3, 4], [3, 4], [4]]


def test_a_part_that_keeps_failing_is_told_with_its_last_words(tmp_path):
    command = [sys.executable, "-c", "print('no such corpus'); raise SystemExit(2)"]
    with pytest.raises(ChildProcessError, match=r"part 2 of 2 .*no such corpus.*part-00002\.log"):
        parts_of(tmp_path, "local", 2, lambda part: command if part == 2 else writing(tmp_path, part))
    assert (tmp_path / "1").is_file()


def test_parts_that_are_killed_are_tried_again(tmp_path):
    """Each dies by a signal at its first try."""
    die = "import os, pathlib, signal; path = pathlib.Path({path!r}); first = not path.with_suffix('.tried').exists(); "
    die += "path.with_suffix('.tried').touch(); first and os.kill(os.getpid(), signal.SIGKILL); path.touch()"
    command_of = lambda part: [sys.executable, "-c", die.format(path=str(tmp_path / str(part)))]  # noqa: E731
    parts_of(tmp_path, "local", 3, command_of)
    assert all((tmp_path / str(part)).is_file() for part in (1, 2, 3))
    assert TRIES >= 2


def test_an_interrupt_leaves_no_process_behind(tmp_path):
    sleeping = [sys.executable, "-c", f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"]  # fmt: skip # noqa: E501

    def watch():
        if (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_locally(Commands({1: sleeping}, tmp_path, watch))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_an_unknown_engine_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(ValueError, match="slurm"):
        parts_of(tmp_path, "slrum", 1, lambda part: [])


def test_the_script_of_an_array_runs_each_part_by_its_number(tmp_path):
    script = array_script(Commands({3: ["echo", "a b"], 7: ["true"]}, tmp_path, lambda: None))
    assert "3) exec echo 'a b'" in script
    assert "7) exec true" in script


def test_rows_made_on_this_machine_are_those_made_by_hand(home, tmp_path, capsys):
    folder, given = home
    command = ["prepare", *given, "--out", str(tmp_path / "rows"), "--engine", "local", "--parts", "2"]
    assert main(command) == 0
    assert fingerprint(tmp_path / "rows") == fingerprint(folder / "rows")
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] is False


def test_rows_made_on_a_cluster_that_loses_a_job_are_those_made_by_hand(home, tmp_path, cluster):
    folder, given = home
    assert main(["prepare", *given, "--out", str(tmp_path / "rows"), "--engine", "slurm", "--parts", "2"]) == 0
    assert fingerprint(tmp_path / "rows") == fingerprint(folder / "rows")
    assert cluster.read_text().split() == ["1,2", "1"]


def test_text_cleaned_on_a_cluster_that_loses_a_job_is_that_of_this_machine(home, tmp_path, cluster):
    given = ["clean", "--corpus", str(home[0] / "my.txt"), "--min-words", "5", "--out"]
    assert main([*given, str(tmp_path / "here")]) == 0
    assert main([*given, str(tmp_path / "there"), "--engine", "slurm", "--parts", "2"]) == 0
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert cluster.read_text().split() == ["1,2", "1", "1,2"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--engine", "local"], "--parts"),
        (["--parts", "2"], "--engine"),
        (["--engine", "local", "--parts", "0"], "--parts"),
        (["--engine", "locl", "--parts", "2"], "local"),
        (["--engine", "local", "--parts", "2", "--part", "1/2"], "--part"),
        (["--engine", "local", "--parts", "2", "--seq-len", "32"], "seq_len"),
        (["--engine", "local", "--parts", "3"], "choose another folder"),
    ],
)
def test_wrong_arguments_are_told_before_anything_runs(home, tmp_path, capsys, arguments, named):
    given, out = home[1], tmp_path / "rows"
    assert main(["prepare", *given, "--out", str(out), "--part", "1/2"]) == 0
    capsys.readouterr()
    assert main(["prepare", *given, "--out", str(out), *arguments]) == 2
    assert named in capsys.readouterr().err
    assert not (out / "logs").exists()


def test_a_script_that_slurm_refuses_is_told_at_once_with_its_words(home, tmp_path, cluster, capsys):
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text(
        '#!/bin/bash\necho tried >> "$SUBMITTED"; echo "sbatch: error: invalid partition: nowhere" >&2; exit 1\n'
    )
    arguments = ["--out", str(tmp_path / "rows"), "--engine", "slurm", "--parts", "2"]
    assert main(["prepare", *home[1], *arguments]) != 0
    assert "invalid partition: nowhere" in capsys.readouterr().err
    assert cluster.read_text().split() == ["tried"]


def test_an_interrupt_cancels_the_jobs_of_slurm(tmp_path, cluster):
    """They outlive the sbatch that waits for them."""
    sbatch, scancel = tmp_path / "bin" / "sbatch", tmp_path / "bin" / "scancel"
    sbatch.write_text('#!/bin/bash\necho "$@" >> "$SUBMITTED"; exec sleep 600\n')
    scancel.write_text('#!/bin/bash\necho "$@" >> "$SUBMITTED"\n')
    scancel.chmod(sbatch.stat().st_mode)

    def watch():
        if cluster.is_file() and cluster.read_text().endswith("\n"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_on_slurm(Commands({1: ["true"]}, tmp_path, watch))
    submitted, cancelled = cluster.read_text().splitlines()
    name = next(word for word in submitted.split() if word.startswith("--job-name="))
    assert cancelled == name.replace("--job-name=", "--name=")


def test_of_two_engines_for_one_folder_the_second_ends(home, tmp_path, capsys):
    given = ["--out", str(tmp_path / "new"), "--engine", "local", "--parts", "2"]
    for verb in (["prepare", *home[1]], ["clean", "--corpus", str(home[0] / "my.txt")]):
        with one_writer(tmp_path / "new"):
            assert in_another_process([*verb, *given]) == 75
        assert not (tmp_path / "new").exists()


def in_another_process(words):
    return subprocess.run([sys.executable, "-m", "bertkit", *words], check=False).returncode


def test_slurm_that_is_not_there_is_told(home, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    arguments = ["--out", str(tmp_path / "rows"), "--engine", "slurm", "--parts", "2"]
    assert main(["prepare", *home[1], *arguments]) == 2
    assert "sbatch" in capsys.readouterr().err
