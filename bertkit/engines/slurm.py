"""Runs the parts of a job as an array of Slurm jobs: a script is written and submitted, and its end awaited."""

import shlex
import shutil
import subprocess
import time

from bertkit.engines.parts import Commands

_POLL_SECONDS = 1.0
SCRIPT = "array.sh"


def run(commands: Commands) -> None:
    """What the jobs may use, such as a partition or an account, is set by Slurm's own variables (SBATCH_PARTITION,
    SBATCH_ACCOUNT, SBATCH_TIMELIMIT). The folder of the parts must lie on a disk that all nodes share."""
    submit = shutil.which("sbatch")
    if submit is None:
        raise ValueError("--engine slurm needs the command sbatch; run it where Slurm is installed, or choose another")
    script = commands.logs / SCRIPT
    script.write_text(array_script(commands), encoding="utf-8")
    array = ",".join(map(str, commands.by_part))
    job = subprocess.Popen([submit, "--wait", f"--array={array}", str(script)], stdin=subprocess.DEVNULL)
    try:
        while job.poll() is None:
            time.sleep(_POLL_SECONDS)
            commands.watch()
    except BaseException:
        # sbatch that waits takes its jobs with it only if it is asked to.
        job.terminate()
        job.wait()
        raise


def array_script(commands: Commands) -> str:
    """One job runs the command of the part whose number it has."""
    cases = "\n".join(
        f"  {part}) exec {shlex.join(command)} > {shlex.quote(str(commands.log_of(part)))} 2>&1 ;;"
        for part, command in commands.by_part.items()
    )
    return (
        "#!/bin/bash\n"
        "#SBATCH --job-name=bertkit\n"
        "#SBATCH --output=/dev/null\n"
        'export RAYON_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"\n'
        f'case "$SLURM_ARRAY_TASK_ID" in\n{cases}\nesac\n'
    )
