"""Packed attention is attention inside each sequence, whatever the backend, the window or the neighbours."""

from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.model import attention as dispatch
from bertkit.model import attention_tiles
from bertkit.model.attention import attention, attention_at, attention_weights

torch.set_num_threads(1)


def packed(lengths, heads=2, channels=8, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    qkv = torch.randn(sum(lengths), 3, heads, channels, generator=generator, dtype=dtype, requires_grad=True)
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).int()
    return qkv, cu_seqlens, max(lengths, default=0)


def by_hand(qkv, lengths, window=None, prefixes=None):
    """Each sequence on its own, with torch's own attention and a dense mask."""
    parts = []
    for number, rows in enumerate(qkv.split(lengths)):
        query, key, value = rows.permute(1, 2, 0, 3)
        place = torch.arange(len(rows))
        seen = (place[:, None] - place).abs() <= (len(rows) if window is None else window)
        if prefixes is not None:
            seen &= (place <= place[:, None]) | (place < prefixes[number])
        parts.append(F.scaled_dot_product_attention(query, key, value, attn_mask=seen).transpose(0, 1))
    return torch.cat(parts)


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12) | st.just(7) | st.integers(60, 150), min_size=1, max_size=6),
    window=st.none() | st.integers(1, 70),
    together=st.sampled_from([0, 10, 40, 400]),
    asked=st.none() | st.sets(st.integers(0, 900), min_size=1),
    prefixes=st.none() | st.lists(st.integers(0, 9) | st.integers(60, 200), min_size=6, max_size=6),
)
def test_context_and_gradient_are_those_of_each_sequence_alone(lengths, window, together, asked, prefixes):
    """Whether short neighbours share a call or not, for all tokens or some, whatever a token may see."""
    qkv, cu_seqlens, longest = packed(lengths)
    prefixes = None if prefixes is None else torch.tensor(prefixes[: len(lengths)], dtype=torch.int32)
    at = None if asked is None else torch.tensor(sorted({place % sum(lengths) for place in asked}))
    with mock.patch.object(attention_tiles, "CALL_COST", together**2 * 16):
        if at is None:
            ours = attention(qkv, cu_seqlens, longest, window, prefixes_S=prefixes)
        else:
            ours = attention_at(at, qkv[at, 0], qkv[:, 1:], cu_seqlens, longest, window, prefixes_S=prefixes)
        expected = by_hand(qkv, lengths, window, prefixes)
        expected = expected if at is None else expected[at]
        torch.testing.assert_close(ours, expected)
        direction = torch.randn(ours.shape, dtype=ours.dtype, generator=torch.Generator().manual_seed(1))
        (grad,) = torch.autograd.grad((ours * direction).sum(), qkv)
    (expected_grad,) = torch.autograd.grad((expected * direction).sum(), qkv)
    torch.testing.assert_close(grad, expected_grad)


def test_empty_sequences_between_others_change_nothing():
    qkv, cu_seqlens, longest = packed([3, 5])
    with_empty = torch.tensor([0, 0, 3, 3, 3, 8, 8], dtype=torch.int32)
    assert torch.equal(attention(qkv, cu_seqlens, longest), attention(qkv, with_empty, longest))


def kernel_for_a_pack(query, key, value, cu_queries, cu_keys, max_seqlen, reach, dropout):
    """What the kernels for whole packs compute, which themselves need a GPU: a reach counts from equal places, so it
    needs as many queries as keys."""
    assert reach == (-1, -1) or cu_queries is cu_keys
    assert dropout == 0
    assert max_seqlen >= cu_keys.diff().max()
    left, right = (max_seqlen if end < 0 else end for end in reach)
    context = torch.zeros_like(query)
    for sequence in range(len(cu_keys) - 1):
        queries, keys = (slice(cu[sequence], cu[sequence + 1]) for cu in (cu_queries, cu_keys))
        q, k, v = (part.transpose(0, 1) for part in (query[queries], key[keys], value[keys]))
        places = torch.arange(k.shape[1])
        behind = places[: q.shape[1], None] - places
        hidden = (behind > left) | (behind < -right)
        weights = (q @ k.transpose(1, 2) * q.shape[-1] ** -0.5).masked_fill(hidden, -torch.inf).softmax(-1)
        context[queries] = (weights @ v).transpose(0, 1)
    return context


@pytest.mark.parametrize("prefixes", [None, [0, 0, 0, 0], [1, 9, 1, 3], [3, 20, 0, 0]])
@pytest.mark.parametrize("window", [None, 2, 4, 100])
def test_the_kernels_for_whole_packs_are_called_with_the_right_borders(monkeypatch, window, prefixes):
    monkeypatch.setattr(dispatch, "_varlen_kernel", lambda values, window: kernel_for_a_pack)
    lengths = [3, 9, 1, 5]
    qkv, cu_seqlens, longest = packed(lengths)
    prefixes = None if prefixes is None else torch.tensor(prefixes, dtype=torch.int32)
    expected = by_hand(qkv, lengths, window, prefixes)
    torch.testing.assert_close(attention(qkv, cu_seqlens, longest, window, prefixes_S=prefixes), expected)
    at = torch.tensor([1, 4, 7, 12, 17])
    some = attention_at(at, qkv[at, 0], qkv[:, 1:], cu_seqlens, longest, window, prefixes_S=prefixes)
    torch.testing.assert_close(some, expected[at])


@pytest.mark.parametrize(
    ("dtype", "head_size", "windowed", "capability", "kernel"),
    [
        (torch.bfloat16, 64, True, (9, 0), "flash"),
        (torch.float16, 64, False, (8, 0), "flash"),
        (torch.bfloat16, 20, True, (8, 9), "flash"),
        (torch.float32, 64, False, (9, 0), "efficient"),
        (torch.bfloat16, 64, False, (7, 5), "efficient in float32"),
        (torch.float16, 64, False, (7, 5), "efficient"),
        (torch.bfloat16, 256, False, (9, 0), "efficient"),
        (torch.float32, 64, True, (9, 0), "none"),
        (torch.bfloat16, 64, True, (7, 5), "none"),
        (torch.float64, 64, False, (9, 0), "none"),
    ],
)
def test_what_a_gpu_has_a_fused_kernel_for(monkeypatch, caplog, dtype, head_size, windowed, capability, kernel):
    """What is slower than it could be is told, once, with the key that avoids it."""
    monkeypatch.setattr(dispatch, "_capability", lambda device: capability)
    dispatch._tell_slow.cache_clear()
    names = {dispatch._name_of_kernel(dtype, head_size > dispatch._MOST_CHANNELS, windowed, 0) for _ in range(3)}
    assert names == {kernel}
    slower = kernel == "none" or (kernel != "flash" and dtype != torch.float32)
    assert ["train.precision" in record.message for record in caplog.records] == [True] * slower


def test_an_empty_pack_gives_an_empty_context():
    qkv, cu_seqlens, _ = packed([])
    assert attention(qkv, cu_seqlens, 0).shape == (0, 2, 8)


@pytest.mark.parametrize("window", [1, 2, 5, 64, 100])
def test_a_window_reaches_exactly_as_far_as_it_says(window):
    length, at = 260, 130
    qkv, cu_seqlens, longest = packed([length])
    context = attention(qkv, cu_seqlens, longest, window)
    (grad,) = torch.autograd.grad(context[at].sum(), qkv)
    seen = grad[:, 1:].abs().sum((1, 2, 3)) > 0
    assert seen.nonzero().squeeze(1).tolist() == list(range(at - window, at + window + 1))


def test_weights_on_request_are_those_that_attention_uses():
    lengths = [4, 1, 9]
    qkv, cu_seqlens, longest = packed(lengths)
    weights = attention_weights(qkv, cu_seqlens, window=3)
    assert [tuple(w.shape) for w in weights] == [(2, n, n) for n in lengths]
    context = torch.cat(
        [(w @ v[:, 2].transpose(0, 1)).transpose(0, 1) for w, v in zip(weights, qkv.split(lengths), strict=True)]
    )
    torch.testing.assert_close(context, attention(qkv, cu_seqlens, longest, window=3))
    assert all(torch.allclose(w.sum(-1), torch.ones((), dtype=w.dtype)) for w in weights)


@pytest.mark.parametrize("window", [None, 2])
def test_dropout_has_the_gradient_of_its_own_draw(window):
    qkv, cu_seqlens, longest = packed([3, 3, 5], heads=1, channels=4)

    def dropped(values):
        torch.manual_seed(7)
        return attention(values, cu_seqlens, longest, window, dropout=0.4)

    assert not torch.equal(dropped(qkv), attention(qkv, cu_seqlens, longest, window))
    assert torch.autograd.gradcheck(dropped, (qkv,))


def test_dropout_keeps_the_mean():
    qkv, cu_seqlens, longest = packed([6])
    torch.manual_seed(0)
    mean = sum(attention(qkv, cu_seqlens, longest, dropout=0.3).detach() for _ in range(4000)) / 4000
    torch.testing.assert_close(mean, attention(qkv, cu_seqlens, longest).detach(), atol=0.06, rtol=0)


def test_no_dropout_leaves_the_global_generator_alone():
    qkv, cu_seqlens, longest = packed([6])
    before = torch.get_rng_state()
    attention(qkv, cu_seqlens, longest)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("prefix", [0, 3])
def test_what_comes_later_leaks_into_nothing_before_it(prefix):
    qkv, cu_seqlens, longest = packed([8])
    context = attention(qkv, cu_seqlens, longest, prefixes_S=torch.tensor([prefix], dtype=torch.int32))
    for place in range(8):
        (grad,) = torch.autograd.grad(context[place].sum(), qkv, retain_graph=True)
        seen = grad.abs().sum((1, 2, 3)) != 0
        assert seen.tolist() == [other <= place or other < prefix for other in range(8)]


def test_a_sequence_does_not_notice_its_neighbours():
    qkv, cu_seqlens, longest = packed([5, 6, 7])
    context = attention(qkv, cu_seqlens, longest)
    (grad,) = torch.autograd.grad(context[5:11].sum(), qkv)
    assert grad[5:11].abs().sum() > 0
    assert grad[:5].abs().sum() == 0
    assert grad[11:].abs().sum() == 0


@pytest.mark.parametrize("operator", ["packed_attention", "packed_attention_backward"])
def test_the_operators_keep_torchs_rules(operator):
    qkv, cu_seqlens, _ = packed([3, 4], dtype=torch.float32)
    seed, prefixes = torch.zeros((), dtype=torch.int64), torch.tensor([1, 4], dtype=torch.int32)
    if operator == "packed_attention":
        torch.library.opcheck(
            torch.ops.bertkit.packed_attention, (None, qkv, cu_seqlens, None, -1, 0.0, seed, prefixes)
        )
        return
    with torch.no_grad():
        context, denominator = torch.ops.bertkit.packed_attention(None, qkv, cu_seqlens, None, -1, 0.0, seed, prefixes)
    arguments = (context, None, qkv.detach(), context, denominator, cu_seqlens, None, -1, 0.0, seed, prefixes)
    torch.library.opcheck(torch.ops.bertkit.packed_attention_backward, arguments)
