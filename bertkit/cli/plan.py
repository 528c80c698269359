"""The verb plan: what a recipe would need of GPUs and cost, computed without one."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertkit.cli.answers import add_json, answer

if TYPE_CHECKING:
    from bertkit.plan.plan import Job


def plan(parser: argparse.ArgumentParser):
    parser.add_argument("recipe", metavar="RECIPE", help="name of a shipped recipe, or path of a YAML file")
    parser.add_argument("changes", nargs="*", metavar="key=value", help="changes to the recipe")
    parser.add_argument(
        "--gpu",
        default="A100-80",
        metavar="NAME",
        help="kind of GPU: A100-40, A100-80 (default), H100, H200, B200, L4, A10G, RTX4090",
    )
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="number of GPUs (1)")
    parser.add_argument(
        "--mode", choices=["ddp", "fsdp"], default="ddp", help="how several GPUs share a model (default: ddp)"
    )
    other = parser.add_argument_group("another GPU, or another price")
    other.add_argument("--memory", type=float, metavar="GIB", help="memory that a process can use")
    other.add_argument("--tflops", type=float, metavar="X", help="peak in bf16, in TFLOP/s")
    other.add_argument("--bandwidth", type=float, metavar="GB/S", help="bandwidth of its memory")
    other.add_argument("--price", type=float, metavar="X", help="price of one GPU for an hour")
    add_json(parser)
    return run_plan


def run_plan(arguments: argparse.Namespace) -> None:
    from bertkit.config.recipe import shipped_recipes
    from bertkit.plan.gpus import GPUS
    from data_pipelines.table import did_you_mean

    if arguments.gpu not in GPUS:
        hint = did_you_mean(arguments.gpu, GPUS) or f"; known are {', '.join(GPUS)}"
        other = "--memory, --tflops, --bandwidth and --price describe another"
        raise ValueError(f"--gpu: unknown GPU {arguments.gpu!r}{hint}; {other}")
    if arguments.gpus < 1:
        raise ValueError(f"--gpus must be at least 1, got {arguments.gpus}")
    given = {
        "memory": arguments.memory,
        "bf16_tflops": arguments.tflops,
        "bandwidth": arguments.bandwidth,
        "price": arguments.price,
    }
    for name, value in given.items():
        if value is not None and not value > 0:
            raise ValueError(f"--{name.removeprefix('bf16_')} must be greater than 0, got {value}")
    gpu = GPUS[arguments.gpu]._replace(**{name: value for name, value in given.items() if value is not None})
    job = read_job(arguments.recipe, arguments.changes)

    from bertkit.plan.plan import make_plan
    from bertkit.plan.words import plan_lines

    launch_file = shipped_recipes()["bert-base"].parent / "accelerate" / f"{arguments.mode}.yaml"
    made = make_plan(job, arguments.gpu, gpu, arguments.gpus, launch_file if arguments.gpus > 1 else None)
    answer(arguments.json, made.facts(), lambda: print("\n".join(plan_lines(made))))


def read_job(name: str, changes: Sequence[str] = ()) -> "Job":
    """What a recipe asks of GPUs; it need not name a corpus yet."""
    from bertkit.config.recipe import check_positions, read_sections

    sections = ("model", "tokenizer", "mask", "train", "optim", "rows")
    model, tokenizer, mask, train, optim, rows = read_sections(name, *sections, changes=changes)
    if model.init is not None:
        raise ValueError(f"recipe {name} continues an existing model; plan with the recipe that made it")
    check_positions(model, rows)
    given = tokenizer.path if rows.prepared is None else str(Path(rows.prepared) / "tokenizer")
    vocab_size = tokenizer.vocab_size if given is None else _vocab_size(given) + tokenizer.extend

    from bertkit.plan.plan import Job

    return Job(name, model.encoder_config(vocab_size, None), rows.seq_len, mask.rate, train, optim)


def _vocab_size(folder: str) -> int:
    from bertkit.hf.folder import resolve
    from data_pipelines.vocab.tokenizer import load_tokenizer

    return load_tokenizer(resolve(folder)).vocab_size
