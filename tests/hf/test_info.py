"""What a folder holds is told from its headers, with numbers that can be checked by hand."""

import json

import pytest

import bertkit
from bertkit.cli import main
from bertkit.hf.info import describe
from bertkit.model import BertConfig, MaskedLM, ModernBertConfig, TokenTagger, build_encoder

CLASSIC = BertConfig(
    vocab_size=10, hidden_size=4, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8,
    max_position_embeddings=6,
)  # fmt: skip
MODERN = ModernBertConfig(
    vocab_size=10, hidden_size=4, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, local_attention=4
)


def test_parameters_by_part_by_hand(tmp_path):
    model = MaskedLM(build_encoder(CLASSIC))
    bertkit.save(model, tmp_path)
    info = describe(tmp_path)
    assert info.architecture == "BertForMaskedLM"
    assert info.parameters == {
        "embeddings": 10 * 4 + 6 * 4 + 2 * 4,
        "attention": 2 * 4 * (4 * 4 + 4),
        "mlp": 2 * (4 * 8 + 8 + 8 * 4 + 4),
        "norms": 2 * 4 * (1 + 2 * 2),
        "head": 4 * 4 + 4 + 2 * 4 + 10,
    }
    assert info.num_parameters == sum(parameter.numel() for parameter in model.parameters())
    assert info.memory == {"weights": 4 * info.num_parameters, "training state": 16 * info.num_parameters}


def test_operations_by_hand(tmp_path):
    bertkit.save(build_encoder(CLASSIC), tmp_path / "classic")
    # Four projections, two feed-forward products, scores and their sum over 5 keys; two blocks.
    assert describe(tmp_path / "classic", seq_len=5).flops_per_token == 2 * (2 * (4 * 16 + 2 * 32) + 4 * 5 * 4)
    bertkit.save(build_encoder(MODERN), tmp_path / "modern")
    # The MLP has a gate; the second block sees 2 to either side.
    whole, local = 4 * 100 * 4, 4 * 5 * 4
    assert describe(tmp_path / "modern", seq_len=100).flops_per_token == 2 * 2 * (4 * 16 + 3 * 32) + whole + local


def test_the_verb_shows_labels_and_sizes(tmp_path, capsys):
    bertkit.save(TokenTagger(build_encoder(MODERN), ["O", "B-LOC"]), tmp_path)
    assert main(["info", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    for part in ("ModernBertForTokenClassification", "2 layers", "labels (2)", "O B-LOC", "FLOPs per token", "MiB"):
        assert part in shown
    assert main(["info", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == ["O", "B-LOC"]


@pytest.mark.parametrize("size", [8, 10**10, 10**30])
def test_a_config_that_its_weights_deny_is_refused_in_one_line(size, tmp_path, capsys):
    bertkit.save(build_encoder(CLASSIC), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_size": size}))
    assert main(["info", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert "config.json" in shown.err


@pytest.mark.parametrize("seq_len", ["0", "-3"])
def test_a_length_must_be_positive(seq_len, tmp_path, capsys):
    bertkit.save(build_encoder(CLASSIC), tmp_path)
    assert main(["info", str(tmp_path), "--seq-len", seq_len]) == 2
    assert "--seq-len" in capsys.readouterr().err
