"""The page of a tagger gives, in a browser and without a network, the tags that the command gives."""

import json
import re
from dataclasses import replace
from html import unescape

import pytest
import torch
from browser import Browser, find_browser
from shipped import generated_sentences, save_tagger
from tiny import TINY, TINY_MODERN

import bertkit
from bertkit.cli import main
from bertkit.finetune.predict.settings import SETTINGS
from bertkit.ship.export import export_onnx, export_page
from bertkit.ship.gate import Gate
from bertkit.ship.page import SCRIPTS

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
torch.set_num_threads(1)

MODELS = {
    "bert": (TINY, "tagger", {}),
    "modernbert, bpe": (
        replace(TINY_MODERN, local_attention=6, num_hidden_layers=3),
        "tagger",
        {"kind": "bpe", "vocab_size": 400},
    ),
    "classifier": (replace(TINY, hidden_act="gelu_new"), "classifier", {"lowercase": False}),
}
ODD = [
    "Émile's mail: anna.b@example.org, see https://example.org/a_b?c=1!",
    "don't U.S.A. 3.14 12:30 well-known #tag @you ... -- ¡qué! ﬁn ΑΣ İstanbul",
    "東京 と wien 👩‍🚀👍🏽 ☀ naïve\u0301 zero\u200bwidth \u00adsoft tab\there",
    "x" * 120 + " [SEP] [MASK] ##ing",
]


@pytest.fixture(scope="module")
def browser():
    find_browser()
    with Browser() as running:
        yield running


def tags_in(browser, page, sentences):
    browser.open(page)
    found = browser.evaluate(f"{json.dumps(sentences)}.map((text) => Tagger.tag(text).tags)")
    assert not browser.problems
    assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []
    return found


@pytest.mark.parametrize(("config", "head", "tokenizing"), MODELS.values(), ids=MODELS)
def test_the_page_gives_the_tags_of_the_command_on_100_sentences(browser, tmp_path, config, head, tokenizing):
    folder = save_tagger(tmp_path / "tagger", config, head, max_length=20, **tokenizing)
    sentences = [*generated_sentences(96, seed=1), *ODD]
    export_page(folder, tmp_path / "page")
    expected = [found.tags for found in bertkit.Tagger.load(folder).tag_all(sentences)]
    assert tags_in(browser, tmp_path / "page" / "index.html", sentences) == expected


def test_all_subwords_of_a_word_answer_on_the_page_too(browser, tmp_path):
    folder, sentences = save_tagger(tmp_path / "tagger", TINY, max_length=20), [*generated_sentences(40, seed=1), *ODD]
    by_first = [found.tags for found in bertkit.Tagger.load(folder).tag_all(sentences)]
    settings = json.loads((folder / SETTINGS).read_text())
    (folder / SETTINGS).write_text(json.dumps({**settings, "pieces": "mean"}))
    expected = [found.tags for found in bertkit.Tagger.load(folder).tag_all(sentences)]
    assert expected != by_first
    export_page(folder, tmp_path / "page")
    assert tags_in(browser, tmp_path / "page" / "index.html", sentences) == expected


def test_in_int8_it_gives_the_tags_of_the_graph_in_int8(browser, tmp_path):
    folder = save_tagger(tmp_path / "tagger", TINY)
    sentences = generated_sentences(100, seed=2)
    answer = bertkit.Tagger.load(folder).tag(sentences[0].split())
    lines = [f"{word}\t{tag}\n" for word, tag in zip(answer.words, answer.tags, strict=True)]
    (tmp_path / "check.conll").write_text("".join(lines), encoding="utf-8")
    gate = Gate(str(tmp_path / "check.conll"), max_loss=99)
    export_onnx(folder, tmp_path / "onnx", gate)
    export_page(folder, tmp_path / "page", gate)
    expected = [found.tags for found in bertkit.Tagger.load(tmp_path / "onnx", backend="int8").tag_all(sentences)]
    found = tags_in(browser, tmp_path / "page" / "index.html", sentences)
    pairs = [pair for a, b in zip(found, expected, strict=True) for pair in zip(a, b, strict=True)]
    # Sums of floats in another order round otherwise, and int8 makes a step of it where a value lies between two.
    assert sum(a == b for a, b in pairs) >= 0.99 * len(pairs)


def test_a_reader_sees_words_with_their_tags(browser, tmp_path):
    export_page(save_tagger(tmp_path / "tagger", TINY), tmp_path / "page")
    browser.open(tmp_path / "page" / "index.html")
    browser.evaluate("document.getElementById('text').value = 'Anna <b>paints</b>\\nthe house'")
    browser.evaluate("document.getElementById('tag').click()")
    assert browser.evaluate("document.querySelectorAll('#answer p').length") == 2
    assert browser.evaluate("document.querySelector('#answer').textContent").startswith("Anna")
    assert browser.evaluate("document.querySelector('#answer b')") is None


def test_the_policy_lets_nothing_in(tmp_path):
    export_page(save_tagger(tmp_path / "tagger", TINY), tmp_path / "page")
    page = unescape((tmp_path / "page" / "index.html").read_text(encoding="utf-8"))
    policy = page.partition('content="')[2].partition('"')[0]
    assert policy.startswith("default-src 'none';")
    assert not {"unsafe-inline", "unsafe-eval", "http:", "https:", "*"} & set(re.findall(r"[\w:*-]+", policy))
    assert policy.count("sha256-") == len(SCRIPTS) + 2  # with our style, and the choice of light or dark


@pytest.mark.parametrize("folder", ["tagger", "tagger/export"])
def test_the_page_is_called_like_its_run_or_folder(folder, tmp_path):
    save_tagger(tmp_path / folder, TINY)
    export_page(tmp_path / "tagger", tmp_path / "page")
    assert "<h1>tagger</h1>" in (tmp_path / "page" / "index.html").read_text(encoding="utf-8")


def test_what_the_page_could_not_follow_is_refused(tmp_path, capsys):
    folder = save_tagger(tmp_path / "tagger", TINY)
    settings = json.loads((folder / "tagging.json").read_text())
    learned = {"segmenter": "jieba", "together": []}
    (folder / "tagging.json").write_text(json.dumps(settings | {"split": learned}))
    assert main(["export", str(folder), str(tmp_path / "page"), "--format", "html"]) == 2
    assert "without spaces" in capsys.readouterr().err
    assert not (tmp_path / "page").exists()
