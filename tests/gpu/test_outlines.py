"""Under FSDP a model is an outline until it is sharded: the same weights, and no rank ever holds all of them."""

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch
from gpu_step import FSDP_64, needs_fake_cuda, outline, recipe_of
from states import gather_state
from threaded_ranks import Counted, on_ranks, shard
from tiny import TINY, TINY_MODERN
from torch.distributed.tensor import DTensor

import bertkit
from bertkit.hf.models import open_model
from bertkit.model import MaskedLM, SequenceClassifier, build_encoder
from bertkit.model.initialization import fill, outline_encoder, values_of
from bertkit.plan.ranks import fake_ranks
from bertkit.plan.watch import Memory, Watch
from bertkit.pretrain.start_model import widened
from bertkit.run import ranks
from bertkit.run.optim import build_optimizers
from bertkit.run.state import fill_shards

torch.set_num_threads(1)
NUM_RANKS = 8
SIZES = {"hidden_size": 64, "num_hidden_layers": 6, "intermediate_size": 48}
CONFIG, MODERN = replace(TINY, **SIZES), replace(TINY_MODERN, **SIZES)
"""Of many tensors, so that all of them are much more than the largest."""


def save_folder(folder):
    bertkit.save(MaskedLM(build_encoder(CONFIG, 5), 6), folder)
    return folder


STARTS = {
    "drawn": lambda folder: MaskedLM(outline_encoder(CONFIG, 1), 2),
    "truncated": lambda folder: MaskedLM(outline_encoder(MODERN, 1), 2),
    "folder": lambda folder: open_model(save_folder(folder)),
    "new tokens": lambda folder: widened(open_model(save_folder(folder)), {200: [7, 9], 203: [3]}),
}


@pytest.mark.parametrize("start", STARTS)
def test_a_rank_draws_or_reads_its_shards_tensor_by_tensor(start, tmp_path):
    whole = fill(STARTS[start](tmp_path))
    outlines = [STARTS[start](tmp_path) for _ in range(NUM_RANKS)]
    assert all(param.is_meta for model in outlines for param in model.parameters())

    def begin(rank):
        model = outlines[rank.process_index]
        values = {name: values_of(param) for name, param in model.named_parameters()}
        shard(model, rank.num_processes)
        with Counted() as counted:
            fill_shards(model, values, rank.device)
        return counted.memory, gather_state(model, ())["model"]

    sizes = [param.nbytes for param in whole.parameters()]
    # Drawing again what lies beyond a cutoff takes copies of the one tensor, and so does joining or widening tables.
    at_once = {"truncated": 5, "new tokens": 2, "folder": 2}.get(start, 1) * max(sizes)
    shards = sum(sizes) / NUM_RANKS + 512 * len(sizes)  # in blocks of memory
    assert shards + at_once < 0.7 * sum(sizes)
    for memory, _ in (found := on_ranks(NUM_RANKS, begin)):
        assert memory.peak <= shards + at_once + max(sizes) / NUM_RANKS
        assert memory.now <= shards
    for name, weight in whole.named_parameters():
        assert torch.equal(found[0][1][name], weight), name


@needs_fake_cuda
def test_accelerate_shards_an_outline_and_no_rank_sends_its_weights():
    recipe = recipe_of("bert-base")
    model = outline(recipe)
    num_parameters = len(list(model.parameters()))
    with fake_ranks(FSDP_64.num_gpus, FSDP_64.launch_file, "bf16") as accelerator:
        with Watch((), "cuda") as watch:
            trainable = ranks.wrap(accelerator, model, partial(build_optimizers, config=recipe.optim))
        assert all(isinstance(param, DTensor) and param.is_cuda for param in trainable.model.parameters())
        optimized = {param for made in trainable.optimizers for group in made.param_groups for param in group["params"]}
        assert optimized == set(trainable.model.parameters())
        assert len(optimized) == num_parameters
        assert not watch.messages
        held = Memory().note_all(trainable.model.parameters())
        assert watch.memory.now == held < 1.1 * 4 * sum(param.numel() for param in optimized) / FSDP_64.num_gpus


def test_what_copies_an_outline_is_told():
    model = MaskedLM(outline_encoder(TINY, 1), 2)
    model.teacher = copy.deepcopy(model.encoder)
    with pytest.raises(ValueError, match=r"\(200, 16\) has no values"):
        fill(model)


def test_a_pooler_of_pretraining_stays_where_a_classifier_begins():
    encoder = outline_encoder(TINY, 1, pooler=True)
    wanted = values_of(encoder.pooler.weight)()
    assert torch.equal(fill(SequenceClassifier(encoder, ["a", "b"], 2)).head.pooler.weight, wanted)
