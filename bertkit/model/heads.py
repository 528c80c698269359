"""An encoder enters a head; token ids enter the two, logits or a loss leave."""

# B rows, L padded length, T tokens in the pack, M masked tokens, D width, V vocabulary, K labels

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.model.activation import activation
from bertkit.model.build import Encoder
from bertkit.model.config import BertConfig, EncoderConfig
from bertkit.model.initialization import initialize
from bertkit.model.loss import summed_cross_entropy
from bertkit.model.packing import Packed, computed_packed


class MaskedLM(nn.Module):
    """Predicts the token at a position: transform, norm, projection to the vocabulary."""

    def __init__(self, encoder: Encoder, seed: int = 0):
        super().__init__()
        with torch.device("meta"):
            self.head = VocabularyHead(encoder.config)
        _fill(self.head, encoder, seed)
        self.encoder = encoder
        self.config = encoder.config

    def forward(
        self, input_ids: Any, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """The summed loss of a packed batch with targets; logits (B, L, V) of padded rows."""
        if not isinstance(input_ids, Tensor):
            return self.loss(input_ids)
        return computed_packed(self.logits, input_ids, attention_mask, token_type_ids)

    def loss(self, batch: Any) -> Tensor:
        """Cross-entropy summed over the batch's targets. Only they are projected to the vocabulary, and only they
        pass through the last block."""
        at, order = batch.target_index.sort()
        hidden_MD = self.head.transform(self.encoder.encode(batch, at))
        return summed_cross_entropy(hidden_MD, self.decoder_weight, self.head.decoder_bias, batch.target_ids[order])

    def target_logits(self, batch: Any) -> Tensor:
        """Logits (M, V) at the batch's targets, in their order."""
        at, order = batch.target_index.sort()
        return self.project(self.encoder.encode(batch, at))[order.argsort()]

    def logits(self, batch: Packed) -> Tensor:
        """Logits (T, V) at every token."""
        return self.project(self.encoder.encode(batch))

    def project(self, hidden_TD: Tensor) -> Tensor:
        return F.linear(self.head.transform(hidden_TD), self.decoder_weight, self.head.decoder_bias)

    @property
    def decoder_weight(self) -> Tensor:
        """(V, D), the embedding matrix where the two are tied."""
        return self.encoder.tokens.weight if self.head.decoder_weight is None else self.head.decoder_weight


class TokenTagger(nn.Module):
    """Gives every token a score for each label."""

    def __init__(self, encoder: Encoder, labels: Sequence[str], seed: int = 0):
        super().__init__()
        if len(set(labels)) != len(labels) or not labels:
            raise ValueError(f"labels must be distinct and at least one, got {list(labels)}")
        with torch.device("meta"):
            self.head = LabelHead(encoder.config, len(labels))
        _fill(self.head, encoder, seed)
        self.encoder = encoder
        self.config = encoder.config
        self.labels = tuple(labels)

    def forward(
        self, input_ids: Packed | Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Logits: (T, K) of a packed batch, (B, L, K) of padded rows."""
        return computed_packed(self.logits, input_ids, attention_mask, token_type_ids)

    def logits(self, batch: Packed) -> Tensor:
        return self.head(self.encoder.encode(batch))


class VocabularyHead(nn.Module):
    """The weights of a masked-LM head. Tied weights exist once, in the encoder: nothing counts, decays or saves
    them twice."""

    decoder_weight: nn.Parameter | None
    decoder_bias: nn.Parameter | None

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.transform = Transform(config)
        self.decoder_weight = None
        if not config.tie_word_embeddings:
            self.decoder_weight = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size))
        self.decoder_bias = None
        if isinstance(config, BertConfig) or config.decoder_bias:
            self.decoder_bias = nn.Parameter(torch.empty(config.vocab_size))


class LabelHead(nn.Module):
    """Hidden states to label scores; the modern encoder's head transforms them first."""

    def __init__(self, config: EncoderConfig, num_labels: int):
        super().__init__()
        classic = isinstance(config, BertConfig)
        self.transform = None if classic else Transform(config)
        self.dropout = config.classifier_dropout
        if isinstance(config, BertConfig) and config.classifier_dropout is None:
            self.dropout = config.hidden_dropout_prob
        self.classifier = nn.Linear(config.hidden_size, num_labels)

    def forward(self, hidden_TD: Tensor) -> Tensor:
        if self.transform is not None:
            hidden_TD = self.transform(hidden_TD)
        assert self.dropout is not None
        return self.classifier(F.dropout(hidden_TD, self.dropout, self.training))


class Transform(nn.Module):
    """What stands between an encoder and a projection: a dense layer, a nonlinearity, a norm."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        width = config.hidden_size
        if isinstance(config, BertConfig):
            self.dense = nn.Linear(width, width)
            self.activation = activation(config.hidden_act)
            self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        else:
            self.dense = nn.Linear(width, width, bias=config.classifier_bias)
            self.activation = activation(config.classifier_activation)
            self.norm = nn.LayerNorm(width, eps=config.norm_eps, bias=config.norm_bias)

    def forward(self, hidden_TD: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(hidden_TD)))


def _fill(head: nn.Module, encoder: Encoder, seed: int) -> None:
    """Initial weights where the encoder's are; an encoder that is only an outline gets an outline of a head."""
    device = encoder.tokens.weight.device
    if device.type != "meta":
        initialize(head, encoder.config, seed, device)
