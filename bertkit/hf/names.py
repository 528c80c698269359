"""A layout enters, the two-way table of its weights leaves: our name on the left, Hugging Face's on the right."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from bertkit.hf.files import Weights
from bertkit.hf.layout import Layout
from bertkit.model.config import BertConfig


class Weight(NamedTuple):
    """One of our weights and the weights of theirs it is made of, one above the other."""

    ours: str
    theirs: tuple[str, ...]
    skip: int = 0
    """Leading rows of theirs that are never used; RoBERTa's positions begin after the padding id."""
    copies: tuple[str, ...] = ()
    """Further names under which ours is written again."""

    def shapes(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """The shape each of theirs must have where ours has `shape`."""
        return {name: (shape[0] // len(self.theirs) + self.skip, *shape[1:]) for name in self.theirs}

    def read(self, weights: Weights) -> Tensor:
        parts = [weights[name] for name in self.theirs]
        return parts[0][self.skip :].contiguous() if len(parts) == 1 else torch.cat(parts)

    def write(self, tensor: Tensor) -> Mapping[str, Tensor]:
        assert self.skip == 0, "a layout that skips rows is only read"
        if len(self.theirs) == 1:
            return {self.theirs[0]: tensor, **{name: tensor.clone() for name in self.copies}}
        # safetensors refuses views of one storage.
        return {name: part.clone() for name, part in zip(self.theirs, tensor.chunk(len(self.theirs)), strict=True)}


def weight_table(layout: Layout) -> list[Weight]:
    rows = _bert_encoder(layout) if isinstance(layout.config, BertConfig) else _modernbert_encoder(layout)
    if layout.head == "bare":
        return rows
    rows = [row._replace(ours=f"encoder.{row.ours}") for row in rows]
    heads = {"masked-lm": _masked_lm_head, "tagger": _label_head, "classifier": _pooled_head}
    return rows + heads[layout.head](layout)


def _bert_encoder(layout: Layout) -> list[Weight]:
    at = layout.prefix
    rows = [
        Weight("tokens.weight", (layout.embedding_name,)),
        Weight("positions.weight", (f"{at}embeddings.position_embeddings.weight",), skip=layout.first_position),
        Weight("types.weight", (f"{at}embeddings.token_type_embeddings.weight",)),
        *_pair("norm", f"{at}embeddings.LayerNorm"),
    ]
    for i in range(layout.config.num_hidden_layers):
        ours, theirs = f"layers.{i}", f"{at}encoder.layer.{i}"
        rows += _pair(
            f"{ours}.attention_in", *(f"{theirs}.attention.self.{part}" for part in ("query", "key", "value"))
        )
        rows += _pair(f"{ours}.attention_out", f"{theirs}.attention.output.dense")
        rows += _pair(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm")
        rows += _pair(f"{ours}.mlp_in", f"{theirs}.intermediate.dense")
        rows += _pair(f"{ours}.mlp_out", f"{theirs}.output.dense")
        rows += _pair(f"{ours}.mlp_norm", f"{theirs}.output.LayerNorm")
    return rows + (_pair("pooler", f"{at}pooler.dense") if layout.pooler else [])


def _modernbert_encoder(layout: Layout) -> list[Weight]:
    config, at = layout.config, layout.prefix
    assert not isinstance(config, BertConfig)
    rows = [
        Weight("tokens.weight", (layout.embedding_name,)),
        *_pair("norm", f"{at}embeddings.norm", bias=config.norm_bias),
    ]
    for i in range(config.num_hidden_layers):
        ours, theirs = f"layers.{i}", f"{at}layers.{i}"
        if i > 0:
            rows += _pair(f"{ours}.attention_norm", f"{theirs}.attn_norm", bias=config.norm_bias)
        rows += _pair(f"{ours}.attention_in", f"{theirs}.attn.Wqkv", bias=config.attention_bias)
        rows += _pair(f"{ours}.attention_out", f"{theirs}.attn.Wo", bias=config.attention_bias)
        rows += _pair(f"{ours}.mlp_norm", f"{theirs}.mlp_norm", bias=config.norm_bias)
        rows += _pair(f"{ours}.mlp_in", f"{theirs}.mlp.Wi", bias=config.mlp_bias)
        rows += _pair(f"{ours}.mlp_out", f"{theirs}.mlp.Wo", bias=config.mlp_bias)
    return rows + _pair("final_norm", f"{at}final_norm", bias=config.norm_bias)


def _masked_lm_head(layout: Layout) -> list[Weight]:
    config, names = layout.config, layout.head_names
    rows = [
        *_pair("head.transform.dense", names.dense, bias=isinstance(config, BertConfig) or config.classifier_bias),
        *_pair("head.transform.norm", names.norm, bias=isinstance(config, BertConfig) or config.norm_bias),
    ]
    if isinstance(config, BertConfig) or config.decoder_bias:
        # An untied BERT of transformers has the bias twice and adds the decoder's.
        twice = isinstance(config, BertConfig) and not config.tie_word_embeddings
        rows.append(
            Weight("head.decoder_bias", (layout.decoder_bias_name,), copies=(f"{names.decoder}.bias",) if twice else ())
        )
    if not config.tie_word_embeddings:
        rows.append(Weight("head.decoder_weight", (f"{names.decoder}.weight",)))
    return rows


def _label_head(layout: Layout) -> list[Weight]:
    config, names = layout.config, layout.head_names
    rows = _pair("head.classifier", "classifier")
    if not isinstance(config, BertConfig):
        rows += _pair("head.transform.dense", names.dense, bias=config.classifier_bias)
        rows += _pair("head.transform.norm", names.norm, bias=config.norm_bias)
    return rows


def _pooled_head(layout: Layout) -> list[Weight]:
    if layout.family == "roberta":
        # Its classifier pools with the same dense layer and tanh, under other names.
        return _pair("head.pooler", "classifier.dense") + _pair("head.labels.classifier", "classifier.out_proj")
    rows = [row._replace(ours=row.ours.replace("head.", "head.labels.", 1)) for row in _label_head(layout)]
    return rows + (_pair("head.pooler", f"{layout.prefix}pooler.dense") if layout.family == "bert" else [])


def _pair(ours: str, *theirs: str, bias: bool = True) -> list[Weight]:
    kinds = ("weight", "bias") if bias else ("weight",)
    return [Weight(f"{ours}.{kind}", tuple(f"{name}.{kind}" for name in theirs)) for kind in kinds]
