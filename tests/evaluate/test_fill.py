"""Masks are filled one at a time, in the order asked for, with what was filled before in view."""

import io
import json
import math

import pytest
import torch

import bertkit
from bertkit.cli import main
from bertkit.evaluate.fill import FillMask, _filled
from bertkit.model import BertConfig, MaskedLM, build_encoder
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

torch.set_num_threads(1)
TEXT = "paris is the [MASK] of [MASK]."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "corpus.txt").write_text("paris is the capital of france.\n\nberlin is the capital of germany.\n" * 20)
    tokenizer = train_tokenizer(
        CorpusConfig(corpus=[str(folder / "corpus.txt")]), TokenizerConfig(vocab_size=120), folder
    )
    config = BertConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, initializer_range=1.0, max_position_embeddings=32,
    )  # fmt: skip
    bertkit.save(MaskedLM(build_encoder(config, seed=5)), folder, tokenizer)
    return folder


def probabilities(fill: FillMask, text: str) -> torch.Tensor:
    """(masks, vocabulary), all computed the plain way; special tokens are nobody's candidates."""
    ids = torch.tensor([fill.backend.encode(text).ids])
    with torch.no_grad():
        return without_special(fill, fill.model(ids)[0][ids[0] == fill.mask_id].softmax(-1))


def without_special(fill: FillMask, shares: torch.Tensor) -> torch.Tensor:
    shares[:, fill.special_ids] = 0
    return shares


def test_candidates_are_the_likeliest_tokens_with_their_probabilities(folder):
    fill = FillMask(folder)
    filled = fill("paris is the [MASK] of france.", top_k=4)
    expected = probabilities(fill, "paris is the [MASK] of france.")[0].topk(4)
    assert [candidate.id for candidate in filled.masks[0]] == expected.indices.tolist()
    assert [candidate.probability for candidate in filled.masks[0]] == pytest.approx(expected.values.tolist(), rel=1e-4)


def test_left_to_right_fills_the_first_mask_first(folder):
    fill = FillMask(folder)
    filled = fill(TEXT, top_k=2)
    first = int(probabilities(fill, TEXT)[0].argmax())
    assert filled.masks[0][0].id == first
    ids = fill.backend.encode(TEXT).ids
    ids[ids.index(fill.mask_id)] = first
    with torch.no_grad():
        second = without_special(fill, fill.model(torch.tensor([ids]))[0].softmax(-1))[ids.index(fill.mask_id)]
    assert filled.masks[1][0].id == int(second.argmax())
    assert filled.masks[1][0].probability == pytest.approx(float(second.max()), rel=1e-4)


def test_easiest_first_fills_the_surest_mask_first(folder):
    fill = FillMask(folder)
    shares = probabilities(fill, TEXT)
    surest = int(shares.max(-1).values.argmax())
    filled = fill(TEXT, order="easiest-first")
    assert filled.masks[surest][0].id == int(shares[surest].argmax())
    assert filled.masks[surest][0].probability == pytest.approx(float(shares[surest].max()), rel=1e-4)


def test_together_all_masks_are_filled_at_once_and_the_unsure_ones_again(folder):
    """With two masks and two passes the surer one stays, and the other sees it."""
    fill = FillMask(folder)
    shares = probabilities(fill, TEXT)
    surest = int(shares.max(-1).values.argmax())
    once, twice = (fill(TEXT, order="together", passes=passes) for passes in (1, 2))
    assert [mask[0].id for mask in once.masks] == shares.argmax(-1).tolist()
    assert twice.masks[surest][0].id == once.masks[surest][0].id
    easiest = fill(TEXT, order="easiest-first")
    assert [mask[0].id for mask in twice.masks] == [mask[0].id for mask in easiest.masks]


def test_a_pass_leaves_as_many_masks_open_as_passes_remain(folder, monkeypatch):
    fill = FillMask(folder)
    asked = []
    candidates = FillMask._candidates
    monkeypatch.setattr(FillMask, "_candidates", lambda self, ids, places, top_k: asked.append(len(places)) or candidates(self, ids, places, top_k))  # fmt: skip # noqa: E501
    fill("[MASK] " * 8, order="together", passes=4)
    assert asked == [8, 6, 4, 2]
    asked.clear()
    fill("[MASK]", order="together", passes=4)
    assert asked == [1]


def test_a_span_has_the_length_whose_tokens_are_surest(folder):
    fill = FillMask(folder)
    by_length = {n: fill("paris is " + " ".join(["[MASK]"] * n) + " france.") for n in (1, 2, 3)}
    best = max(by_length.values(), key=lambda filled: filled.score)
    assert fill("paris is [SPAN] france.", max_span=3) == best
    assert len(fill("[SPAN] is the [SPAN].", max_span=1).masks) == 2
    hand = sum(math.log(mask[0].probability) for mask in best.masks) / len(best.masks)
    assert best.score == pytest.approx(hand)


def test_the_text_keeps_its_case_and_pieces_join_their_word():
    assert _filled("Paris is [MASK].", ["big"]) == "Paris is big."
    assert _filled("[MASK] is walk [MASK].", ["She", "##ing"]) == "She is walking."


@pytest.mark.parametrize(
    ("text", "tokens", "spaced", "filled"),
    [
        ("a [MASK] b [MASK] c", ["[MASK]", "x"], False, "a [MASK] b x c"),
        ("walk[MASK]", ["ing"], False, "walk ing"),
        ("walk[MASK]", ["##ing"], True, "walking"),
        ("walk [MASK]", ["##ing"], True, "walking"),
        ("walk[MASK]", ["home"], True, "walk home"),
        ("walk [MASK][MASK]", ["home", "##s"], True, "walk homes"),
        ("[MASK] home", ["walk"], True, "walk home"),
        ("([MASK])", ["home"], False, "(home)"),
        ("中[MASK]", ["国"], False, "中国"),
    ],
)
def test_a_token_stands_in_its_mask_apart_from_or_close_to_its_left_neighbour(text, tokens, spaced, filled):
    assert _filled(text, tokens, spaced) == filled


def test_special_tokens_are_no_candidates(folder):
    fill = FillMask(folder)
    found = fill("paris is the [MASK] of france.", top_k=10_000).masks[0]
    assert {candidate.id for candidate in found} == set(range(fill.vocab_size)) - set(fill.special_ids)


@pytest.mark.parametrize("mark", ["Ġ", "▁"])
def test_words_and_pieces_of_every_vocabulary_are_shown_apart(mark, tmp_path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", f"{mark}walk", f"{mark}ing", "ing"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    byte_level = mark == "Ġ"
    backend.pre_tokenizer = pre_tokenizers.ByteLevel() if byte_level else pre_tokenizers.Metaspace()
    backend.decoder = decoders.ByteLevel() if byte_level else decoders.Metaspace()
    backend.add_special_tokens([*words[:4], "[MASK]"])
    backend.save(str(tmp_path / "tokenizer.json"))
    config = BertConfig(vocab_size=8, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
    model = MaskedLM(build_encoder(config))
    for likeliest, shown, filled in ((6, "ing", "walk ing now"), (7, "##ing", "walking now")):
        with torch.no_grad():
            model.head.decoder_bias.zero_()[likeliest] = 50
        bertkit.save(model, tmp_path)
        fill = FillMask(tmp_path)
        assert fill.backend.encode(fill._as_trained("walk [MASK]")).ids == [5, 4]
        for text in ("walk [MASK] now", "walk[MASK] now"):
            found = fill(text)
            assert found.masks[0][0].token == shown
            assert found.text == filled


def test_what_cannot_be_filled_is_refused(folder, tmp_path):
    fill = FillMask(folder)
    with pytest.raises(ValueError, match=r"\[MASK\].*'no mask'"):
        fill("no mask")
    with pytest.raises(ValueError, match=r"top_k.* 1.* 0"):
        fill(TEXT, top_k=0)
    with pytest.raises(ValueError, match=r"passes.* 1.* 0"):
        fill(TEXT, order="together", passes=0)
    with pytest.raises(ValueError, match=r"order.*left-to-right, easiest-first, together.*'right'"):
        fill(TEXT, order="right")
    with pytest.raises(ValueError, match="max_position_embeddings=32"):
        fill("[MASK] " + "paris " * 40)
    bertkit.save(
        build_encoder(BertConfig(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1)), tmp_path
    )
    with pytest.raises(ValueError, match=r"Bert.*MaskedLM"):
        FillMask(tmp_path)


def test_the_verb_reads_arguments_and_standard_input(folder, capsys, monkeypatch):
    assert main(["fill", "--model", str(folder), "--top-k", "2", "--json", TEXT, "[MASK]"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == [TEXT, "[MASK]"]
    assert [len(mask) for mask in lines[0]["masks"]] == [2, 2]
    assert set(lines[0]["masks"][0][0]) == {"token", "id", "probability"}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{TEXT}\n\n".encode())))
    assert main(["fill", "--model", str(folder), "--max-span", "0", TEXT]) == 2
    assert "--max-span" in capsys.readouterr().err
    assert main(["fill", "--model", str(folder), "--passes", "2", TEXT]) == 2
    assert "--order together" in capsys.readouterr().err
    assert main(["fill", "--model", str(folder), "--order", "together", "--passes", "2", TEXT]) == 0
    capsys.readouterr()
    assert main(["fill", "--model", str(folder), "--order", "easiest-first"]) == 0
    shown = capsys.readouterr().out
    assert "mask 2" in shown
    assert "%" in shown


def test_a_bad_line_is_named_and_the_rest_goes_on(folder, capsys, monkeypatch):
    lines = b"paris is [MASK]\r\nno mask\n\npar\xff [MASK]\n[MASK]"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert main(["fill", "--model", str(folder), "--json"]) == 2
    shown = capsys.readouterr()
    assert [json.loads(line)["text"] for line in shown.out.splitlines()] == ["paris is [MASK]", "[MASK]"]
    errors = shown.err.splitlines()
    assert len(errors) == 2
    assert errors[0].startswith("bertkit: standard input, line 2: nothing to fill")
    assert errors[1].startswith("bertkit: standard input, line 4: 'utf-8' codec can't decode byte 0xff")


def test_control_codes_in_a_vocabulary_do_not_reach_the_terminal(folder, capsys):
    assert main(["fill", "--model", str(folder), "paris \x1b[31m [MASK]"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_in_bf16_masks_are_filled_alike_but_for_rounding(folder):
    whole, half = (FillMask.load(folder, backend=backend)(TEXT) for backend in ("torch", "bf16"))
    assert half.score != whole.score
    assert half.score == pytest.approx(whole.score, abs=0.1)


def test_in_bf16_a_masked_loss_is_the_same_but_for_rounding(folder, tmp_path):
    losses = {}
    for backend in ("torch", "bf16"):
        path = tmp_path / f"{backend}.json"
        corpus = str(folder / "corpus.txt")
        assert main(["evaluate", str(folder), corpus, "--backend", backend, "--json", str(path)]) == 0
        losses[backend] = json.loads(path.read_text())["loss"]
    assert losses["bf16"] != losses["torch"]
    assert losses["bf16"] == pytest.approx(losses["torch"], rel=0.01)
