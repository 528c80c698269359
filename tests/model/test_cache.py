"""A sequence that grows token by token with kept keys and values is computed as one that is there at once; and what
came before never depends on what comes after."""

# T tokens in the pack, D width

from types import SimpleNamespace

import pytest
import torch

from bertkit.model import build_encoder
from bertkit.model.cache import Cache
from bertkit.model.config import BertConfig, ModernBertConfig

BERT = BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
MODERN = ModernBertConfig(
    vocab_size=30,
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=24,
    global_attn_every_n_layers=2,
    local_attention=6,
)


def packed(sequences, prefixes, cache=None, first=0):
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return SimpleNamespace(
        input_ids=torch.tensor([token for sequence in sequences for token in sequence]),
        position_ids=torch.cat([torch.arange(length) for length in lengths]) + first,
        cu_seqlens=torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int(),
        max_seqlen=int(lengths.max()),
        prefixes=None if prefixes is None else torch.tensor(prefixes, dtype=torch.int32),
        cache=cache,
    )


@pytest.mark.parametrize("config", [BERT, MODERN])
@pytest.mark.parametrize("asked", ["all", "last"])
def test_a_growing_sequence_is_computed_as_a_whole_one(config, asked):
    encoder = build_encoder(config).eval()
    sources, target = [[5, 6, 7], [8, 9, 10, 11, 12]], [13, 14, 15, 16, 17, 18]
    lengths = [len(source) for source in sources]
    cache = Cache(torch.tensor(lengths), room=len(target))
    ends = torch.tensor([lengths[0] - 1, sum(lengths) - 1])
    with torch.no_grad():
        encoder.encode(packed(sources, lengths, cache), ends if asked == "last" else None)
        for count, token in enumerate(target, start=1):
            step = packed([[token]] * 2, None, cache, first=torch.tensor(lengths) + count - 1)
            grown = encoder.encode(step, torch.arange(2) if asked == "last" else None)
            cache.grown()
            whole = [source + target[:count] for source in sources]
            hidden_TD = encoder.encode(packed(whole, lengths))
            last = torch.tensor([len(whole[0]) - 1, len(whole[0]) + len(whole[1]) - 1])
            torch.testing.assert_close(grown, hidden_TD[last], rtol=1e-4, atol=1e-5)


def test_a_cache_continues_with_the_sequences_that_are_chosen():
    encoder = build_encoder(BERT).eval()
    cache = Cache(torch.tensor([2, 3]), room=1)
    with torch.no_grad():
        encoder.encode(packed([[5, 6], [7, 8, 9]], [2, 3], cache))
        cache.select(torch.tensor([1, 1]))
        grown = encoder.encode(packed([[10], [11]], None, cache, first=3))
        for index, token in enumerate((10, 11)):
            whole = encoder.encode(packed([[7, 8, 9, token]], [3]))
            torch.testing.assert_close(grown[index], whole[-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("config", [BERT, MODERN])
@pytest.mark.parametrize("prefix", [0, 3], ids=["causal", "prefix"])
def test_nothing_leaks_back_from_what_comes_after(config, prefix):
    encoder = build_encoder(config).eval()
    batch = packed([[5, 6, 7, 8, 9, 10, 11]], [prefix])
    embedded = []
    encoder.tokens.register_forward_hook(lambda *call: embedded.append(call[-1]) or call[-1].retain_grad())
    encoder.encode(batch)[4].square().sum().backward()
    gradient_T = embedded[0].grad.abs().sum(dim=1)
    assert (gradient_T[5:] == 0).all()
    assert (gradient_T[:5] > 0).all()
    if prefix:
        # A token of the prefix sees all of it, and nothing of the rest.
        embedded.clear()
        encoder.encode(batch)[0].square().sum().backward()
        gradient_T = embedded[0].grad.abs().sum(dim=1)
        assert (gradient_T[:prefix] > 0).all()
        assert (gradient_T[prefix:] == 0).all()
