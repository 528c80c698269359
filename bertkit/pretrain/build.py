"""A recipe and its inputs enter, the model to train leaves: new, or imported and widened by new tokens."""

import time
from dataclasses import replace
from pathlib import Path

from torch import Tensor

import bertkit
from bertkit.config.recipe import Recipe
from bertkit.model import Encoder, MaskedLM, build_encoder
from bertkit.pretrain.inputs import Inputs
from bertkit.pretrain.neighbors import start_from_neighbors
from data_pipelines.masks.keyed import fold

# V vocabulary


def build_model(recipe: Recipe, inputs: Inputs) -> MaskedLM:
    """The model at step 0."""
    if inputs.init is not None:
        return import_model(inputs.init, inputs)
    config = recipe.model.encoder_config(inputs.tokenizer.vocab_size, inputs.tokenizer.special.pad_id)
    encoder_seed, head_seed = (fold(recipe.run.seed, index) % 2**63 for index in range(2))
    return MaskedLM(build_encoder(config, encoder_seed), head_seed)


def warm_start(model: MaskedLM, recipe: Recipe, inputs: Inputs) -> float:
    """Give the embeddings of a new model the start its recipe asks for; says how many seconds that took."""
    start = time.perf_counter()
    if recipe.model.embeddings == "neighbors":
        start_from_neighbors(model, inputs.train, inputs.tokenizer.special.special_ids, recipe.run.seed)
    return time.perf_counter() - start


def import_model(folder: Path, inputs: Inputs) -> MaskedLM:
    """A published model to go on from; a bare encoder gets a new head."""
    model = bertkit.load(folder)
    if isinstance(model, Encoder):
        model = MaskedLM(model)
    assert isinstance(model, MaskedLM), "other heads are refused before the text is prepared"
    if inputs.old_pieces:
        model = widened(model, inputs.old_pieces)
    assert inputs.tokenizer.vocab_size <= model.config.vocab_size, "so are larger vocabularies"
    return model


def widened(model: MaskedLM, old_pieces: dict[int, list[int]]) -> MaskedLM:
    """The model with a row for each new token, in the embedding, the projection and its bias: the mean of the rows
    of its old pieces."""
    vocab_size = max(model.config.vocab_size, max(old_pieces) + 1)
    wider = MaskedLM(build_encoder(replace(model.config, vocab_size=vocab_size)))
    state = model.state_dict()
    for name in ("encoder.tokens.weight", "head.decoder_weight", "head.decoder_bias"):
        if name in state:
            state[name] = _more_rows(state[name], vocab_size, old_pieces)
    wider.load_state_dict(state)
    return wider


def _more_rows(old_V: Tensor, vocab_size: int, old_pieces: dict[int, list[int]]) -> Tensor:
    new_V = old_V.new_zeros(vocab_size, *old_V.shape[1:])
    new_V[: len(old_V)] = old_V
    for index, pieces in old_pieces.items():
        new_V[index] = old_V[pieces].mean(dim=0)
    return new_V
