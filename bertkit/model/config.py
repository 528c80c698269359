"""The shape of an encoder, checked: Hugging Face's field names, free of heavy imports."""

from dataclasses import dataclass
from typing import Literal, get_args

Activation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"]
LayerType = Literal["full_attention", "sliding_attention"]
Positions = Literal["absolute", "sinusoidal"]
Pooling = Literal["cls", "mean"]


@dataclass(frozen=True, kw_only=True)
class BertConfig:
    """The classic encoder: positions added to the embeddings, norms after the residual sums."""

    vocab_size: int = 30522
    """Number of tokens the encoder knows; the tokenizer must not have more."""

    hidden_size: int = 768
    """Width of a token's hidden state."""

    num_hidden_layers: int = 12
    """Number of blocks."""

    num_attention_heads: int = 12
    """Heads per block; they share the width evenly."""

    intermediate_size: int = 3072
    """Width inside the feed-forward part of a block."""

    hidden_act: Activation = "gelu"
    """Nonlinearity of the feed-forward part and of the masked-LM head."""

    hidden_dropout_prob: float = 0.1
    """Dropout on embeddings and on each block's two residual branches, while training."""

    attention_probs_dropout_prob: float = 0.1
    """Dropout on attention weights, while training."""

    max_position_embeddings: int = 512
    """Longest sequence."""

    position_embedding_type: Positions = "absolute"
    """absolute: a learned vector for each position; sinusoidal: a fixed table (it is saved as weights, so a
    saved folder opens as an encoder with learned positions)."""

    type_vocab_size: int = 2
    """Number of token types (first and second segment)."""

    initializer_range: float = 0.02
    """Standard deviation of the initial weights."""

    layer_norm_eps: float = 1e-12
    """Added to the variance in every norm."""

    pad_token_id: int | None = 0
    """The token that fills rows; packed computation never embeds it."""

    classifier_dropout: float | None = None
    """Dropout before a classifier; like hidden_dropout_prob when not given."""

    tie_word_embeddings: bool = True
    """Whether the masked-LM head predicts with the embedding matrix."""

    def __post_init__(self):
        _check_sizes(self, "type_vocab_size", "max_position_embeddings")
        _check_shares(self, "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
        _check_positive(self, "layer_norm_eps", "initializer_range")
        _check_choice("hidden_act", self.hidden_act, Activation)
        _check_choice("position_embedding_type", self.position_embedding_type, Positions)


@dataclass(frozen=True, kw_only=True)
class ModernBertConfig:
    """The modern encoder: rotary positions, norms before each part, a gated MLP, local and global attention."""

    vocab_size: int = 50368
    """Number of tokens the encoder knows; the tokenizer must not have more."""

    hidden_size: int = 768
    """Width of a token's hidden state."""

    num_hidden_layers: int = 22
    """Number of blocks."""

    num_attention_heads: int = 12
    """Heads per block; they share the width evenly, each an even number of channels."""

    intermediate_size: int = 1152
    """Width of the gate and of the value inside the gated MLP."""

    hidden_activation: Activation = "gelu"
    """Nonlinearity of the MLP's gate."""

    max_position_embeddings: int = 8192
    """Longest sequence the encoder is meant for; rotary positions do not enforce it."""

    global_attn_every_n_layers: int = 3
    """Every n-th block, from the first, sees the whole sequence; the others see a window."""

    layer_types: tuple[LayerType, ...] = ()
    """Each block's kind of attention by name, where global_attn_every_n_layers is too regular."""

    local_attention: int = 128
    """Window of a local block: a token sees half as many tokens to either side."""

    global_rope_theta: float = 160_000.0
    """Base of the rotary frequencies in global blocks."""

    local_rope_theta: float = 10_000.0
    """Base of the rotary frequencies in local blocks."""

    norm_eps: float = 1e-5
    """Added to the variance in every norm."""

    norm_bias: bool = False
    """Whether norms shift as well as scale."""

    attention_bias: bool = False
    """Whether the attention projections have biases."""

    mlp_bias: bool = False
    """Whether the MLP projections have biases."""

    embedding_dropout: float = 0.0
    """Dropout on embeddings, while training."""

    attention_dropout: float = 0.0
    """Dropout on attention weights and on what attention adds, while training."""

    mlp_dropout: float = 0.0
    """Dropout inside the MLP, while training."""

    decoder_bias: bool = True
    """Whether the vocabulary projection has a bias."""

    classifier_bias: bool = False
    """Whether the dense layer of a head has a bias."""

    classifier_activation: Activation = "gelu"
    """Nonlinearity of a head."""

    classifier_dropout: float = 0.0
    """Dropout before a classifier, while training."""

    classifier_pooling: Pooling = "cls"
    """How a sequence becomes one vector where a classifier judges whole sequences."""

    initializer_range: float = 0.02
    """Standard deviation of the initial weights."""

    initializer_cutoff_factor: float = 2.0
    """Initial weights lie within so many standard deviations."""

    pad_token_id: int | None = None
    """The token that fills rows; packed computation never embeds it."""

    tie_word_embeddings: bool = True
    """Whether the masked-LM head predicts with the embedding matrix."""

    def __post_init__(self):
        _check_sizes(self, "max_position_embeddings", "global_attn_every_n_layers", "local_attention")
        _check_shares(self, "embedding_dropout", "attention_dropout", "mlp_dropout", "classifier_dropout")
        _check_positive(self, "norm_eps", "initializer_range", "initializer_cutoff_factor")
        _check_positive(self, "global_rope_theta", "local_rope_theta")
        _check_choice("hidden_activation", self.hidden_activation, Activation)
        _check_choice("classifier_activation", self.classifier_activation, Activation)
        _check_choice("classifier_pooling", self.classifier_pooling, Pooling)
        for index, kind in enumerate(self.layer_types):
            _check_choice(f"layer_types[{index}]", kind, LayerType)
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
        """How far each block sees to either side; None where it sees everything."""
        types = self.layer_types or tuple(
            "sliding_attention" if layer % self.global_attn_every_n_layers else "full_attention"
            for layer in range(self.num_hidden_layers)
        )
        return tuple(self.local_attention // 2 if kind == "sliding_attention" else None for kind in types)


EncoderConfig = BertConfig | ModernBertConfig


def _check_sizes(config: EncoderConfig, *names: str) -> None:
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", *names)
    for name in sizes:
        if getattr(config, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(config, name)}")
    if config.hidden_size % config.num_attention_heads:
        raise ValueError(
            f"hidden_size must be a multiple of num_attention_heads, "
            f"got {config.hidden_size} and {config.num_attention_heads}"
        )
    if config.pad_token_id is not None and not 0 <= config.pad_token_id < config.vocab_size:
        raise ValueError(f"pad_token_id must lie in [0, vocab_size={config.vocab_size}), got {config.pad_token_id}")


def _check_shares(config: EncoderConfig, *names: str) -> None:
    for name in names:
        share = getattr(config, name)
        if share is not None and not 0 <= share < 1:
            raise ValueError(f"{name} must lie in [0, 1), got {share}")


def _check_positive(config: EncoderConfig, *names: str) -> None:
    for name in names:
        if not getattr(config, name) > 0:
            raise ValueError(f"{name} must be greater than 0, got {getattr(config, name)}")


def _check_choice(name: str, value: object, choices: object) -> None:
    """What Python code builds without `fields.build` must not slip through: an unknown kind would pass for another."""
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}, got {value!r}")
