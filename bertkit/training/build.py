"""A recipe and its inputs enter, the model to train leaves: new, or imported and widened by new tokens."""

from dataclasses import replace

import torch
from torch import Tensor, nn

import bertkit
from bertkit.fields import part
from bertkit.model import Bert, MaskedLM, ModernBert, build_encoder
from bertkit.model.config import BertConfig, EncoderConfig, ModernBertConfig
from bertkit.recipe import BertSection, ImportedSection, Recipe
from bertkit.training.inputs import Inputs
from data_pipelines.keyed import fold

# V vocabulary, N new tokens, D width


def build_model(recipe: Recipe, inputs: Inputs) -> MaskedLM:
    """The model at step 0."""
    if isinstance(recipe.model, ImportedSection):
        return import_model(recipe.model.init, recipe.data.seq_len, inputs)
    cls: type[EncoderConfig] = BertConfig if isinstance(recipe.model, BertSection) else ModernBertConfig
    tokenizer = inputs.tokenizer
    config = replace(part(recipe.model, cls), vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.special.pad_id)
    encoder_seed, head_seed = (int(fold(recipe.run.seed, index)[0]) % 2**63 for index in range(2))
    return MaskedLM(build_encoder(config, encoder_seed), head_seed)


def import_model(folder: str, seq_len: int, inputs: Inputs) -> MaskedLM:
    """A published model with a head; new tokens begin as the mean of the pieces they replace."""
    model = bertkit.load(folder)
    if isinstance(model, (Bert, ModernBert)):
        model = MaskedLM(model)  # a bare encoder gets a new head
    if not isinstance(model, MaskedLM):
        raise ValueError(f"{folder} holds a {type(model).__name__}; only an encoder or a masked-LM can be trained on")
    if seq_len > model.config.max_position_embeddings:
        raise ValueError(
            f"data.seq_len={seq_len} is longer than the {model.config.max_position_embeddings} positions of {folder}"
        )
    if inputs.old_pieces:
        widen(model, inputs.old_pieces)
    if inputs.tokenizer.vocab_size > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer has {inputs.tokenizer.vocab_size} tokens, "
            f"but the model in {folder} knows {model.config.vocab_size}"
        )
    return model


@torch.no_grad()
def widen(model: MaskedLM, old_pieces: dict[int, list[int]]) -> None:
    """Give each new token the mean of its old pieces, in the embedding, the projection and its bias."""
    vocab_size = max(model.config.vocab_size, max(old_pieces) + 1)
    encoder, head = model.encoder, model.head
    encoder.tokens.weight = nn.Parameter(_widened(encoder.tokens.weight, vocab_size, old_pieces))
    encoder.tokens.num_embeddings = vocab_size
    if head.decoder_weight is not None:
        head.decoder_weight = nn.Parameter(_widened(head.decoder_weight, vocab_size, old_pieces))
    if head.decoder_bias is not None:
        head.decoder_bias = nn.Parameter(_widened(head.decoder_bias, vocab_size, old_pieces))
    encoder.config = replace(encoder.config, vocab_size=vocab_size)


def _widened(old_V: Tensor, vocab_size: int, old_pieces: dict[int, list[int]]) -> Tensor:
    new_V = old_V.new_zeros(vocab_size, *old_V.shape[1:])
    new_V[: len(old_V)] = old_V
    for index, pieces in old_pieces.items():
        new_V[index] = old_V[pieces].mean(dim=0)
    return new_V
