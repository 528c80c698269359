"""Runs the parts of a job as an array of Slurm jobs: a script is written and submitted, and its end awaited."""

import shlex
import shutil
import subprocess
import time
import uuid

from bertkit.engines.parts import Commands

_POLL_SECONDS = 1.0
SCRIPT, TOLD = "array.sh", "sbatch.log"
"""In the folder of the logs: what is submitted, and what sbatch says to it."""
_SUBMITTED = "Submitted batch job"


def run(commands: Commands) -> None:
    """What the jobs may use, such as a partition or an account, is set by Slurm's own variables (SBATCH_PARTITION,
    SBATCH_ACCOUNT, SBATCH_TIMELIMIT). The folder of the parts must be on a disk that all nodes share."""
    submit = shutil.which("sbatch")
    if submit is None:
        raise ValueError("--engine slurm needs the command sbatch; run it where Slurm is installed, or choose another")
    script, told, name = commands.logs / SCRIPT, commands.logs / TOLD, f"bertkit-{uuid.uuid4().hex[:12]}"
    script.write_text(array_script(commands), encoding="utf-8")
    array = ",".join(map(str, commands.by_part))
    words = [submit, "--wait", f"--job-name={name}", f"--array={array}", str(script)]
    with open(told, "wb") as file:
        job = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    try:
        while job.poll() is None:
            time.sleep(_POLL_SECONDS)
            commands.watch()
    except BaseException:
        job.terminate()
        job.wait()
        _cancel(name)
        raise
    if job.returncode and _SUBMITTED not in (answer := told.read_text(encoding="utf-8", errors="replace")):
        raise ChildProcessError(f"sbatch refused {script}: {answer.strip() or f'exit code {job.returncode}'}")


def _cancel(name: str) -> None:
    """Jobs outlive the sbatch that waits for them. Found by name: sbatch prints their number only at its end."""
    if (cancel := shutil.which("scancel")) is not None:
        subprocess.run([cancel, f"--name={name}"], stdin=subprocess.DEVNULL, check=False)


def array_script(commands: Commands) -> str:
    """One job runs the command of the part whose number it has."""
    cases = "\n".join(
        f"  {part}) exec {shlex.join(command)} > {shlex.quote(str(commands.log_of(part)))} 2>&1 ;;"
        for part, command in commands.by_part.items()
    )
    return (
        "#!/bin/bash\n"
        "#SBATCH --output=/dev/null\n"
        'export RAYON_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"\n'
        f'case "$SLURM_ARRAY_TASK_ID" in\n{cases}\nesac\n'
    )
