"""The modern encoder computes what transformers' ModernBERT computes, in both spellings of its config."""

import json
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import reference_transformers

from bertkit.config.fields import build
from bertkit.model import ModernBertConfig, build_encoder, pack
from bertkit.model.rotation import Rotation, project_rotated, rotate

torch.set_num_threads(1)
TINY = ModernBertConfig(
    vocab_size=40, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24,
    local_attention=6,
)  # fmt: skip


@st.composite
def modernbert_settings(draw):
    heads = draw(st.sampled_from([1, 2, 3]))
    depth = draw(st.integers(1, 3))
    kinds = st.sampled_from(["full_attention", "sliding_attention"])
    thetas = st.sampled_from([100.0, 10_000.0, 160_000.0])
    activations = st.sampled_from(["gelu", "silu", "relu", "gelu_pytorch_tanh"])
    return {
        "vocab_size": draw(st.integers(20, 90)),
        "hidden_size": heads * draw(st.sampled_from([4, 6, 8])),
        "num_attention_heads": heads,
        "num_hidden_layers": depth,
        "intermediate_size": draw(st.sampled_from([7, 32])),
        "hidden_activation": draw(activations),
        "classifier_activation": draw(activations),
        "norm_eps": draw(st.sampled_from([1e-12, 1e-5, 1e-3])),
        "local_attention": draw(st.sampled_from([1, 2, 7, 8, 64])),
        "layer_types": draw(st.lists(kinds, min_size=depth, max_size=depth)),
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": draw(thetas)}
            for kind in ("full_attention", "sliding_attention")
        },
        "initializer_range": draw(st.sampled_from([0.02, 0.2])),
        "pad_token_id": 0,
        **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
        **{
            name: draw(st.booleans())
            for name in ("norm_bias", "attention_bias", "mlp_bias", "decoder_bias", "classifier_bias")
        },
        "tie_word_embeddings": draw(st.booleans()),
    }


@settings(max_examples=30, deadline=None)
@given(
    values=modernbert_settings(),
    head=st.sampled_from(["Model", "ForMaskedLM", "ForTokenClassification"]),
    lengths=st.lists(st.integers(1, 24), min_size=1, max_size=4),
)
def test_outputs_gradients_and_weights_agree_with_transformers(tmp_path_factory, values, head, lengths):
    transformers = reference_transformers()
    from parity import assert_import_and_export_agree

    torch.manual_seed(0)
    theirs = getattr(transformers, f"ModernBert{head}")(transformers.ModernBertConfig(**values, num_labels=3))
    assert_import_and_export_agree(
        theirs,
        getattr(transformers, f"AutoModel{head.removeprefix('Model')}"),
        tmp_path_factory.mktemp("modernbert"),
        lengths,
    )


def test_the_older_spelling_of_the_config_means_the_same(tmp_path):
    """Published files name two thetas and an interval instead of rope_parameters and layer_types."""
    import bertkit

    bertkit.save(build_encoder(TINY), tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    newer = bertkit.load(tmp_path)
    for key in ("rope_parameters", "layer_types"):
        del values[key]
    values |= {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "global_attn_every_n_layers": 3,
               "layer_norm_eps": 1e-5, "position_embedding_type": "absolute", "reference_compile": True}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(values))
    older = bertkit.load(tmp_path)
    assert older.config.windows() == newer.config.windows() == (None, 3, 3)
    ids = torch.arange(5, 35)[None]
    assert torch.equal(older(ids), newer(ids))
    values["local_rope_theta"] = None
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert bertkit.load(tmp_path).config.local_rope_theta == 160000.0


def test_the_first_block_has_no_attention_norm():
    encoder = build_encoder(TINY)
    assert encoder.layers[0].attention_norm is None
    assert encoder.layers[1].attention_norm is not None


def test_the_first_half_of_the_mlp_is_the_one_that_is_activated():
    encoder = build_encoder(TINY).eval()
    layer = encoder.layers[0]
    batch, _ = pack(torch.arange(5, 10)[None])
    hidden, rotations = encoder.embed(batch), encoder.rotations(batch.position_ids)
    with torch.no_grad():
        layer.mlp_in.weight *= 50
        layer.mlp_out.weight *= 50
        found = layer(hidden, batch, rotations)
        mlp_out = layer.mlp_out.weight.clone()
        layer.mlp_out.weight.zero_()
        attended = layer(hidden, batch, rotations)
        first, second = (layer.mlp_norm(attended) @ layer.mlp_in.weight.T).chunk(2, dim=-1)
        expected, swapped = (attended + (F.gelu(a) * b) @ mlp_out.T for a, b in ((first, second), (second, first)))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert (found - swapped).abs().max() > 0.1


def test_hidden_states_see_as_far_as_the_windows_add_up_to():
    config = build(ModernBertConfig, {**vars(TINY), "layer_types": ["sliding_attention"] * 3})
    encoder = build_encoder(config).eval()
    embedded = []
    encoder.tokens.register_forward_hook(lambda *call: embedded.append(call[-1]))
    hidden = encoder(torch.arange(5, 35)[None])[0]
    (grad,) = torch.autograd.grad(hidden[15].square().sum(), embedded[0])
    seen = (grad.abs().sum(-1) > 0).nonzero().squeeze(1).tolist()
    assert seen == list(range(15 - 9, 15 + 9 + 1))


def test_rotary_positions_are_relative():
    """Only distances count: a sequence that starts at position 100 computes the same."""
    encoder = build_encoder(TINY).eval()
    packed, _ = pack(torch.arange(5, 25)[None])
    moved = packed._replace(position_ids=packed.position_ids + 100)
    torch.testing.assert_close(encoder(moved), encoder(packed), atol=1e-5, rtol=1e-5)


def test_initial_weights_are_cut_off_and_smaller_where_they_feed_the_residual():
    encoder = build_encoder(TINY)
    inner, outer = encoder.layers[1].attention_in.weight, encoder.layers[1].attention_out.weight
    assert inner.abs().max() <= 0.04
    assert outer.abs().max() <= 0.04 / 6**0.5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": 9, "num_attention_heads": 3}, "hidden_size / num_attention_heads.* 9 / 3"),
        ({"layer_types": ["full_attention"]}, "layer_types must name 22 blocks .* got 1"),
        ({"layer_types": ["local"] * 22}, r"layer_types\[0\].* full_attention, sliding_attention"),
        ({"local_attention": 0}, "local_attention.* 1"),
        ({"global_rope_theta": -1}, "global_rope_theta.* 0"),
    ],
)
def test_a_config_that_cannot_be_is_refused_by_key(values, message):
    with pytest.raises(ValueError, match=message):
        build(ModernBertConfig, values)


@pytest.mark.parametrize(
    "values",
    [
        {"layer_types": ("full_attention", "local"), "num_hidden_layers": 2},
        {"hidden_activation": "gellu"},
        {"classifier_activation": "gellu"},
        {"classifier_pooling": "max"},
    ],
)
def test_a_kind_that_is_none_is_refused_in_python_too(values):
    """A block of an unknown kind would see everything."""
    with pytest.raises(ValueError, match=rf"{next(iter(values))}(\[1\])? must be one of "):
        ModernBertConfig(**values)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_turning_is_a_rotation_and_its_gradient_turns_back(dtype):
    rotation = Rotation.of(torch.tensor([0, 1, 7]), head_size=4, theta=100.0)
    values = torch.randn(3, 3, 2, 4, dtype=dtype, generator=torch.Generator().manual_seed(0), requires_grad=True)
    turned = rotate(values, rotation, 2)
    assert turned.dtype == dtype
    assert torch.equal(turned[:, 2], values[:, 2])
    # By hand: channels 0 and 2 of the token at position 7 turn by 7, channels 1 and 3 by 7 / sqrt(100).
    x, y = values[2, 0, 0, 1], values[2, 0, 0, 3]
    expected = x * math.cos(0.7) - y * math.sin(0.7)
    torch.testing.assert_close(turned[2, 0, 0, 1], expected, atol=1e-2 if dtype == torch.bfloat16 else 1e-6, rtol=0)
    direction = torch.randn(turned.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    (grad,) = torch.autograd.grad((turned * direction).sum(), values)
    torch.testing.assert_close(
        rotate(grad, rotation, 2), direction, atol=3e-2 if dtype == torch.bfloat16 else 1e-6, rtol=0
    )


def test_the_rotation_keeps_torchs_rules():
    rotation = Rotation.of(torch.arange(3), head_size=4, theta=100.0)
    torch.library.opcheck(torch.ops.bertkit.rotate, (torch.randn(3, 2, 2, 4, requires_grad=True), *rotation[:2], 1))


@pytest.mark.parametrize("num_tokens", [3, 40], ids=["what weights give is reordered", "weights are reordered"])
@pytest.mark.parametrize("bias", [False, True])
def test_turning_planes_as_complex_numbers_changes_nothing_but_the_order_of_channels(num_tokens, bias):
    """Products of queries and keys, the values, and the gradients of all that is trained."""
    generator = torch.Generator().manual_seed(0)
    qkv = torch.nn.Linear(8, 24, bias=bias)
    for parameter in qkv.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    hidden = torch.randn(num_tokens, 8, generator=generator, requires_grad=True)
    direction = torch.randn(num_tokens, num_tokens, generator=generator)
    rotation = Rotation.of(torch.arange(num_tokens), head_size=4, theta=100.0)
    assert rotation.factors is not None

    def products(rotation, at):
        """What attention makes of them, and the gradients."""
        query = project_rotated(qkv, hidden[at], 2, rotation.at(at), last=1).squeeze(1)
        key, value = project_rotated(qkv, hidden, 2, rotation, first=1).unbind(1)
        whole = project_rotated(qkv, hidden, 2, rotation)
        assert whole.shape == (num_tokens, 3, 2, 4)
        scores = torch.einsum("qhe,khe->qkh", query, key)
        torch.testing.assert_close(torch.einsum("qhe,khe->qkh", whole[at, 0], whole[:, 1]), scores)
        torch.testing.assert_close(whole[:, 2], value)
        loss = (scores.sum(2) * direction[at]).sum() + (whole[:, 2] * hidden.detach().view_as(value)).sum()
        return scores, value, *torch.autograd.grad(loss, [hidden, *qkv.parameters()])

    for at in (torch.arange(num_tokens), torch.tensor([0, 2])):
        expected = products(rotation._replace(factors=None), at)
        for found, wanted in zip(products(rotation, at), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
