"""The gradient of a step does not depend on how it is split; a bad step changes nothing; dropout has its keys."""

import copy
import json
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from runs import run_code
from states import gather_state

from bertkit.config.sections import OptimConfig
from bertkit.model import BertConfig, MaskedLM, ModernBertConfig, build_encoder
from bertkit.run.optim import build_optimizers
from bertkit.run.state import restore_state
from bertkit.run.step import accumulate_gradients, seed_dropout, train_step
from data_pipelines.masks.batch import PackedBatch

torch.set_num_threads(1)
VOCAB = 97


def bert(dropout: float = 0.0) -> MaskedLM:
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return MaskedLM(build_encoder(config, seed=0), seed=1)


def modernbert() -> MaskedLM:
    config = ModernBertConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48
    )
    return MaskedLM(build_encoder(config, seed=0), seed=1)


def row(index: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and target positions of a row; lengths and numbers of targets are ragged."""
    generator = torch.Generator().manual_seed(index)
    length = 5 + (index * 7) % 13
    ids = torch.randint(5, VOCAB, (length,), generator=generator)
    return ids, torch.arange(1, length, 2 + index % 4)


def pack(rows: list[int]) -> PackedBatch:
    parts = [row(index) for index in rows]
    lengths = [len(ids) for ids, _ in parts]
    starts = torch.tensor([0, *lengths]).cumsum(0)
    ids = torch.cat([ids for ids, _ in parts])
    index = torch.cat([targets + start for (_, targets), start in zip(parts, starts, strict=False)])
    return PackedBatch(
        input_ids=ids,
        position_ids=torch.cat([torch.arange(length) for length in lengths]),
        cu_seqlens=starts.int(),
        max_seqlen=max(lengths),
        target_index=index,
        target_ids=(ids[index] * 3) % VOCAB,
        target_kind=torch.zeros_like(index),
        target_starts_word=torch.ones_like(index, dtype=torch.bool),
    )


def split(num_rows: int, micro_batch: int) -> list[PackedBatch]:
    return [pack(list(range(start, min(start + micro_batch, num_rows)))) for start in range(0, num_rows, micro_batch)]


def gradients(model: MaskedLM, batches: list[PackedBatch]) -> dict[str, torch.Tensor]:
    count = sum(len(batch.target_ids) for batch in batches)
    accumulate_gradients(model, batches, Accelerator(cpu=True), num_targets=count, seed=0, step=0)
    return {name: param.grad for name, param in model.named_parameters() if param.grad is not None}


def relative_difference(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    assert left.keys() == right.keys()
    return float(flat(left).sub(flat(right)).norm() / flat(left).norm())


def flat(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors.values()])


@pytest.mark.parametrize("build", [bert, modernbert])
@pytest.mark.parametrize("micro_batch", [4, 2, 3], ids=["2x4", "4x2", "a short last one"])
def test_the_split_into_micro_batches_does_not_change_gradients(build, micro_batch):
    """Row 10: eight ragged rows at once, or in micro-batches."""
    whole = gradients(build(), split(8, 8))
    assert relative_difference(whole, gradients(build(), split(8, micro_batch))) < 1e-6


def test_the_gradient_is_that_of_the_mean_over_all_targets():
    model, batch = modernbert(), pack(list(range(8)))
    (model.loss(batch) / len(batch.target_ids)).backward()
    mean = {name: param.grad for name, param in model.named_parameters()}
    assert relative_difference(mean, gradients(modernbert(), split(8, 2))) < 1e-6


def replicated_run() -> dict:
    """Three steps of two micro-batches over all ranks; the second has a loss that is not finite, on one rank only."""
    accelerator = Accelerator(cpu=True)
    rank, ranks = accelerator.process_index, accelerator.num_processes
    model = bert(dropout=0.1)
    optimizers = build_optimizers(model, OptimConfig())
    wrapped = accelerator.prepare_model(model)
    batches = split(8, 4)
    mine = batches[rank * len(batches) // ranks : (rank + 1) * len(batches) // ranks]
    results = []
    for step in range(3):
        poison = float("inf") if step == 1 and rank == ranks - 1 else 1.0
        model.loss = lambda batch, poison=poison: MaskedLM.loss(model, batch) * poison
        keys = {"seed": 3, "step": step, "clip_norm": 0.5, "stop": lambda: rank == ranks - 1}
        results.append(train_step(wrapped, optimizers, mine, accelerator, **keys)._asdict())
    return {"results": results, "weights": {name: param.tolist() for name, param in model.named_parameters()}}


def on_two_ranks(story: str, folder: Path) -> dict:
    """What the first of two processes returns from a function of this file."""
    code = f"""
import json, sys, torch
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_step
print(json.dumps(test_step.{story}()))
torch.distributed.destroy_process_group()  # a rank that ends while another still talks to it is torn down hard
"""
    return json.loads(run_code(code, folder, ranks=2)[0].splitlines()[-1])  # some versions of torch greet first


def test_two_processes_step_exactly_as_one_and_skip_together(tmp_path):
    one, two = replicated_run(), on_two_ranks("replicated_run", tmp_path)
    assert [result["applied"] for result in one["results"]] == [True, False, True]
    assert [result["applied"] for result in two["results"]] == [True, False, True]
    assert one["results"][0] == two["results"][0]
    assert one["results"][2] == two["results"][2]
    assert all(result["stop"] for result in two["results"]), "one rank was asked, all know"
    assert one["weights"] == two["weights"]


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_step_that_is_not_finite_changes_neither_weights_nor_moments(poison, name):
    """Row 11: bit by bit, under both optimizers."""
    model = modernbert()
    optimizers = build_optimizers(model, OptimConfig(name=name))
    accelerator, batches = Accelerator(cpu=True), split(4, 2)
    assert train_step(model, optimizers, batches, accelerator, seed=0, step=0).applied
    before = copy.deepcopy(gather_state(model, optimizers))
    model.loss = lambda batch: MaskedLM.loss(model, batch) * poison
    assert not train_step(model, optimizers, batches, accelerator, seed=0, step=1).applied
    after = gather_state(model, optimizers)
    for part in before:
        assert before[part].keys() == after[part].keys()
        assert all(torch.equal(before[part][name], after[part][name]) for name in before[part])
    assert all(param.grad is None for param in model.parameters())


def test_clipping_bounds_the_step_and_reports_the_norm_before_it():
    norms = []
    for clip_norm in (0.0, 1e-3):
        model = modernbert()
        sgd = torch.optim.SGD(model.parameters(), lr=1.0)
        before = [param.detach().clone() for param in model.parameters()]
        result = train_step(model, [sgd], split(4, 4), Accelerator(cpu=True), seed=0, step=0, clip_norm=clip_norm)
        moved = [(new.detach() - old).flatten() for new, old in zip(model.parameters(), before, strict=True)]
        norms.append((result.grad_norm, float(torch.cat(moved).norm())))
    assert norms[0][0] == norms[1][0]
    assert norms[0][1] == pytest.approx(norms[0][0], rel=1e-3)
    assert norms[1][1] == pytest.approx(1e-3, rel=1e-2)


def test_dropout_is_a_function_of_seed_step_and_micro_batch():
    def draw(*key):
        seed_dropout(*key)
        return torch.rand(4).tolist()

    torch.rand(3)
    assert draw(1, 2, 3) == draw(1, 2, 3)
    assert len({tuple(draw(*key)) for key in [(1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4), (1, 3, 2)]}) == 5


def test_a_step_without_targets_does_not_divide_by_zero():
    model, batch = modernbert(), pack([0])
    none = {key: getattr(batch, key)[:0] for key in ("target_index", "target_ids", "target_kind", "target_starts_word")}
    empty = PackedBatch(**{**batch.__dict__, **none})
    result = train_step(model, build_optimizers(model, OptimConfig()), [empty], Accelerator(cpu=True), seed=0, step=0)
    assert (result.loss, result.num_targets) == (0.0, 0)
    assert all(torch.isfinite(param).all() for param in model.parameters())


def sharded_run() -> dict:
    """Four steps under FSDP (with more than one rank), the last two done again from gathered tensors."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    accelerator = Accelerator(cpu=True)
    rank, ranks = accelerator.process_index, accelerator.num_processes
    model = modernbert()
    if ranks > 1:
        mesh = init_device_mesh("cpu", (ranks,))
        for part in (*model.encoder.layers, model):
            fully_shard(part, mesh=mesh)
    optimizers = build_optimizers(model, OptimConfig(name="muon"))
    mine = split(8, 4 // ranks)[rank * 2 : rank * 2 + 2]

    def train(first: int, last: int) -> dict:
        for step in range(first, last):
            train_step(model, optimizers, mine, accelerator, seed=3, step=step, clip_norm=0.5)
        return copy.deepcopy(gather_state(model, optimizers))

    gathered = [train(0, 2)]
    straight = train(2, 4)
    # The first rank alone keeps them; a checkpoint is what all of them read.
    broadcast_object_list(gathered)
    restore_state(model, optimizers, gathered[0])
    again = train(2, 4)
    return {
        "same": all(torch.equal(straight[part][name], again[part][name]) for part in again for name in again[part]),
        "shapes": {name: list(tensor.shape) for part in again.values() for name, tensor in part.items()},
        "norms": {name: tensor.norm().item() for name, tensor in again["model"].items()},
    }


def test_a_sharded_model_steps_as_a_whole_one_and_its_state_is_whole(tmp_path):
    """Muon needs whole matrices for its update; a checkpoint needs whole tensors."""
    one, two = sharded_run(), on_two_ranks("sharded_run", tmp_path)
    assert one["same"]
    assert two["same"]
    assert one["shapes"] == two["shapes"]
    assert two["norms"] == pytest.approx(one["norms"], rel=1e-4)
