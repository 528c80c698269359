"""Memory, speed, hours and cost of a recipe on GPUs, found on fake tensors in under a minute."""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.config.sections import OptimConfig, TrainConfig
from bertkit.model import MaskedLM
from bertkit.model.config import EncoderConfig
from bertkit.model.initialization import outline_encoder
from bertkit.plan.fusion import fused
from bertkit.plan.gpus import FRAGMENTED, HIDDEN_SHARE, LIKELY_SHARE, RESERVED_GIB, Gpu, assumptions
from bertkit.plan.rehearsal import NUM_MICRO_BATCHES, Rehearsal, Setting, Shape, even_shape, rehearse
from bertkit.plan.roofline import bytes_sent, host_seconds, seconds_by_kind, seconds_of, seconds_sent

_GIB = 2**30


class Job(NamedTuple):
    """What a plan needs of a recipe."""

    recipe: str
    """Its name."""
    encoder: EncoderConfig
    seq_len: int
    mask_rate: float
    train: TrainConfig
    optim: OptimConfig


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run of a recipe needs and does."""

    recipe: str
    gpu: str
    gpus: int
    mode: str
    """one, ddp or fsdp."""
    parameters: int
    micro_batch: int
    """Rows that a GPU computes at once."""
    micro_batches_per_step: int
    peak_gib: float
    """On each GPU, of all tensors; the four below are its parts."""
    weights_gib: float
    gradients_gib: float
    moments_gib: float
    activations_gib: float
    fits: bool
    largest_micro_batch: int
    mflop_per_token: float
    kilobytes_per_token: float
    """Read from and written to the memory of a GPU."""
    kernels_per_step: int
    host_waits_per_step: int
    mixed_products: int
    bytes_sent_per_step: int
    """By each GPU."""
    milliseconds_per_step: dict[str, float]
    """By kind of work; host where it keeps the GPU waiting."""
    tokens_per_second: float
    """Of all GPUs, at best."""
    minutes: float | None
    """Of training, where the recipe asks for a time and not for tokens or steps."""
    hours: float
    gpu_hours: float
    cost: float
    advice: list[str]
    assumptions: dict[str, Any]

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def make_plan(job: Job, gpu_name: str, gpu: Gpu, num_gpus: int, launch_file: Path | None) -> Plan:
    """Rehearse a step of the job, and what it would need with more rows at once."""
    train = job.train
    rows_per_gpu = math.ceil(train.global_batch / num_gpus)
    num_rows = min(train.micro_batch, rows_per_gpu)
    num_micro_batches = math.ceil(rows_per_gpu / num_rows)
    setting = Setting(num_gpus, launch_file, train.precision)
    step = _rehearsed(job, num_rows, setting)
    if train.compile:
        step = step._replace(micro_batch=fused(step.micro_batch))
    shape = _shape(job, num_rows)

    room = (gpu.memory - RESERVED_GIB) * _GIB / FRAGMENTED
    kinds, sent = _milliseconds(step, gpu, num_gpus, num_micro_batches)
    tokens_per_step = train.global_batch * job.seq_len
    speed = tokens_per_step / (sum(kinds.values()) / 1e3)
    hours = _hours(job, tokens_per_step, speed)
    plan = Plan(
        recipe=job.recipe,
        gpu=gpu_name,
        gpus=num_gpus,
        mode="one" if num_gpus == 1 else "fsdp" if launch_file and "fsdp" in launch_file.name else "ddp",
        parameters=step.num_parameters,
        micro_batch=num_rows,
        micro_batches_per_step=num_micro_batches,
        peak_gib=step.peak / _GIB,
        weights_gib=step.weights / _GIB,
        gradients_gib=step.gradients / _GIB,
        moments_gib=step.moments / _GIB,
        activations_gib=step.activations / _GIB,
        fits=step.peak <= room,
        largest_micro_batch=_largest_micro_batch(job, num_rows, step.peak, room, setting),
        mflop_per_token=sum(kernel.num_operations for kernel in step.micro_batch) / shape.num_tokens / 1e6,
        kilobytes_per_token=sum(kernel.num_bytes for kernel in step.micro_batch) / shape.num_tokens / 1e3,
        kernels_per_step=num_micro_batches * len(step.micro_batch) + len(step.update),
        host_waits_per_step=sum(step.watch.waits.values()),
        mixed_products=len(step.watch.mixed_products),
        bytes_sent_per_step=sent,
        milliseconds_per_step=kinds,
        tokens_per_second=speed,
        minutes=train.minutes,
        hours=hours,
        gpu_hours=hours * num_gpus,
        cost=hours * num_gpus * gpu.price,
        advice=[],
        assumptions=assumptions(gpu, train.compile) | _left_out(train),
    )
    return replace(plan, advice=_advice(plan, job, setting, room, step, gpu))


def _left_out(train: TrainConfig) -> dict[str, str]:
    """What the recipe asks for and the plan does not follow."""
    told = {}
    if train.objective != "masked-lm":
        told["train.objective"] = f"masked-lm, though {train.objective} is asked for"
    if train.first_batch not in (None, train.global_batch):
        told["train.first_batch"] = f"every step has {train.global_batch} rows, though the first have fewer"
    return told


def _shape(job: Job, num_rows: int) -> Shape:
    return even_shape(job.seq_len, num_rows, job.mask_rate)


def _rehearsed(job: Job, num_rows: int, setting: Setting, recomputed: bool | None = None) -> Rehearsal:
    model = MaskedLM(outline_encoder(job.encoder))
    model.encoder.gradient_checkpointing = job.train.gradient_checkpointing if recomputed is None else recomputed
    return rehearse(model, job.optim, _shape(job, num_rows), setting)


def _largest_micro_batch(job: Job, num_rows: int, peak: int, room: float, setting: Setting) -> int:
    """By how memory grows with twice the rows; where so few need no more than the optimizer, with many more."""
    more = 2 * num_rows
    while (peak_of_more := _rehearsed(job, more, setting).peak) == peak:
        more *= 8
    return max(0, int(num_rows + (room - peak) * (more - num_rows) / (peak_of_more - peak)))


def _milliseconds(step: Rehearsal, gpu: Gpu, num_gpus: int, num_micro_batches: int) -> tuple[dict[str, float], int]:
    """Of a step by kind of work, and the bytes that it sends."""
    kinds = {
        kind: 1e3 * num_micro_batches * seconds for kind, seconds in seconds_by_kind(step.micro_batch, gpu).items()
    }
    late = max(0.0, host_seconds(step.micro_batch) - sum(seconds_by_kind(step.micro_batch, gpu).values()))
    each = bytes_sent(step.messages, num_gpus)
    last = bytes_sent(step.watch.messages, num_gpus) - NUM_MICRO_BATCHES * each
    hidden = HIDDEN_SHARE * seconds_of(step.micro_batch, gpu)
    seconds_each, seconds_last = seconds_sent(each, gpu), seconds_sent(each + last, gpu)
    waiting = (num_micro_batches - 1) * max(0.0, seconds_each - hidden) + max(0.0, seconds_last - hidden)
    kinds |= {
        "host": 1e3 * num_micro_batches * late,
        "update": 1e3 * seconds_of(step.update, gpu),
        "messages": 1e3 * waiting,
    }
    return kinds, num_micro_batches * each + last


def _hours(job: Job, tokens_per_step: int, speed: float) -> float:
    train = job.train
    if train.minutes is not None:
        return train.minutes / 60
    tokens = train.tokens if train.tokens is not None else (train.steps or 0) * tokens_per_step
    return tokens / speed / 3600


def _advice(plan: Plan, job: Job, setting: Setting, room: float, step: Rehearsal, gpu: Gpu) -> list[str]:
    """What would help, each with the key that does it."""
    advice = []
    total, kinds = sum(plan.milliseconds_per_step.values()), plan.milliseconds_per_step
    if not plan.fits and plan.largest_micro_batch:
        advice.append(f"train.micro_batch={plan.largest_micro_batch} fits; the result is the same but for rounding")
    if not plan.fits and not job.train.gradient_checkpointing:
        peak = _rehearsed(job, plan.micro_batch, setting, recomputed=True).peak
        fits = "fits" if peak <= room else "still does not fit"
        advice.append(f"train.gradient_checkpointing=true {fits}: {peak / _GIB:.1f} GiB, about a third more time")
    fixed = plan.weights_gib + plan.gradients_gib + plan.moments_gib
    if not plan.fits and plan.mode == "ddp" and fixed > 0.2 * plan.peak_gib:
        advice.append(f"accelerate/fsdp.yaml divides the {fixed:.1f} GiB of weights, gradients and moments by the GPUs")
    if plan.micro_batch < job.train.micro_batch:
        more = plan.gpus * job.train.micro_batch
        advice.append(
            f"train.global_batch={job.train.global_batch} leaves a GPU {plan.micro_batch} rows a step; "
            f"{more} would give each train.micro_batch={job.train.micro_batch}"
        )
    if kinds["host"] > 0.05 * total:
        advice.append("the GPU waits for the host: a larger train.micro_batch helps")
    compiled = step._replace(micro_batch=fused(step.micro_batch))
    faster = total / sum(_milliseconds(compiled, gpu, plan.gpus, plan.micro_batches_per_step)[0].values())
    if faster > 1.05:
        advice.append(f"train.compile=true joins kernels: {faster:.2f} times as fast at best")
    if kinds["messages"] > 0.05 * total:
        advice.append("messages are not hidden: more rows a step (train.global_batch), or a faster link, helps")
    if job.train.precision == "fp32":
        advice.append("train.precision=bf16 multiplies several times as fast")
    return advice


def likely(speed: float) -> float:
    return speed * LIKELY_SHARE
