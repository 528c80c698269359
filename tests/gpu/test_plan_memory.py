"""The memory that a step on fake tensors says it needs is what the same step takes where it can be measured: a CPU."""

import itertools
import math
from functools import partial
from typing import ClassVar

import pytest
import torch
from gpu_step import needs_fake_cuda
from threaded_ranks import Rank

from bertkit.config.sections import OptimConfig
from bertkit.model import MaskedLM, attention, attention_tiles, build_encoder
from bertkit.model.config import BertConfig, ModernBertConfig
from bertkit.model.initialization import outline_encoder
from bertkit.plan.fake_cuda import fake_cuda
from bertkit.plan.ranks import fake_parameters
from bertkit.plan.rehearsal import Shape, fake_batch
from bertkit.plan.watch import Watch
from bertkit.run.optim import build_optimizers, set_lr
from bertkit.run.step import train_step

torch.set_num_threads(1)
SHAPE = Shape((64,) * 16, 154)
SIZES = {"vocab_size": 2000, "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
CONFIGS = [
    BertConfig(**SIZES, intermediate_size=512, attention_probs_dropout_prob=0.0),
    ModernBertConfig(**SIZES, intermediate_size=192),
]


def take_step(model, batch_of):
    """One step, after which the optimizer has its moments; the result is what is there then, and takes another."""
    optimizers = build_optimizers(model, OptimConfig())
    set_lr(optimizers, 1.0)
    train_step(model, optimizers, [batch_of(), batch_of()], Rank(), seed=0, step=0, clip_norm=1.0)
    moments = [value for optimizer in optimizers for state in optimizer.state.values() for value in state.values()]
    again = partial(train_step, model, optimizers, [batch_of(), batch_of()], Rank(), seed=0, step=1, clip_norm=1.0)
    return [*model.parameters(), *moments], again


def real_batch():
    batch = fake_batch(SHAPE).map(torch.zeros_like)
    borders = torch.tensor([0, *SHAPE.lengths]).cumsum(0).int()
    return type(batch)(**{**vars(batch), "cu_seqlens": borders, "target_index": torch.arange(SHAPE.num_targets)})


class OnCpu(Watch):
    """Also looks into attention, which is one kernel on a GPU, but on a CPU a loop that makes copies."""

    BODIES: ClassVar = {
        "packed_attention": attention._packed_attention._init_fn,
        "packed_attention_backward": attention._packed_attention_backward._init_fn,
    }

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name not in self.BODIES:
            return super().__torch_dispatch__(func, types, args, kwargs)
        with self:
            return self.BODIES[name](*args, **(kwargs or {}))


def known_tiles(packed, cu_seqlens, index_M, reach, prefixes_S):
    """Those of the real batch, which were cut before: borders of fake tensors have no values."""
    borders = (0, *itertools.accumulate(SHAPE.lengths))
    places = None if index_M is None else tuple(range(SHAPE.num_targets))
    together = math.isqrt(attention_tiles.CALL_COST // (packed.shape[-2] * packed.shape[-1]))
    return attention_tiles._cut(borders, (-1,) * len(SHAPE.lengths), places, reach, together=together)


def allocated(events) -> int:
    """The most that was alive above the start, by what torch's allocator noted."""
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    now = peak = 0
    for _, change in changes:
        now += change
        peak = max(peak, now)
    return peak


@needs_fake_cuda
@pytest.mark.parametrize("config", CONFIGS, ids=["bert", "modernbert"])
def test_planned_memory_is_within_a_tenth_of_measured_memory(config, monkeypatch):
    _, step = take_step(MaskedLM(build_encoder(config)).train(), real_batch)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    measured = allocated(profile.profiler.kineto_results.events())

    monkeypatch.setattr(attention, "cut", known_tiles)
    model = MaskedLM(outline_encoder(config)).train()
    with fake_cuda() as mode, mode:
        fake_parameters(model, torch.device("cpu"))
        with Watch():
            there, step = take_step(model, lambda: fake_batch(SHAPE))
        with OnCpu(SHAPE.lengths, "cpu") as watch:
            before = watch.memory.note_all(there)
            step()
    assert watch.memory.peak - before == pytest.approx(measured, rel=0.1)
