"""Packing loses nothing: padded, packed and one by one are the same computation."""

import pytest
import torch

from bertkit.model import BertConfig, MaskedLM, ModernBertConfig, TokenTagger, build_encoder, pack, unpack

torch.set_num_threads(1)

CONFIGS = [
    BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=40,
    ),
    ModernBertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24,
        global_attn_every_n_layers=2, local_attention=6,
    ),
]  # fmt: skip
encoders = pytest.mark.parametrize("config", CONFIGS, ids=["bert", "modernbert"])


def ragged(lengths, width=None, seed=0):
    """Ids and mask of right-padded rows."""
    width = width or max(lengths)
    ids = torch.randint(5, 50, (len(lengths), width), generator=torch.Generator().manual_seed(seed))
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    return ids, mask


@encoders
def test_a_packed_batch_without_targets_gives_logits(config):
    model = MaskedLM(build_encoder(config)).eval()
    ids, mask = ragged([3, 7])
    packed, _ = pack(ids, mask)
    assert torch.equal(model(packed), model(ids, mask)[mask == 1])
    assert model(packed).shape == (10, config.vocab_size)


def test_packing_keeps_tokens_positions_and_borders():
    ids = torch.tensor([[7, 8, 9], [4, 5, 6], [1, 2, 3]])
    packed, index = pack(ids, torch.tensor([[1, 1, 0], [0, 0, 0], [0, 1, 1]]), ids + 10)
    assert packed.input_ids.tolist() == [7, 8, 2, 3]
    assert packed.position_ids.tolist() == [0, 1, 0, 1]
    assert packed.cu_seqlens.tolist() == [0, 2, 2, 4]
    assert packed.cu_seqlens.dtype == torch.int32
    assert packed.max_seqlen == 2
    assert packed.token_type_ids.tolist() == [17, 18, 12, 13]
    assert unpack(packed.input_ids, index, ids.shape).tolist() == [[7, 8, 0], [0, 0, 0], [0, 2, 3]]


def test_a_gap_in_the_mask_is_refused_by_row():
    with pytest.raises(ValueError, match="gap in row 1"):
        pack(torch.ones(2, 3, dtype=torch.long), torch.tensor([[1, 1, 1], [1, 0, 1]]))


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"attention_mask.*input_ids.*\(2, 3\).*\(2, 4\)"):
        pack(torch.ones(2, 3, dtype=torch.long), torch.ones(2, 4))


@encoders
def test_padded_and_packed_and_one_by_one_agree(config):
    encoder = build_encoder(config, seed=1).eval()
    lengths = [1, 33, 2, 17, 17, 3]
    ids, mask = ragged(lengths, width=36)
    padded = encoder(ids, mask)
    packed, index = pack(ids, mask)
    assert torch.equal(unpack(encoder(packed), index, ids.shape), padded)
    assert padded[mask == 0].abs().sum() == 0
    for row, length in enumerate(lengths):
        torch.testing.assert_close(encoder(ids[row : row + 1, :length])[0], padded[row, :length])


@encoders
def test_padding_on_the_left_and_on_the_right_mean_the_same(config):
    encoder = build_encoder(config, seed=1).eval()
    ids, mask = ragged([3, 7])
    right = encoder(ids, mask)
    left = encoder(ids.roll(4, 1), mask.roll(4, 1))
    torch.testing.assert_close(left[0, 4:], right[0, :3])


@encoders
def test_the_order_of_rows_does_not_matter(config):
    encoder = build_encoder(config, seed=1).eval()
    ids, mask = ragged([5, 9, 1, 9, 4])
    order = torch.tensor([3, 0, 4, 2, 1])
    torch.testing.assert_close(encoder(ids[order], mask[order]), encoder(ids, mask)[order])


@encoders
def test_what_stands_in_the_padding_does_not_matter(config):
    encoder = build_encoder(config, seed=1).eval()
    ids, mask = ragged([5, 9])
    assert torch.equal(encoder(ids * mask, mask), encoder(ids, mask))


@encoders
def test_fully_padded_rows_are_zero_and_have_finite_gradients(config):
    model = MaskedLM(build_encoder(config, seed=1))
    ids, mask = ragged([4, 0, 2])
    logits = model(ids, mask)
    assert logits[1].abs().sum() == 0
    logits.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert model(ids, torch.zeros_like(mask)).abs().sum() == 0


@encoders
def test_no_information_flows_between_packed_documents(config):
    encoder = build_encoder(config, seed=1).eval()
    ids, mask = ragged([6, 8, 5])
    packed, _ = pack(ids, mask)
    embedded = []
    encoder.tokens.register_forward_hook(lambda *call: embedded.append(call[-1]))
    hidden = encoder(packed)
    (grad,) = torch.autograd.grad(hidden[6:14].square().sum(), embedded[0])
    reached = grad.abs().sum(1) > 0
    assert reached.nonzero().squeeze(1).tolist() == list(range(6, 14))


@encoders
@pytest.mark.parametrize("prefixes", [[0, 0, 0], [3, 0, 5]])
def test_a_token_sees_what_came_before_it_and_the_prefix(config, prefixes):
    """So the end of a sequence can be cut off without a change of what stands before it."""
    encoder = build_encoder(config, seed=1).eval()
    lengths = [6, 8, 5]
    ids, mask = ragged(lengths)
    packed, _ = pack(ids, mask)
    packed = packed._replace(prefixes=torch.tensor(prefixes, dtype=torch.int32))
    hidden = encoder(packed).split(lengths)
    at = torch.tensor([1, 5, 7, 18])
    torch.testing.assert_close(encoder.encode(packed, at), torch.cat(hidden)[at])
    for row, (length, prefix) in enumerate(zip(lengths, prefixes, strict=True)):
        for end in range(max(1, prefix), length + 1):
            alone, _ = pack(ids[row : row + 1, :end])
            alone = alone._replace(prefixes=torch.tensor([prefix], dtype=torch.int32))
            torch.testing.assert_close(encoder(alone), hidden[row][:end])


def padded_attention(qkv, cu_seqlens, longest, window=None, dropout=0.0, prefixes=None):
    """Attention of padded rows, the softmax and what a token may see written out."""
    lengths = cu_seqlens.diff()
    real = torch.arange(longest) < lengths[:, None]
    padded = qkv.new_zeros(len(lengths), longest, *qkv.shape[1:])
    padded[real] = qkv
    query, key, value = padded.permute(2, 0, 3, 1, 4)
    place = torch.arange(longest)
    seen = real[:, None, :].expand(-1, longest, -1)
    if window is not None:
        seen = seen & ((place[:, None] - place).abs() <= window)
    if prefixes is not None:
        seen = seen & ((place <= place[:, None]) | (place < prefixes[:, None, None]))
    seen = seen | torch.eye(longest, dtype=torch.bool)  # padding sees itself, or its softmax would divide by zero
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    weights = scores.masked_fill(~seen[:, None], -torch.inf).softmax(-1)
    return (weights @ value).transpose(1, 2)[real]


def padded_attention_at(at, query, key_value, cu_seqlens, longest, window, dropout, prefixes):
    everything = torch.cat([torch.zeros_like(key_value[:, :1]).index_copy(0, at, query[:, None]), key_value], dim=1)
    return padded_attention(everything, cu_seqlens, longest, window, dropout, prefixes)[at]


@encoders
@pytest.mark.parametrize("prefixes", [None, [0, 0, 0, 0], [3, 0, 12, 1]], ids=["all", "causal", "prefix"])
def test_packed_is_padded_with_the_mask_written_out_forward_and_backward(config, prefixes, monkeypatch):
    """ModernBERT's second block has a window."""
    encoder = build_encoder(config, seed=1).double()
    packed, _ = pack(*ragged([6, 9, 12, 2]))
    if prefixes is not None:
        packed = packed._replace(prefixes=torch.tensor(prefixes, dtype=torch.int32))
    at, results = torch.tensor([1, 5, 7, 20, 28]), []
    for reference in (False, True):
        if reference:
            monkeypatch.setattr("bertkit.model.cache.attention", padded_attention)
            monkeypatch.setattr("bertkit.model.cache.attention_at", padded_attention_at)
        encoder.zero_grad()
        hidden = encoder.eval()(packed)
        (hidden.square().sum() + encoder.encode(packed, at).pow(3).sum()).backward()
        results.append([hidden, *(param.grad for param in encoder.parameters())])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected)


@encoders
def test_nothing_that_comes_later_moves_what_came_before(config):
    encoder = build_encoder(config, seed=1).eval()
    packed, _ = pack(*ragged([9]))
    embedded = []
    encoder.tokens.register_forward_hook(lambda *call: embedded.append(call[-1]))
    hidden = encoder(packed._replace(prefixes=torch.tensor([4], dtype=torch.int32)))
    for place in range(9):
        (grad,) = torch.autograd.grad(hidden[place].square().sum(), embedded[0], retain_graph=True)
        assert grad[max(place + 1, 4) :].abs().sum() == 0
        assert (grad[: max(place + 1, 4)].abs().sum(1) > 0).all()


@encoders
def test_heads_give_logits_for_padded_and_packed_alike(config):
    tagger = TokenTagger(build_encoder(config, seed=1), ["O", "B-X", "I-X"]).eval()
    ids, mask = ragged([4, 1, 2])
    packed, index = pack(ids, mask)
    assert tagger(ids, mask).shape == (3, 4, 3)
    assert torch.equal(unpack(tagger(packed), index, ids.shape), tagger(ids, mask))


def test_positions_beyond_the_table_are_refused():
    encoder = build_encoder(CONFIGS[0])
    with pytest.raises(ValueError, match=r"41 tokens.*max_position_embeddings=40"):
        encoder(torch.ones(1, 41, dtype=torch.long))


@encoders
@pytest.mark.parametrize("padded", [True, False])
def test_ids_outside_the_vocabulary_are_refused(config, padded):
    encoder = build_encoder(config)
    for bad in (-1, 50):
        ids = torch.tensor([[5, bad]])
        with pytest.raises(ValueError, match=rf"input_ids.*\[0, 50\).* {bad}"):
            encoder(ids if padded else pack(ids)[0])


def test_token_types_outside_their_table_are_refused():
    with pytest.raises(ValueError, match=r"token_type_ids.*\[0, 2\).* 2"):
        build_encoder(CONFIGS[0])(torch.tensor([[5]]), token_type_ids=torch.tensor([[2]]))


@pytest.mark.parametrize("value", [2, -1, 0.5, float("nan")])
def test_a_mask_holds_zeros_and_ones(value):
    ids = torch.tensor([[5, 6]])
    with pytest.raises(ValueError, match=rf"attention_mask.* {value}"):
        pack(ids, torch.tensor([[1, value]]))
    for mask in (torch.tensor([[True, False]]), torch.tensor([[1.0, 0.0]])):
        assert pack(ids, mask)[0].input_ids.tolist() == [5]


def test_rows_without_columns_are_refused():
    with pytest.raises(ValueError, match=r"input_ids.*\(2, 0\)"):
        pack(torch.zeros(2, 0, dtype=torch.int64))
