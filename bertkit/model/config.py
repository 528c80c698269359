"""The shape of an encoder, checked: Hugging Face's field names, free of heavy imports."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

from data_pipelines.bounds import OneOf, Range, check_bounds, marks_of

ActivationName = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"]
Activation = Annotated[ActivationName, OneOf(get_args(ActivationName))]
PoolerName = Literal["tanh", "relu", "gelu"]
LayerType = Literal["full_attention", "sliding_attention"]
Positions = Literal["absolute", "sinusoidal"]
Pooling = Literal["cls", "mean"]

# The upper bounds lie far beyond any encoder: a larger number is a typing error that would show only when memory ends.
Count = Annotated[int, Range("[1, inf)")]
Width = Annotated[int, Range("[1, 1048576]")]
MlpWidth = Annotated[int, Range("[1, 4194304]")]
Depth = Annotated[int, Range("[1, 1000]")]
Length = Annotated[int, Range("[1, 16777216]")]
Share = Annotated[float, Range("[0, 1)")]
Positive = Annotated[float, Range("(0, inf)")]


class SetBy(NamedTuple):
    """Marks a field that no recipe sets, with what sets it."""

    what: str


def set_by(config: type) -> dict[str, str]:
    """The fields of a config that no recipe sets, each with what sets it."""
    hints = get_type_hints(config, include_extras=True)
    return {name: mark.what for name, hint in hints.items() for mark in marks_of(hint) if isinstance(mark, SetBy)}


BY_TOKENIZER = SetBy("the tokenizer; set tokenizer.vocab_size or tokenizer.path")
BY_FOLDER = SetBy("the Hugging Face folder that a model is imported from")


class HeadStyle(NamedTuple):
    """How a family makes its heads."""

    activation: ActivationName
    """Nonlinearity of the transform: a dense layer, a nonlinearity, a norm."""
    norm_eps: float
    label_dropout: float
    """Dropout before label scores, while training."""
    dense_bias: bool = True
    norm_bias: bool = True
    decoder_bias: bool = True
    """Whether the vocabulary projection has a bias."""
    transforms_labels: bool = False
    """Whether hidden states pass a transform before they become label scores."""
    pooler: PoolerName | None = "tanh"
    """Nonlinearity of the dense layer between a sequence's vector and its label scores; None without such a layer."""
    pooled_dropout: float | None = None
    """Dropout before the label scores of a sequence; None for label_dropout."""
    pooling: Pooling = "cls"
    """How a sequence becomes one vector."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """What the config of every family holds; a family adds its own fields and says how its heads are made."""

    vocab_size: Annotated[Count, BY_TOKENIZER] = 30522
    """Number of tokens the encoder knows; the tokenizer must not have more."""

    hidden_size: Width = 768
    """Width of a token's hidden state."""

    num_hidden_layers: Depth = 12
    """Number of blocks."""

    num_attention_heads: Count = 12
    """Heads per block; they share the width evenly."""

    intermediate_size: MlpWidth = 3072
    """Width inside the feed-forward part of a block."""

    max_position_embeddings: Length = 512
    """Longest sequence."""

    initializer_range: Positive = 0.02
    """Standard deviation of the initial weights."""

    pad_token_id: Annotated[int | None, BY_TOKENIZER] = None
    """The token that fills rows; packed computation never embeds it."""

    tie_word_embeddings: bool = True
    """Whether the masked-LM head predicts with the embedding matrix."""

    model_type: Annotated[str, BY_FOLDER] = ""
    """What bertkit.hf writes the model as; a new model is written as what its family names here."""

    carried: Annotated[Any, BY_FOLDER] = field(default_factory=dict, compare=False)
    """Keys of an imported config.json that change nothing here, to be written again."""

    def __post_init__(self):
        check_bounds(self)
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size must be a multiple of num_attention_heads, "
                f"got {self.hidden_size} and {self.num_attention_heads}"
            )
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(f"pad_token_id must be in [0, vocab_size={self.vocab_size}), got {self.pad_token_id}")

    def windows(self) -> tuple[int | None, ...]:
        """How far each block sees to either side; None where it sees everything."""
        return (None,) * self.num_hidden_layers

    @property
    def has_token_types(self) -> bool:
        """Whether the encoder distinguishes the second of two texts from the first."""
        return False

    @property
    def is_rotary(self) -> bool:
        """Whether positions only tell how far tokens are from each other, however far that is."""
        return False

    def heads(self) -> HeadStyle:
        raise NotImplementedError(f"{type(self).__name__} does not define its heads")


@dataclass(frozen=True, kw_only=True)
class BertConfig(EncoderConfig):
    """The classic encoder: positions added to the embeddings, norms after the residual sums."""

    hidden_act: Activation = "gelu"
    """Nonlinearity of the feed-forward part and of the masked-LM head."""

    hidden_dropout_prob: Share = 0.1
    """Dropout on embeddings and on each block's two residual branches, while training."""

    attention_probs_dropout_prob: Share = 0.1
    """Dropout on attention weights, while training."""

    position_embedding_type: Annotated[Positions, OneOf(get_args(Positions))] = "absolute"
    """absolute: a learned vector for each position; sinusoidal: a fixed table (it is saved as weights, so a
    saved folder opens as an encoder with learned positions)."""

    type_vocab_size: Annotated[int, Range("[0, inf)")] = 2
    """Number of token types (first and second segment)."""

    layer_norm_eps: Positive = 1e-12
    """Added to the variance in every norm."""

    pad_token_id: Annotated[int | None, BY_TOKENIZER] = 0

    classifier_dropout: Share | None = None
    """Dropout before a classifier; like hidden_dropout_prob when not given."""

    model_type: Annotated[str, BY_FOLDER] = "bert"

    head_act: Annotated[Activation | None, BY_FOLDER] = None
    """Nonlinearity of the masked-LM head where it is not hidden_act."""

    pooled_act: Annotated[PoolerName, OneOf(get_args(PoolerName)), BY_FOLDER] = "tanh"
    """Nonlinearity of the dense layer before a sequence's label scores."""

    pooled_dropout: Annotated[Share | None, BY_FOLDER] = None
    """Dropout before a sequence's label scores where it is not that of a token's."""

    def __post_init__(self):
        super().__post_init__()
        if not self.type_vocab_size and self.model_type == "bert":
            raise ValueError(
                "type_vocab_size must be at least 1, got 0; transformers cannot load a BERT without token types"
            )

    @property
    def has_token_types(self) -> bool:
        return self.type_vocab_size > 1

    def heads(self) -> HeadStyle:
        return HeadStyle(
            activation=self.head_act or self.hidden_act,
            norm_eps=self.layer_norm_eps,
            label_dropout=self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout,
            pooler=self.pooled_act,
            pooled_dropout=self.pooled_dropout,
        )


@dataclass(frozen=True, kw_only=True)
class ModernBertConfig(EncoderConfig):
    """The modern encoder: rotary positions, norms before each part, a gated MLP, local and global attention."""

    vocab_size: Annotated[Count, BY_TOKENIZER] = 50368

    model_type: Annotated[str, BY_FOLDER] = "modernbert"

    num_hidden_layers: Depth = 22

    num_attention_heads: Count = 12
    """Heads per block; they share the width evenly, each an even number of channels."""

    intermediate_size: MlpWidth = 1152
    """Width of the gate and of the value inside the gated MLP."""

    max_position_embeddings: Length = 8192
    """Longest sequence the encoder is meant for; rotary positions do not enforce it."""

    hidden_activation: Activation = "gelu"
    """Nonlinearity of the MLP's gate."""

    global_attn_every_n_layers: Count = 3
    """Every n-th block, from the first, sees the whole sequence; the others see a window."""

    layer_types: tuple[Annotated[LayerType, OneOf(get_args(LayerType))], ...] = ()
    """Each block's kind of attention by name, where global_attn_every_n_layers is too regular."""

    local_attention: Count = 128
    """Window of a local block: a token sees half as many tokens to either side."""

    global_rope_theta: Positive = 160_000.0
    """Base of the rotary frequencies in global blocks."""

    local_rope_theta: Positive = 10_000.0
    """Base of the rotary frequencies in local blocks."""

    norm_eps: Positive = 1e-5
    """Added to the variance in every norm."""

    norm_bias: bool = False
    """Whether norms have biases."""

    attention_bias: bool = False
    """Whether the attention projections have biases."""

    mlp_bias: bool = False
    """Whether the MLP projections have biases."""

    embedding_dropout: Share = 0.0
    """Dropout on embeddings, while training."""

    attention_dropout: Share = 0.0
    """Dropout on attention weights and on what attention adds, while training."""

    mlp_dropout: Share = 0.0
    """Dropout inside the MLP, while training."""

    decoder_bias: bool = True
    """Whether the vocabulary projection has a bias."""

    classifier_bias: bool = False
    """Whether the dense layer of a head has a bias."""

    classifier_activation: Activation = "gelu"
    """Nonlinearity of a head."""

    classifier_dropout: Share = 0.0
    """Dropout before a classifier, while training."""

    classifier_pooling: Annotated[Pooling, OneOf(get_args(Pooling))] = "cls"
    """How a sequence becomes one vector where a classifier judges whole sequences."""

    initializer_cutoff_factor: Positive = 2.0
    """Initial weights lie within this many standard deviations."""

    def __post_init__(self):
        super().__post_init__()
        if self.hidden_size // self.num_attention_heads % 2:
            raise ValueError(
                f"hidden_size / num_attention_heads must be even for rotary positions, "
                f"got {self.hidden_size} / {self.num_attention_heads}"
            )
        if self.layer_types and len(self.layer_types) != self.num_hidden_layers:
            raise ValueError(
                f"layer_types must name {self.num_hidden_layers} blocks (num_hidden_layers), "
                f"got {len(self.layer_types)}"
            )

    def windows(self) -> tuple[int | None, ...]:
        types = self.layer_types or tuple(
            "sliding_attention" if layer % self.global_attn_every_n_layers else "full_attention"
            for layer in range(self.num_hidden_layers)
        )
        return tuple(self.local_attention // 2 if kind == "sliding_attention" else None for kind in types)

    @property
    def is_rotary(self) -> bool:
        return True

    def heads(self) -> HeadStyle:
        return HeadStyle(
            activation=self.classifier_activation,
            norm_eps=self.norm_eps,
            label_dropout=self.classifier_dropout,
            dense_bias=self.classifier_bias,
            norm_bias=self.norm_bias,
            decoder_bias=self.decoder_bias,
            transforms_labels=True,
            pooler=None,
            pooling=self.classifier_pooling,
        )
