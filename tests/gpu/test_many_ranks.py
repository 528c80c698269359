"""Many ranks are one rank: the same losses, norms and weights, with true collectives; and what half precision costs."""

import contextlib
from collections.abc import Mapping

import pytest
import torch
from states import gather_state
from threaded_ranks import Rank, on_ranks, shard

from bertkit.config.sections import OptimConfig
from bertkit.model import MaskedLM, build_encoder
from bertkit.model.config import BertConfig, ModernBertConfig
from bertkit.plan.watch import Memory
from bertkit.run.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from bertkit.run.optim import build_optimizers, set_lr
from bertkit.run.state import gather_full, restore_state
from bertkit.run.step import accumulate_gradients, train_step
from data_pipelines.masks.batch import PackedBatch

torch.set_num_threads(1)
SMALL = ModernBertConfig(
    vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48
)


def batch_of(lengths, vocab_size=300, rate=0.3, seed=0) -> PackedBatch:
    generator = torch.Generator().manual_seed(seed)
    num_tokens = sum(lengths)
    num_targets = max(1, int(num_tokens * rate))
    return PackedBatch(
        input_ids=torch.randint(vocab_size, (num_tokens,), generator=generator),
        position_ids=torch.cat([torch.arange(length) for length in lengths]),
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).int(),
        max_seqlen=max(lengths),
        target_index=torch.randperm(num_tokens, generator=generator)[:num_targets].sort().values,
        target_ids=torch.randint(vocab_size, (num_targets,), generator=generator),
    )


def train(rank: Rank, batches: list[PackedBatch], num_steps: int = 3):
    """A rank's share of the micro-batches, under FSDP where there are several ranks."""
    model = MaskedLM(build_encoder(SMALL, 1), 2).train()
    if rank.num_processes > 1:
        shard(model, rank.num_processes)
    optimizers = build_optimizers(model, OptimConfig(name="muon", lr=1e-2))
    set_lr(optimizers, 1.0)
    share = len(batches) // rank.num_processes
    mine = batches[rank.process_index * share : (rank.process_index + 1) * share]
    results = [train_step(model, optimizers, mine, rank, seed=0, step=step, clip_norm=1.0) for step in range(num_steps)]
    return results, gather_state(model, optimizers)


@pytest.mark.parametrize("num_ranks", [8, pytest.param(64, marks=pytest.mark.ranks)])
def test_many_ranks_train_as_one(num_ranks):
    """Ranks with more rows than others, and matrices that the number of ranks does not divide."""
    batches = [batch_of([32] * (1 + index % 3), seed=index) for index in range(2 * num_ranks)]
    expected, weights = train(Rank(), batches)
    ranks = on_ranks(num_ranks, lambda rank: train(rank, batches))
    for results, _ in ranks:
        for found, wanted in zip(results, expected, strict=True):
            assert found.loss == pytest.approx(wanted.loss, rel=1e-6)
            assert found.grad_norm == pytest.approx(wanted.grad_norm, rel=1e-5)
            assert found[2:] == wanted[2:]
    states = [state for _, state in ranks]
    for name, weight in weights["model"].items():
        assert (states[0]["model"][name] - weight).norm() <= 2e-6 * weight.norm(), name
    assert states[1:] == [{"model": {}, "optimizer": {}}] * (num_ranks - 1), "only the first rank keeps a copy"


class Noted(Mapping):
    """Tensors of a file, each of which is noted for as long as somebody holds it."""

    def __init__(self, stored, memory):
        self.stored, self.memory = stored, memory

    def __getitem__(self, name):
        tensor = self.stored[name]
        self.memory.note(tensor)
        return tensor

    def __iter__(self):
        return iter(self.stored)

    def __len__(self):
        return len(self.stored)


def test_a_rank_that_resumes_holds_its_shards_and_one_tensor(tmp_path):
    _, state = train(Rank(), [batch_of([32], seed=seed) for seed in range(2)])
    path = save_checkpoint(tmp_path, Checkpoint(3, state, {"step": 3}), keep=1)

    def resume(rank: Rank):
        model = shard(MaskedLM(build_encoder(SMALL, 7), 8), rank.num_processes)
        optimizers = build_optimizers(model, OptimConfig(name="muon"))
        handed_out = Memory("cpu")
        stored = load_checkpoint(path, verify=rank.process_index == 0).tensors
        restore_state(model, optimizers, {part: Noted(stored[part], handed_out) for part in stored})
        moments = [value for optimizer in optimizers for kept in optimizer.state.values() for value in kept.values()]
        held = Memory("cpu").note_all([*model.parameters(), *moments])
        return handed_out, held, gather_state(model, optimizers)

    sizes = [tensor.nbytes for part in state.values() for tensor in part.values()]
    ranks = on_ranks(8, resume)
    for handed_out, held, _ in ranks:
        assert max(sizes) <= handed_out.peak < max(sizes) + 512, "one tensor of the file at a time, in blocks of memory"
        assert handed_out.now == 0
        # A view of a whole tensor would hold all of it. Matrices that 8 does not divide give some ranks a row more.
        assert held <= sum(sizes) / 8 + 1024 * len(sizes)
    for part, tensors in state.items():
        for name, tensor in tensors.items():
            assert torch.equal(ranks[0][2][part][name], tensor), name


@pytest.fixture
def layer_norm_as_on_cuda(monkeypatch):
    """Autocast of CPUs lets layer norm return half precision, that of CUDA does not."""
    plain = torch.nn.functional.layer_norm

    def precise(values, *args, **kwargs):
        if not torch.is_autocast_enabled("cpu"):
            return plain(values, *args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            shape, weight, bias, *rest = args
            return plain(values.float(), shape, weight.float(), None if bias is None else bias.float(), *rest, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "layer_norm", precise)


POLICY = torch.distributed.fsdp.MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)


@pytest.mark.usefixtures("layer_norm_as_on_cuda")
def test_half_precision_keeps_the_gradient_of_128_micro_batches():
    """Against float32; gradients that were summed in bf16 would be off by 3.6%."""
    config = BertConfig(
        vocab_size=1000,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=256,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    batches = [batch_of([64], 1000, 0.15, seed) for seed in range(128)]
    num_targets = sum(len(batch.target_ids) for batch in batches)

    def gradient(rank: Rank, half: bool, sharded: bool = False) -> torch.Tensor:
        model = MaskedLM(build_encoder(config, 1), 2).train()
        autocast = torch.autocast("cpu", dtype=torch.bfloat16) if half else contextlib.nullcontext()
        forward = model.forward
        if sharded:
            shard(model, 1, POLICY)

        def computed(batch):
            with autocast:
                return forward(batch)

        model.forward = computed
        accumulate_gradients(model, batches, rank, num_targets=num_targets, seed=0, step=0)
        return torch.cat([gather_full(param.grad).flatten() for param in model.parameters()])

    wanted = gradient(Rank(), half=False)
    for sharded, bound in ((False, 0.006), (True, 0.010)):
        (found,) = on_ranks(1, lambda rank, sharded=sharded: gradient(rank, half=True, sharded=sharded))
        error = ((found - wanted).norm() / wanted.norm()).item()
        print(f"gradient error {error:.3%}, {'FSDP' if sharded else 'autocast'}")
        assert error <= bound
