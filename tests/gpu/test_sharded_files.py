"""Ranks that share a model write one file together, and none of them, the first included, ever holds all of it."""

import errno
import itertools
from types import SimpleNamespace

import pytest
import torch
from grammar import write_corpus
from safetensors.torch import load_file
from small_model import save_small_model
from threaded_ranks import Counted, Rank, on_ranks, shard

from bertkit import tensor_file
from bertkit.config.recipe import read_recipe
from bertkit.config.sections import OptimConfig
from bertkit.hf import files
from bertkit.hf.models import stored_weights
from bertkit.model import MaskedLM, build_encoder
from bertkit.model.config import BertConfig
from bertkit.pretrain.train import export
from bertkit.run.checkpoint import save
from bertkit.run.optim import build_optimizers
from bertkit.run.ranks import Trainable, write_gathered
from bertkit.run.state import LoopState, named_state
from data_pipelines.vocab.tokenizer import load_tokenizer

torch.set_num_threads(1)
NUM_RANKS = 8
SIZES = {"hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 2, "intermediate_size": 96}
CONFIG = BertConfig(vocab_size=304, max_position_embeddings=32, tie_word_embeddings=False, **SIZES)
"""Of many tensors, so that all of them are much more than the largest, whose rows the ranks share evenly: torch gathers
others in copies."""


def trainable_on(rank: Rank) -> Trainable:
    """With moments."""
    model = MaskedLM(build_encoder(CONFIG, 1), 2)
    if rank.num_processes > 1:
        shard(model, rank.num_processes)
    optimizers = build_optimizers(model, OptimConfig(name="muon"))
    for param in model.parameters():
        param.grad = torch.ones_like(param)
    for optimizer in optimizers:
        optimizer.step()
    model.zero_grad()
    return Trainable(model, optimizers, rank)


@pytest.fixture(scope="module")
def writers(tmp_path_factory):
    """What a run writes of a model, by name, each a function of a folder and of what is trained."""
    folder = tmp_path_factory.mktemp("text")
    text = write_corpus(folder / "text.txt", count=20)
    tokenizer = load_tokenizer(save_small_model(folder / "small", text, vocab_size=99, positions=16))
    objective = SimpleNamespace(exported=lambda model: model, summary="")

    def write_export(path, trainable):
        recipe = read_recipe("bert-mini", [f"data.corpus={text}", f"run.dir={path}"])
        export(recipe, SimpleNamespace(tokenizer=tokenizer), objective, trainable, LoopState(step=5), 1.0, None)

    return {
        "checkpoint": lambda path, trainable: save(path, LoopState(step=5), trainable, keep=1),
        "export": write_export,
    }


def tensors_of(name, trainable):
    if name == "export":
        return list(stored_weights(trainable.model).values())
    return [tensor for part in named_state(*trainable[:2]).values() for tensor in part.values()]


@pytest.mark.parametrize("name", ["checkpoint", "export"])
def test_no_rank_that_writes_holds_more_than_its_shards_and_one_tensor(name, writers, tmp_path):
    """The first one included: a file is written tensor by tensor, to what one rank writes."""
    writers[name](tmp_path / "one", alone := trainable_on(Rank()))

    def written(rank: Rank):
        trainable = trainable_on(rank)
        with Counted() as counted:
            writers[name](tmp_path / "eight", trainable)
        return counted.memory

    sizes = [size for _, size in {(tensor.data_ptr(), tensor.nbytes) for tensor in tensors_of(name, alone)}]
    shards = sum(sizes) / NUM_RANKS + 512 * len(sizes)  # in blocks of memory
    assert shards + max(sizes) < sum(sizes) / 3
    for memory in on_ranks(NUM_RANKS, written):
        assert memory.peak <= shards + max(sizes)
        assert memory.now <= shards
    paths = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.safetensors"))
    assert len(paths) == (2 if name == "checkpoint" else 1)
    for path in paths:
        one, eight = (load_file(tmp_path / run / path) for run in ("one", "eight"))
        assert list(one) == list(eight)
        for key, tensor in one.items():
            torch.testing.assert_close(eight[key], tensor, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["checkpoint", "export"])
def test_a_file_that_cannot_be_written_is_told_on_every_rank(name, writers, tmp_path, monkeypatch):
    """In the midst of it: the other ranks still wait for shards of the first one."""
    real, written = tensor_file.bytes_of, itertools.count()

    def full(tensor):
        if next(written) == 9:
            raise OSError(errno.ENOSPC, "disk full")
        return real(tensor)

    for module in (tensor_file, files):
        monkeypatch.setattr(module, "bytes_of", full)

    def failing(rank: Rank):
        with pytest.raises(OSError, match="disk full"):
            writers[name](tmp_path, trainable_on(rank))
        return True

    assert all(on_ranks(NUM_RANKS, failing))
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize("error", [OSError(), ValueError("another vocabulary")])
def test_whatever_the_first_rank_fails_with_ends_every_rank(error):
    def write(gathered):
        next(gathered)
        raise error

    def failing(rank: Rank):
        with pytest.raises((OSError, ValueError)) as raised:
            write_gathered(rank, {"model": dict(trainable_on(rank).model.named_parameters())}, write)
        return raised.value is error if rank.is_main_process else (str(error) or repr(error)) in str(raised.value)

    assert all(on_ranks(2, failing))
