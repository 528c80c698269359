"""The classic encoder computes what transformers' BERT computes, and what it promises beyond."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import reference_transformers

from bertkit.config.fields import build
from bertkit.model import BertConfig, MaskedLM, build_encoder
from bertkit.model.initialization import sinusoids

torch.set_num_threads(1)
TINY = BertConfig(
    vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
    max_position_embeddings=24, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3,
)  # fmt: skip


@st.composite
def bert_settings(draw):
    heads = draw(st.sampled_from([1, 2, 3]))
    return {
        "vocab_size": draw(st.integers(20, 90)),
        "hidden_size": heads * draw(st.sampled_from([4, 6, 8])),
        "num_attention_heads": heads,
        "num_hidden_layers": draw(st.integers(1, 3)),
        "intermediate_size": draw(st.sampled_from([7, 32])),
        "hidden_act": draw(st.sampled_from(["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"])),
        "layer_norm_eps": draw(st.sampled_from([1e-12, 1e-5, 1e-3])),
        "type_vocab_size": draw(st.integers(1, 3)),
        "max_position_embeddings": draw(st.integers(16, 30)),
        "initializer_range": draw(st.sampled_from([0.02, 0.2])),
        "tie_word_embeddings": draw(st.booleans()),
    }


@settings(max_examples=30, deadline=None)
@given(
    values=bert_settings(),
    head=st.sampled_from(["Model", "ForMaskedLM", "ForTokenClassification", "ForSequenceClassification"]),
    lengths=st.lists(st.integers(1, 16), min_size=1, max_size=4),
)
def test_outputs_gradients_and_weights_agree_with_transformers(tmp_path_factory, values, head, lengths):
    transformers = reference_transformers()
    from parity import assert_import_and_export_agree

    torch.manual_seed(0)
    theirs = getattr(transformers, f"Bert{head}")(transformers.BertConfig(**values, num_labels=3))
    assert_import_and_export_agree(
        theirs,
        getattr(transformers, f"AutoModel{head.removeprefix('Model')}"),
        tmp_path_factory.mktemp("bert"),
        lengths,
        token_type_ids=lambda ids: ids % values["type_vocab_size"],
    )


def test_the_same_seed_gives_the_same_weights_and_touches_no_global_generator():
    before = torch.get_rng_state()
    first, second, other = (MaskedLM(build_encoder(TINY, seed), seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["encoder.tokens.weight"], other["encoder.tokens.weight"])
    assert first["encoder.tokens.weight"].std() == pytest.approx(0.02, rel=0.1)


def test_sinusoids_by_hand():
    table = sinusoids(3, 4)
    expected = [math.sin(2), math.cos(2), math.sin(2 / 100), math.cos(2 / 100)]
    assert table[2].tolist() == pytest.approx(expected)
    assert table[0].tolist() == [0, 1, 0, 1]


def test_sinusoidal_positions_stay_fixed_and_export_as_weights(tmp_path):
    transformers = reference_transformers()
    import bertkit

    config = build(BertConfig, {"vocab_size": 40, "hidden_size": 16, "num_attention_heads": 2,
                                "intermediate_size": 8, "num_hidden_layers": 1, "max_position_embeddings": 9,
                                "position_embedding_type": "sinusoidal"})  # fmt: skip
    model = MaskedLM(build_encoder(config)).eval()
    assert not model.encoder.positions.weight.requires_grad
    bertkit.save(model, tmp_path)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)
    ids = torch.arange(5, 14)[None]
    torch.testing.assert_close(model(ids), theirs(ids).logits)
    assert bertkit.load(tmp_path).encoder.positions.weight.requires_grad


def test_dropout_is_for_training_and_comes_from_the_global_generator():
    encoder = build_encoder(TINY)
    ids = torch.arange(5, 17)[None]
    assert torch.equal(encoder.eval()(ids), encoder(ids))
    encoder.train()
    outputs = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        outputs.append(encoder(ids))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_gradient_checkpointing_changes_no_gradient():
    grads = []
    for checkpointing in (False, True):
        encoder = build_encoder(TINY).train()
        encoder.gradient_checkpointing = checkpointing
        torch.manual_seed(0)
        encoder(torch.arange(5, 17)[None]).square().sum().backward()
        grads.append({name: parameter.grad for name, parameter in encoder.named_parameters()})
    assert all(torch.equal(grads[0][name], grads[1][name]) for name in grads[0])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": 10, "num_attention_heads": 3}, "num_attention_heads.* 10.* 3"),
        ({"num_hidden_layers": 0}, "num_hidden_layers.* 1.* 0"),
        ({"hidden_dropout_prob": 1.5}, r"hidden_dropout_prob.* \[0, 1\).* 1.5"),
        ({"layer_norm_eps": 0}, "layer_norm_eps.* 0"),
        ({"pad_token_id": 99999}, "pad_token_id must be in"),
        ({"hidden_act": "gellu"}, "hidden_act must be one of .* did you mean 'gelu'"),
        ({"hiden_size": 4}, "'hiden_size'.*'hidden_size'"),
    ],
)
def test_a_config_that_cannot_be_is_refused_by_key(values, message):
    with pytest.raises(ValueError, match=message):
        build(BertConfig, values)


@pytest.mark.parametrize("values", [{"hidden_act": "gellu"}, {"position_embedding_type": "sinusoid"}])
def test_a_kind_that_is_none_is_refused_in_python_too(values):
    """Positions of an unknown kind would be frozen at random."""
    with pytest.raises(ValueError, match=f"{next(iter(values))} must be one of "):
        BertConfig(**values)
