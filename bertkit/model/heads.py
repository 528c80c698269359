"""Heads on an encoder: they predict masked tokens, the labels of tokens, or the label of a sequence."""

# B rows, L padded length, T tokens in the pack, M masked tokens, D width, V vocabulary, K labels

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.graph import Graph
from bertkit.model.config import EncoderConfig, HeadStyle
from bertkit.model.encoder import Encoder, activation, name_of
from bertkit.model.initialization import initialize
from bertkit.model.loss import summed_cross_entropy
from bertkit.model.packing import Packed, computed_packed, pack
from bertkit.model.products.linear import Linear, linear
from data_pipelines.table import Table


class ModelWithHead(nn.Module):
    """An encoder and a head on it: what is trained, saved and asked."""

    kind: ClassVar[str]
    """Which head it is."""
    architecture: ClassVar[str]
    """What transformers calls such a model, after the name of its family."""
    takes_labels: ClassVar[bool] = True
    """Whether labels follow the encoder when one is made."""
    judges_sequences: ClassVar[bool] = False
    """Whether it answers once for a sequence rather than for each token."""
    labels: tuple[str, ...] = ()
    head: Any

    def __init__(self, encoder: Encoder, head: nn.Module, seed: int):
        """`head` has no memory yet; it gets initial weights where the encoder's are. An encoder that is only an
        outline gets an outline of a head."""
        super().__init__()
        initialize(head, encoder, seed)
        self.head = head
        self.encoder = encoder
        self.config = encoder.config

    def forward(
        self, input_ids: Any, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Logits: (T, ...) of a packed batch, (B, L, ...) of padded rows."""
        return computed_packed(self.logits, input_ids, attention_mask, token_type_ids)

    def logits(self, batch: Packed) -> Tensor:
        """Logits of every token."""
        return self.head(self.encoder.encode(batch))

    def target_logits(self, batch: Any) -> Tensor:
        """Logits at the batch's targets only."""
        raise NotImplementedError

    def graph(self, graph: Graph) -> str:
        """Write down what `forward` computes of padded rows; the name of the logits."""
        return self.head.graph(graph, self.encoder.graph(graph))

    def decoder_weights(self) -> int:
        """Number of weights in a projection that is outside the head's own layers."""
        return 0


class MaskedLM(ModelWithHead):
    """Predicts the token at a position: transform, norm, projection to the vocabulary."""

    kind = "masked-lm"
    architecture = "ForMaskedLM"
    takes_labels = False
    head: "VocabularyHead"

    def __init__(self, encoder: Encoder, seed: int = 0):
        with torch.device("meta"):
            head = VocabularyHead(encoder.config)
        encoder.take_pooler()
        super().__init__(encoder, head, seed)

    def forward(
        self, input_ids: Any, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """The summed loss of a packed batch with targets; logits, (T, V) of one without, (B, L, V) of padded rows."""
        if getattr(input_ids, "target_index", None) is not None:
            return self.loss(input_ids)
        return super().forward(input_ids, attention_mask, token_type_ids)

    def loss(self, batch: Any) -> Tensor:
        """Cross-entropy summed over the batch's targets. Only they are projected to the vocabulary, and only they
        pass through the last block."""
        at, order = self.places(batch).sort()
        hidden_MD = self.head.transform(self.encoder.encode(batch, at))
        return summed_cross_entropy(hidden_MD, self.decoder_weight, self.head.decoder_bias, batch.target_ids[order])

    def target_logits(self, batch: Any) -> Tensor:
        """Logits (M, V) at the batch's targets, in their order."""
        at, order = self.places(batch).sort()
        return self.project(self.encoder.encode(batch, at))[order.argsort()]

    def places(self, batch: Any) -> Tensor:
        """Where the batch's targets are told: at their own places."""
        return batch.target_index

    def logits(self, batch: Packed) -> Tensor:
        """Logits (T, V) at every token."""
        return self.project(self.encoder.encode(batch))

    def project(self, hidden_TD: Tensor) -> Tensor:
        return linear(self.head.transform(hidden_TD), self.decoder_weight, self.head.decoder_bias)

    def graph(self, graph: Graph) -> str:
        hidden = self.head.transform.graph(graph, self.encoder.graph(graph))
        weight = graph("Transpose", graph.weight(self.decoder_weight), perm=[1, 0])
        logits, bias = graph("MatMul", hidden, weight), self.head.decoder_bias
        return logits if bias is None else graph("Add", logits, graph.weight(bias))

    @property
    def decoder_weight(self) -> Tensor:
        """(V, D), the embedding matrix where the two are tied."""
        return self.encoder.tokens.weight if self.head.decoder_weight is None else self.head.decoder_weight

    def decoder_weights(self) -> int:
        return self.decoder_weight.numel()


class TokenTagger(ModelWithHead):
    """Gives every token a score for each label."""

    kind = "tagger"
    architecture = "ForTokenClassification"
    head: "LabelHead"

    def __init__(self, encoder: Encoder, labels: Sequence[str], seed: int = 0):
        _check_labels(labels)
        with torch.device("meta"):
            head = LabelHead(encoder.config, len(labels))
        encoder.take_pooler()
        super().__init__(encoder, head, seed)
        self.labels = tuple(labels)

    def target_logits(self, batch: Any) -> Tensor:
        """Logits (M, K) at the batch's targets, which must ascend; last block and head run on them only."""
        return self.head(self.encoder.encode(batch, batch.target_index))


class SequenceClassifier(ModelWithHead):
    """Gives every sequence a score for each label, from its first token or from the mean of all."""

    kind = "classifier"
    architecture = "ForSequenceClassification"
    judges_sequences = True
    head: "PooledHead"

    def __init__(self, encoder: Encoder, labels: Sequence[str], seed: int = 0):
        _check_labels(labels)
        with torch.device("meta"):
            head = PooledHead(encoder.config, len(labels))
        pooler = encoder.take_pooler()
        super().__init__(encoder, head, seed)
        if pooler is not None and head.pooler is not None:
            # A pooler that pretraining left behind is where this head begins.
            head.pooler = pooler
        self.labels = tuple(labels)

    def forward(
        self, input_ids: Packed | Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Logits: (S, K) of a packed batch, (B, K) of padded rows."""
        batch = pack(input_ids, attention_mask, token_type_ids)[0] if isinstance(input_ids, Tensor) else input_ids
        return self.target_logits(batch)

    def target_logits(self, batch: Any) -> Tensor:
        """Logits (S, K), one row a sequence."""
        if self.head.pooling == "cls":
            return self.head(self.encoder.encode(batch, batch.cu_seqlens[:-1].long()))
        hidden_TD = self.encoder.encode(batch)
        lengths_S = batch.cu_seqlens.diff().long()
        # The size is known here; a GPU would be waited for to tell it.
        sequence_T = torch.arange(len(lengths_S), device=hidden_TD.device)
        sequence_T = sequence_T.repeat_interleave(lengths_S, output_size=len(hidden_TD))
        sum_SD = hidden_TD.new_zeros(len(lengths_S), hidden_TD.shape[1]).index_add(0, sequence_T, hidden_TD)
        return self.head(sum_SD / lengths_S[:, None])


HEADS: Table[Any] = Table("head", {cls.kind: cls for cls in (MaskedLM, TokenTagger, SequenceClassifier)})
"""The heads by kind."""


class VocabularyHead(nn.Module):
    """The weights of a masked-LM head. Tied weights exist once, in the encoder: nothing counts, decays or saves
    them twice."""

    decoder_weight: nn.Parameter | None
    decoder_bias: nn.Parameter | None

    def __init__(self, config: EncoderConfig):
        super().__init__()
        style = config.heads()
        self.transform = Transform(config.hidden_size, style)
        self.decoder_weight = None
        if not config.tie_word_embeddings:
            self.decoder_weight = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size))
        self.decoder_bias = None
        if style.decoder_bias:
            self.decoder_bias = nn.Parameter(torch.empty(config.vocab_size))


class PooledHead(nn.Module):
    """The vector of a sequence to label scores, through a dense layer first where the family has one."""

    def __init__(self, config: EncoderConfig, num_labels: int):
        super().__init__()
        style = config.heads()
        self.pooling = style.pooling
        self.pooler: nn.Linear | None = None
        if style.pooler is not None:
            self.pooler = Linear(config.hidden_size, config.hidden_size)
            self.activation = activation(style.pooler)
        self.labels = LabelHead(config, num_labels)
        if style.pooled_dropout is not None:
            self.labels.dropout = style.pooled_dropout

    def forward(self, pooled_SD: Tensor) -> Tensor:
        return self.labels(pooled_SD if self.pooler is None else self.activation(self.pooler(pooled_SD)))

    def graph(self, graph: Graph, hidden: str) -> str:
        pooled = graph.pooled(hidden, self.pooling)
        if self.pooler is not None:
            pooled = graph.activation(name_of(self.activation), graph.linear(self.pooler, pooled))
        return self.labels.graph(graph, pooled)


class LabelHead(nn.Module):
    """Hidden states to label scores, through a transform first where the family has one."""

    def __init__(self, config: EncoderConfig, num_labels: int):
        super().__init__()
        style = config.heads()
        self.transform = Transform(config.hidden_size, style) if style.transforms_labels else None
        self.dropout = style.label_dropout
        self.classifier = Linear(config.hidden_size, num_labels)

    def forward(self, hidden_TD: Tensor) -> Tensor:
        if self.transform is not None:
            hidden_TD = self.transform(hidden_TD)
        return self.classifier(F.dropout(hidden_TD, self.dropout, self.training))

    def graph(self, graph: Graph, hidden: str) -> str:
        if self.transform is not None:
            hidden = self.transform.graph(graph, hidden)
        return graph.linear(self.classifier, hidden)


class Transform(nn.Module):
    """Between an encoder and a projection: a dense layer, a nonlinearity, a norm."""

    def __init__(self, width: int, style: HeadStyle):
        super().__init__()
        self.dense = Linear(width, width, bias=style.dense_bias)
        self.activation = activation(style.activation)
        self.norm = nn.LayerNorm(width, eps=style.norm_eps, bias=style.norm_bias)

    def forward(self, hidden_TD: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(hidden_TD)))

    def graph(self, graph: Graph, hidden: str) -> str:
        return graph.norm(self.norm, graph.activation(name_of(self.activation), graph.linear(self.dense, hidden)))


def _check_labels(labels: Sequence[str]) -> None:
    if len(set(labels)) != len(labels) or not labels:
        raise ValueError(f"labels must be a non-empty list of distinct names, got {list(labels)}")
