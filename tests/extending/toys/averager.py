"""An encoder family: in place of attention, every token sees the mean of its sequence."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertkit.hf.model_types import MODEL_TYPES, ModelType
from bertkit.model.config import EncoderConfig, HeadStyle
from bertkit.model.encoder import Encoder
from bertkit.model.families import FAMILIES, Family
from bertkit.model.packing import Packed

# T tokens in the pack, S sequences, D width


@dataclass(frozen=True, kw_only=True)
class AveragerConfig(EncoderConfig):
    """Every token sees the mean of its sequence."""

    model_type: str = "averager"

    def heads(self) -> HeadStyle:
        return HeadStyle(activation="gelu", norm_eps=1e-5, label_dropout=0.0)


class Averager(Encoder):
    def __init__(self, config: AveragerConfig):
        super().__init__(config)
        width = config.hidden_size
        self.tokens = nn.Embedding(config.vocab_size, width)
        self.layers = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(config.num_hidden_layers))

    def encode(self, batch: Packed, at: Tensor | None = None) -> Tensor:
        hidden_TD = self.tokens(batch.input_ids)
        length_S = batch.cu_seqlens.diff().long()
        sequence_T = torch.repeat_interleave(length_S)
        for layer in self.layers:
            sum_SD = hidden_TD.new_zeros(len(length_S), hidden_TD.shape[1]).index_add(0, sequence_T, hidden_TD)
            mean_TD = (sum_SD / length_S[:, None])[sequence_T]
            hidden_TD = hidden_TD + layer(torch.cat([hidden_TD, mean_TD], dim=1)).relu()
        return hidden_TD if at is None else hidden_TD[at]


FAMILIES.add("averager", Family(AveragerConfig, "averager:Averager"))
MODEL_TYPES.add(
    "averager",
    ModelType(
        config=AveragerConfig,
        class_name="Averager",
        prefix="averager.",
        names={"tokens": "averager.tokens", "layers.*": "averager.layers.*", "head.classifier": "classifier"},
    ),
)
