"""A run that is still learning at its full rate is branched: a checkpoint enters, a run that ends leaves.

With warmup, stable and decay, what comes before the decay does not depend on where that begins. So one long run serves
every length: a branch is the run that would have been started with its number of steps, from the checkpoint on, and
ends in the same bits.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from bertkit.config.recipe import Recipe, read_recipe, to_yaml
from bertkit.pretrain.budget import read_lengths
from bertkit.pretrain.objectives import SHARES_OF_STEPS
from bertkit.run.checkpoint import checkpoints, load_checkpoint
from bertkit.run.folder import CHECKPOINTS, FACTS, METRICS, RECIPE, SAVED, read_facts, read_metrics
from bertkit.run.schedule import count_warmup, lr_share
from data_pipelines import durable

ORIGIN = "annealed_from"
"""In run.json: the run, and the step at which it was branched."""


def branch(
    run: Path,
    out: Path | None = None,
    *,
    step: int | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    changes: Sequence[str] = (),
) -> Recipe:
    """The recipe of a run that continues `run` from its checkpoint of `step`, the newest at the full rate if none is
    given, and decays in `steps` steps, or as many as take `minutes`. Its folder holds the checkpoint; a folder
    that was branched before is left as it is, to be resumed."""
    recipe, lengths = _check_run(run)
    if out is None or not (out / FACTS).is_file():
        chosen = _choose(run, recipe, lengths, step)
        out = out or run.with_name(f"{run.name}-annealed-{chosen}")
    if (out / FACTS).is_file():
        return _branched_before(out, run, step)
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"--out {out} holds other files; choose an empty folder")
    if steps is None:
        assert minutes is not None
        steps = max(1, round(minutes * 60 / _seconds_per_step(run, chosen)))
    total = chosen + steps
    own = _as_many_steps(recipe, lengths[0][1], total)
    decay = [f"train.steps={total}", f"optim.decay={steps / total!r}", f"run.dir={out}"]
    # Where the run is copied to belongs to the run.
    annealed = read_recipe(str(run / RECIPE), ["run.mirror=none", *own, *changes, *decay])
    with durable.replacing_folder(out) as unfinished:
        _fill(unfinished, run, chosen, annealed, [*(entry for entry in lengths if entry[0] < chosen), (chosen, total)])
    return annealed


def _check_run(run: Path) -> tuple[Recipe, list[tuple[int, int]]]:
    """The recipe of a run that can be branched, and the numbers of steps that it was planned with."""
    if not (run / RECIPE).is_file() or read_facts(run) is None:
        raise ValueError(f"{run} is not a pretraining run: it has no {RECIPE} with a {FACTS}")
    recipe = read_recipe(str(run / RECIPE))
    if recipe.optim.schedule != "wsd":
        raise ValueError(
            f"{run} was trained with optim.schedule={recipe.optim.schedule}, whose rate falls from the start; "
            "train with optim.schedule=wsd, whose rate is constant until its decay"
        )
    if recipe.mask.final_rate is not None:
        raise ValueError(f"{run} was trained with mask.final_rate, which depends on the length of a run; leave it out")
    return recipe, read_lengths(run)


def _choose(run: Path, recipe: Recipe, lengths: list[tuple[int, int]], wanted: int | None) -> int:
    """The step of the checkpoint to branch from: one whose every step so far had the full rate, after the warmup."""
    kept = [step for step, _ in checkpoints(run / CHECKPOINTS)]
    if wanted is not None and wanted not in kept:
        raise ValueError(f"--from {wanted}: {run} has no such checkpoint; it has {', '.join(map(str, kept)) or 'none'}")

    def has_full_rate(step: int) -> bool:
        total = next(total for first, total in reversed(lengths) if first < max(step, 1))
        return step > 0 and lr_share(step - 1, total, recipe.optim) == 1.0

    usable = [step for step in kept if has_full_rate(step) and wanted in (None, step)]
    if not usable:
        raise ValueError(
            f"{run} has no checkpoint with the full learning rate{'' if wanted is None else f' at step {wanted}'} (it "
            f"has {', '.join(map(str, kept)) or 'none'}); train with optim.decay=0, or keep more with run.keep"
        )
    return usable[-1]


def _branched_before(out: Path, run: Path, step: int | None) -> Recipe:
    origin = (read_facts(out) or {}).get(ORIGIN, {})
    if origin.get("run") != run.name or step not in (None, origin["step"]):
        raise ValueError(f"--out {out} holds another run; choose another folder")
    return read_recipe(str(out / RECIPE))


def _seconds_per_step(run: Path, last_step: int) -> float:
    """What the run itself took, after its first steps."""
    trained = [record for _, record in read_metrics(run) if record.get("kind") == "train"]
    taken = [(record["step"], record["seconds"]) for record in trained if record["step"] <= last_step]
    if not taken:
        raise ValueError(f"{run / METRICS} has no step up to {last_step}; give --steps")
    (first, before), (last, after) = taken[len(taken) // 2 - (len(taken) > 1)], taken[-1]
    return (after - before) / (last - first) if last > first else after / last


def _as_many_steps(recipe: Recipe, planned: int, total: int) -> list[str]:
    """What a recipe says as a share of its steps, for another number of them: as many steps as it had planned."""
    same = [f"optim.warmup_steps={count_warmup(planned, recipe.optim)}"]
    if recipe.train.first_batch is not None:
        same.append(f"train.batch_warmup={min(1.0, recipe.train.batch_warmup * planned / total)!r}")
    for key in SHARES_OF_STEPS.get(recipe.train.objective, ()):
        same.append(f"train.{key}={min(1.0, round(getattr(recipe.train, key) * planned) / total)!r}")
    return same


def _fill(folder: Path, run: Path, step: int, recipe: Recipe, lengths: list[tuple[int, int]]) -> None:
    """What a run needs to resume from this step."""
    name = f"step-{step:08d}"
    shutil.copytree(run / CHECKPOINTS / name, folder / CHECKPOINTS / name)
    load_checkpoint(folder / CHECKPOINTS / name)  # refuses what is damaged, or was being removed
    durable.write_file(folder / SAVED, b"")
    if (run / METRICS).is_file():
        shutil.copyfile(run / METRICS, folder / METRICS)
    origin = {ORIGIN: {"run": run.name, "step": step}, "total_steps": lengths[-1][1], "lengths": lengths}
    durable.write_file(folder / FACTS, durable.json_bytes((read_facts(run) or {}) | origin))
    durable.write_file(folder / RECIPE, to_yaml(recipe).encode())
