"""A plan as lines for people to read."""

from bertkit.plan.plan import Plan, likely

_WIDTH = 12


def plan_lines(plan: Plan) -> list[str]:
    lines = [f"{plan.recipe} on {plan.gpus} × {plan.gpu}, {plan.mode}: {plan.parameters / 1e6:,.1f} million parameters"]
    for topic, texts in (
        ("memory", _memory(plan)),
        ("step", _step(plan)),
        ("speed", _speed(plan)),
        ("would help", plan.advice),
        ("assumed", _assumed(plan)),
    ):
        lines += [f"  {topic if index == 0 else '':{_WIDTH}}{text}" for index, text in enumerate(texts)]
    return lines


def _memory(plan: Plan) -> list[str]:
    parts = {
        "weights": plan.weights_gib,
        "gradients": plan.gradients_gib,
        "moments": plan.moments_gib,
        "activations": plan.activations_gib,
    }
    return [
        f"{plan.peak_gib:.1f} GiB a GPU with {plan.micro_batch} rows at once: "
        + ", ".join(f"{name} {size:.2f}" for name, size in parts.items()),
        f"{'fits' if plan.fits else 'does NOT fit'}; the most rows at once: {plan.largest_micro_batch}",
    ]


def _step(plan: Plan) -> list[str]:
    total = sum(plan.milliseconds_per_step.values())
    kinds = sorted(plan.milliseconds_per_step.items(), key=lambda item: -item[1])
    spent = [f"{kind.replace('_', ' ')} {share / total:.0%}" for kind, share in kinds if share / total >= 0.005]
    broken = f"BROKEN: {plan.mixed_products} products of mixed types raise on a GPU"
    return [
        f"{total:,.1f} ms of {plan.micro_batches_per_step} micro-batches and an update: {', '.join(spent)}",
        f"{plan.kernels_per_step:,} kernels, waits of the host: {plan.host_waits_per_step}, "
        f"sent by each GPU: {plan.bytes_sent_per_step / 1e6:,.0f} MB",
        f"a token: {plan.mflop_per_token:,.0f} MFLOP, {plan.kilobytes_per_token:,.0f} kB of memory traffic",
        *([broken] if plan.mixed_products else []),
    ]


def _speed(plan: Plan) -> list[str]:
    best, each = plan.tokens_per_second, plan.tokens_per_second / plan.gpus
    if plan.minutes is None:
        slower = best / likely(best)
        told = f"{_duration(plan.hours)} at best; likely {_duration(plan.hours * slower)}"
    else:
        slower, told = 1.0, f"{_duration(plan.hours)} as asked for"
    return [
        f"{best:,.0f} tokens a second at best, {each:,.0f} a GPU; likely {likely(best):,.0f}",
        f"{told}, {_amount(plan.gpu_hours * slower)} GPU-hours, ${_amount(plan.cost * slower)}",
    ]


def _duration(hours: float) -> str:
    return f"{hours:,.1f} hours" if hours >= 1 else f"{60 * hours:,.0f} minutes"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"


def _assumed(plan: Plan) -> list[str]:
    told = [f"{name.replace('_', ' ')} {value}" for name, value in plan.assumptions.items()]
    lines = [""]
    for part in told:
        if len(lines[-1]) + len(part) > 100:
            lines.append("")
        lines[-1] += f"{', ' if lines[-1] else ''}{part}"
    return lines
