"""What this machine does with each recipe.

Each recipe is measured in its own process: a step of one micro-batch, the optimizer's update alone, the loading
of a micro-batch. From the three follow the tokens a second of its whole step. Where a micro-batch would take minutes,
as those of recipes for GPUs do on a CPU, fewer rows are measured, and the table says so.
"""

import json
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch

from bertkit.bench.load import prepared
from bertkit.bench.measure import Row, Told, announce, apart, interleaved, most_memory
from bertkit.config.recipe import Recipe, read_recipe, recipe_values, shipped_recipes
from bertkit.cpu import make_ready
from bertkit.model import MaskedLM, build_encoder
from bertkit.model.config import EncoderConfig
from bertkit.model.flops import forward_flops
from bertkit.run.loop import StepRules, run_steps
from bertkit.run.optim import build_optimizers
from bertkit.run.peak import count_flops, measure_peak
from bertkit.run.ranks import start_accelerator, wrap
from bertkit.run.state import LoopState
from data_pipelines.masks.batch import PackedBatch
from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.masks.loader import load_steps
from data_pipelines.masks.plan import Plan
from data_pipelines.rows.shards import open_rows
from data_pipelines.vocab.tokenizer import load_tokenizer

_BATCH_SECONDS = 4.0
"""A micro-batch that would take longer is measured with fewer rows."""
_NUM_CHARS = 1_500_000
_ENDLESS = 10**9


def bench_machine(against: str | None, quick: bool, recipes: list[str] | None = None) -> Iterator[Told]:
    """One row for each recipe; the notes say what was left out."""
    yield (
        f"{_device()}. Whole steps, with optimizer and loading, on generated text; input: share of the time that "
        "waits for batches; memory: the peak above the imports."
    )
    yield "Where rows at once are named, the recipe's micro_batch was too large to measure; it needs more memory."
    yield "How long a run takes on GPUs, and what it costs, is computed by `bertkit plan`."
    left_out = []
    with tempfile.TemporaryDirectory() as name:
        for names in alike(recipes or own_recipes()):
            recipe, title = _read(names[0]), ", ".join(names)
            if quick and _is_large(recipe):
                left_out.append(title)
                continue
            announce(title)
            rows_folder = _prepare_rows(Path(name), recipe.data.seq_len)
            told = apart("bertkit.bench.machine", names[0], str(rows_folder), "quick" if quick else "")
            seen = Measured(**json.loads(told))
            yield Row(
                workload=title if seen.rows == recipe.train.micro_batch else f"{title} ({seen.rows} rows at once)",
                ours=seen.tokens_per_second,
                unit="tokens/s",
                share_of_peak=seen.share_of_peak,
                peak_memory_mb=seen.peak_memory_mb,
                input_stall=seen.input_stall,
            )
    if left_out:
        yield f"Left out by --quick, because a step takes long here: {', '.join(left_out)}."


def own_recipes() -> list[str]:
    """The shipped recipes that describe a model; the others continue an existing one."""
    values = {name: recipe_values(name, [], "pretrain") for name in shipped_recipes()}
    return [name for name, value in values.items() if value["model"]["architecture"] != "imported"]


def alike(names: list[str]) -> list[list[str]]:
    """The names in groups that cost the same."""
    groups = defaultdict(list)
    for name in names:
        recipe = _read(name)
        train = replace(recipe.train, steps=1, tokens=None, minutes=None)
        groups[recipe.model, recipe.tokenizer.vocab_size, recipe.data.seq_len, train, recipe.optim.name].append(name)
    return list(groups.values())


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What this machine does with one recipe."""

    rows: int
    """Of the micro-batch that was measured."""
    tokens_per_second: float
    share_of_peak: float
    peak_memory_mb: float
    input_stall: float


def measure_recipe(recipe: Recipe, rows_folder: Path, quick: bool) -> Measured:
    """Time steps of one micro-batch, and their parts, in this process, which should do nothing else."""
    make_ready()
    before, rounds = most_memory(), 3 if quick else 7
    precision = recipe.train.precision if torch.cuda.is_available() else "fp32"
    accelerator = start_accelerator(rows_folder, precision, [])
    bare = MaskedLM(build_encoder(_config(recipe)))
    flops, peak = count_flops(bare), measure_peak(accelerator.device, precision)
    trainable = wrap(accelerator, bare, partial(build_optimizers, config=recipe.optim))
    num_rows = _affordable_rows(recipe, flops, peak, _BATCH_SECONDS / 8 if quick else _BATCH_SECONDS)
    batches_of_steps = _batches(recipe, rows_folder, num_rows)

    state, ends = LoopState(), [0.0]
    rules = StepRules(total_steps=_ENDLESS, seed=0, optim=recipe.optim, train=recipe.train)
    # Loaded before: what loading takes is timed by itself.
    for _ in run_steps(trainable, [next(batches_of_steps) for _ in range(rounds + 1)], state, rules):
        ends.append(state.seconds)
    alone = statistics.median(end - start for start, end in pairwise(ends[1:]))  # the first step warms up

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(trainable.model.parameters(), recipe.train.clip_norm or 1e9)
        for optimizer in trainable.optimizers:
            optimizer.step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    for param in trainable.model.parameters():
        param.grad = torch.zeros_like(param)
    timings = interleaved({"update": update, "load": lambda: next(batches_of_steps)}, rounds)
    # Of a whole step of the recipe, the update takes its share only.
    step = max(0.0, alone - timings["update"].median) + timings["update"].median * num_rows / recipe.train.global_batch
    num_tokens = state.tokens / state.step
    speed = num_tokens / (step + waiting(timings["load"].median, step, recipe.run.num_workers))
    needed = flops(1000, round(1000 * recipe.mask.rate)) / 1000
    memory = torch.cuda.max_memory_allocated() / 1e6 if torch.cuda.is_available() else most_memory() - before
    return Measured(
        rows=num_rows,
        tokens_per_second=speed,
        share_of_peak=needed * speed / peak,
        peak_memory_mb=memory,
        input_stall=max(0.0, 1 - speed * step / num_tokens),
    )


def _affordable_rows(recipe: Recipe, flops: Callable[[int, int], float], peak: float, seconds: float) -> int:
    """Rows of a micro-batch that takes no longer than this at half of the peak; at most the recipe's."""
    row_seconds = flops(recipe.data.seq_len, int(recipe.mask.rate * recipe.data.seq_len)) / (peak / 2)
    return max(1, min(recipe.train.micro_batch, int(seconds / row_seconds)))


def _batches(recipe: Recipe, rows_folder: Path, num_rows: int) -> Iterator[tuple[int, list[PackedBatch]]]:
    """Endless steps of one micro-batch."""
    rows, tokenizer = open_rows(rows_folder / "rows"), load_tokenizer(rows_folder / "tokenizer")
    collator = MaskingCollator.from_config(tokenizer, recipe.mask, seed=0, total_steps=_ENDLESS, layout="packed")
    return load_steps(rows, Plan(len(rows), num_rows, seed=0), collator, range(_ENDLESS), micro_batch=num_rows)


def waiting(load_seconds: float, step_seconds: float, num_workers: int) -> float:
    """Seconds that a step waits for its batch: all of the loading without workers, with them what they cannot hide."""
    return max(load_seconds / num_workers - step_seconds, 0.0) if num_workers else load_seconds


def _read(name: str) -> Recipe:
    if recipe_values(name, [], "pretrain").get("model", {}).get("architecture") == "imported":
        raise ValueError(f"recipe {name} continues an existing model, so its speed depends on that model")
    return read_recipe(name, ["data.corpus=generated"])


def _config(recipe: Recipe) -> EncoderConfig:
    return recipe.model.encoder_config(recipe.tokenizer.vocab_size, pad_token_id=None)


def _is_large(recipe: Recipe) -> bool:
    """Whether a single row takes about a second on a CPU."""
    return not torch.cuda.is_available() and forward_flops(_config(recipe), 0) * recipe.data.seq_len > 3e10


def _prepare_rows(folder: Path, seq_len: int) -> Path:
    """Rows of this length, made once. Their tokenizer is a small one, whatever the recipe's: looking up an id costs the
    same."""
    rows_folder = folder / str(seq_len)
    if not rows_folder.is_dir():
        rows_folder.mkdir()
        prepared(rows_folder, _NUM_CHARS, seq_len, vocab_size=8192)
    return rows_folder


def _device() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"A CPU with {torch.get_num_threads()} threads, in fp32"


if __name__ == "__main__":
    print(json.dumps(asdict(measure_recipe(_read(sys.argv[1]), Path(sys.argv[2]), bool(sys.argv[3])))))
