"""Attention pages show the model's own weights, and numbers that can be worked out by hand."""

import base64
import json
import math
import re

import numpy as np
import pytest
import torch
from browser import Browser, find_browser
from grammar import write_corpus

import bertkit
from bertkit.cli import main
from bertkit.model import BertConfig, MaskedLM, ModernBertConfig, build_encoder
from bertkit.report.attention import MOST_TOKENS, attention_of, layer_numbers
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

torch.set_num_threads(1)

SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
TEXT = "anna paints the old <script>window.pwned=1</script> house."


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def model(request, tmp_path_factory):
    """The folder of a small model with random weights."""
    folder = tmp_path_factory.mktemp(request.param)
    corpus = write_corpus(folder / "text.txt", count=30)
    tokenizer = train_tokenizer(
        CorpusConfig(corpus=[str(corpus)]), TokenizerConfig(vocab_size=120), folder / "tokenizer"
    )
    config = {"bert": BertConfig, "modernbert": ModernBertConfig}[request.param]
    encoder = build_encoder(config(vocab_size=tokenizer.vocab_size, **SIZES), 0)
    bertkit.save(MaskedLM(encoder), folder / "model", tokenizer)
    return folder / "model"


@pytest.fixture(scope="module")
def page(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "attention.html"
    assert main(["attention", "--model", str(model), TEXT, "--out", str(path)]) == 0
    return path


def test_the_page_lies_beside_the_model_unless_told_otherwise(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["attention", "--model", str(model), "anna paints"]) == 0
    assert capsys.readouterr().out.strip() == str(model / "attention.html")
    assert (model / "attention.html").is_file()
    assert not list(tmp_path.iterdir())


def test_heads_that_look_at_themselves_and_everywhere():
    """Head 0 looks at its own token, head 1 at all three alike."""
    weights_HTT = torch.stack([torch.eye(3), torch.full((3, 3), 1 / 3)]).double()
    numbers = layer_numbers(weights_HTT)
    assert numbers.distance_H == pytest.approx([0, (1 + 2 + 1 + 1 + 2 + 1) / 9])
    assert numbers.entropy_H == pytest.approx([0, math.log2(3)])
    # The mixture is (4/6, 1/6, 1/6) in every row.
    mixture = -(4 / 6 * math.log2(4 / 6) + 2 / 6 * math.log2(1 / 6))
    assert numbers.difference == pytest.approx(math.sqrt(mixture - math.log2(3) / 2))


def test_the_difference_is_0_for_equal_heads_and_1_for_heads_that_share_nothing():
    alike = torch.full((3, 4, 4), 0.25).double()
    apart = torch.stack([torch.eye(4), torch.eye(4).flip(0)]).double()
    assert layer_numbers(alike).difference == pytest.approx(0, abs=1e-6)
    assert layer_numbers(apart).difference == pytest.approx(1)
    assert layer_numbers(alike[:1]).difference is None


def test_the_page_holds_the_weights_of_the_model(model, page):
    found = attention_of(str(model), TEXT)
    expected = bertkit.load(model).encoder.attention_weights(torch.tensor([ids_of(model)]))
    assert torch.allclose(found.weights_NHTT, torch.stack([rows[0] for rows in expected]).double())
    embedded = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)[1]
    data = json.loads(embedded)
    size = len(data["words"])
    weights = np.frombuffer(base64.b64decode(data["weights"]), "<u2").reshape(3, 2, size, size) / 65535
    assert weights == pytest.approx(found.weights_NHTT.numpy(), abs=1e-5)
    assert data["words"] == found.words
    assert data["words"][:2] == ["[CLS]", "anna"]


def ids_of(model) -> list[int]:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(model / "tokenizer.json")).encode(TEXT).ids


def test_every_head_and_layer_is_named_for_those_who_cannot_see_the_maps(page):
    text = page.read_text()
    assert re.findall(r'aria-label="layer (\d), head (\d):', text) == [(n, h) for n in "123" for h in "12"]
    assert text.count('scope="row">3</th>') >= 3


@pytest.mark.parametrize(("text", "reason"), [("  ", "the text is empty"), ("anna " * MOST_TOKENS, "shorten it")])
def test_a_text_that_cannot_be_shown_is_refused(model, tmp_path, capsys, text, reason):
    assert main(["attention", "--model", str(model), text, "--out", str(tmp_path / "page.html")]) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_a_run_stands_for_the_model_it_exported(model, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "export").symlink_to(model)
    assert attention_of(str(tmp_path / "run"), TEXT).words[1] == "anna"


@pytest.fixture(scope="module")
def browser():
    find_browser()
    with Browser() as opened:
        yield opened


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)])
def test_a_browser_finds_no_fault_and_asks_for_nothing(browser, page, width, dark):
    browser.open(page, width=width, dark=dark)
    assert browser.problems == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [page.as_uri()]
    assert browser.evaluate("window.pwned") is None
    assert "<script>window.pwned=1</script>" in browser.evaluate("document.querySelector('header').innerText")
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    painted = """[...document.querySelectorAll('canvas')].map(
        canvas => Math.max(...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data))"""
    assert len(browser.evaluate(painted)) == 3 * 2 + 1
    assert all(browser.evaluate(painted))
    assert browser.evaluate("document.querySelectorAll('.plot .curve').length") == 3


def test_a_click_or_a_key_chooses_the_head_that_is_enlarged(browser, page):
    browser.open(page)
    chosen = "document.getElementById('chosen').textContent"
    assert browser.evaluate(chosen) == "Layer 1, head 1"
    box = json.loads(
        browser.evaluate(
            'JSON.stringify(document.querySelector(\'[data-layer="1"][data-head="0"]\').getBoundingClientRect())'
        )
    )
    browser.click(box["x"] + 5, box["y"] + 5)
    assert browser.evaluate(chosen) == "Layer 2, head 1"
    for key, told in (
        ("ArrowRight", "Layer 2, head 2"),
        ("ArrowDown", "Layer 3, head 2"),
        ("ArrowDown", "Layer 3, head 2"),
    ):
        browser.press(key)
        assert browser.evaluate(chosen) == told
    assert browser.evaluate("document.querySelectorAll('[aria-pressed=true]').length") == 1


def test_words_and_keys_read_out_where_a_head_looks(browser, page, model):
    weights_TT = attention_of(str(model), TEXT).weights_NHTT[0, 0]
    browser.open(page)
    browser.evaluate("document.querySelectorAll('.chip')[1].click()")
    assert f"{100 * weights_TT[1].max():.1f}%" in browser.evaluate("document.getElementById('pair').textContent")
    browser.evaluate("document.querySelector('#map svg').focus()")
    for key in ["ArrowLeft"] * len(weights_TT) + ["ArrowUp"]:
        browser.press(key)
    told = f"From “[CLS]” {100 * weights_TT[0, 0]:.1f}% of the attention goes to “[CLS]”."
    assert browser.evaluate("document.getElementById('pair').textContent") == told
    assert browser.problems == []
