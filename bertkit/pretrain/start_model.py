"""The model that an objective starts from: a new encoder, or an imported model, widened by new tokens."""

import math
import time
from dataclasses import replace
from functools import partial

from torch import Tensor, nn

from bertkit.config.recipe import Recipe
from bertkit.hf.models import Model, check_exportable, load_outline, open_model
from bertkit.model.heads import HEADS
from bertkit.model.initialization import Values, fill, give_values, outline_encoder, values_of
from bertkit.pretrain.data import PretrainingData
from bertkit.pretrain.neighbors import start_from_neighbors
from bertkit.pretrain.objectives import Objective
from data_pipelines.masks.keyed import fold

# V vocabulary

_ROW_PER_TOKEN = ("tokens.weight", "decoder_weight", "decoder_bias")


def build_model(recipe: Recipe, data: PretrainingData, objective: Objective, outline: bool = False) -> nn.Module:
    """What is trained, as it is at step 0, or an `outline` of it, which knows its weights and has none."""
    encoder_seed, head_seed = (fold(recipe.run.seed, index) % 2**63 for index in range(2))
    start: Model
    if data.init is not None:
        start = import_model(data)
    else:
        config = recipe.model.encoder_config(data.tokenizer.vocab_size, data.tokenizer.special.pad_id)
        start = outline_encoder(config, encoder_seed)
        check_exportable(start)
    if not outline:
        fill(start)
    start.encoder.gradient_checkpointing = recipe.train.gradient_checkpointing
    return objective.make_model(start, head_seed)


def new_head_note(data: PretrainingData, model: nn.Module) -> str | None:
    """What to expect where the model of model.init brought no head to continue with."""
    if data.init is None or load_outline(data.init).kind == getattr(model, "kind", None):
        return None
    size = data.tokenizer.vocab_size
    return (
        f"{data.init} has no head for this objective: it gets a new one with random weights. The loss "
        f"starts near ln({size}) = {math.log(size):.1f}, as for random guesses, and falls fast; predictions "
        "mean little before that"
    )


def warm_start(model: nn.Module, recipe: Recipe, data: PretrainingData) -> float:
    """Give the embeddings of a new model the start its recipe asks for; says how many seconds that took."""
    start = time.perf_counter()
    if recipe.model.embeddings == "neighbors":
        start_from_neighbors(model, data.counted, data.tokenizer.special.special_ids, recipe.run.seed)
    return time.perf_counter() - start


def import_model(data: PretrainingData) -> Model:
    """The model of model.init, with a row for each token that was added to its vocabulary; an outline."""
    assert data.init is not None
    model = open_model(data.init)
    model.encoder.take_pooler()  # nothing would train it
    if data.old_pieces:
        model = widened(model, data.old_pieces)
    assert data.tokenizer.vocab_size <= model.config.vocab_size, "refused before the text is prepared"
    return model


def widened(model: Model, old_pieces: dict[int, list[int]]) -> Model:
    """The model with a row for each new token, in the embedding, the projection and its bias: the mean of the rows
    of its old pieces. An outline."""
    vocab_size = max(model.config.vocab_size, max(old_pieces) + 1)
    encoder = outline_encoder(replace(model.config, vocab_size=vocab_size))
    wider = encoder if model is model.encoder else HEADS[model.kind](encoder)
    old = model.state_dict(keep_vars=True)
    for name, tensor in wider.state_dict(keep_vars=True).items():
        values = values_of(old[name])
        if name.endswith(_ROW_PER_TOKEN):
            values = partial(_more_rows, values, vocab_size, old_pieces)
        give_values(tensor, values)
    return wider


def _more_rows(old: Values, vocab_size: int, old_pieces: dict[int, list[int]]) -> Tensor:
    old_V = old()
    new_V = old_V.new_zeros(vocab_size, *old_V.shape[1:])
    new_V[: len(old_V)] = old_V
    for index, pieces in old_pieces.items():
        new_V[index] = old_V[pieces].mean(dim=0)
    return new_V
