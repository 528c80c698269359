"""Sentences worth labelling next: unsure ones first, copies once, no two alike, in every format of annotation tools."""

import json

import pytest

import bertkit
from bertkit.cli import main
from bertkit.finetune.clinic.next_to_label import next_to_label
from bertkit.finetune.predict.inputs import Part
from bertkit.finetune.predict.labeled_text import LabeledText
from bertkit.finetune.predict.outputs import Answer
from bertkit.finetune.predict.tagging import Tagging
from bertkit.model import BertConfig, TokenTagger, build_encoder
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

SENTENCES = ["the old house stands alone", "a river runs by", "trains leave at noon", "nobody painted it blue"]


def answer(text: str, confidence: float, place: str = "f:1") -> Answer:
    words = text.split()
    return Answer(Part(text, place=place), Tagging(words, ["X"] * len(words), [confidence] * len(words), text))


def test_the_least_sure_comes_first_and_its_place_is_noted():
    answers = [answer(text, 0.9 - 0.2 * index, f"f:{index}") for index, text in enumerate(SENTENCES)]
    chosen = next_to_label([Answer(Part(None), None), *answers], 2)
    assert [each.part.place for each in chosen] == ["f:3", "f:2"]
    assert chosen[0].part.record == {"place": "f:3", "uncertainty": pytest.approx(1.204, abs=1e-3)}


def test_copies_are_asked_about_once_and_near_copies_late():
    copies = [answer("the price rose by 15 percent", 0.1), answer("The price rose by 27 percent", 0.1)]
    near = [answer("the price rose by one percent", 0.11), answer("the price fell by two percent", 0.12)]
    chosen = next_to_label([*copies, *near, *(answer(text, 0.2) for text in SENTENCES)], 7)
    texts = [each.part.given for each in chosen]
    assert texts[0] == "the price rose by 15 percent"
    assert set(texts[1:5]) == set(SENTENCES)
    assert len(texts) == 7


def test_answers_about_texts_are_uncertain_too_but_numbers_are_not():
    assert LabeledText(["a"], {"label": "x", "confidence": 0.5}).uncertainty == pytest.approx(0.6931, abs=1e-4)
    several = LabeledText(["a"], {"labels": ["x"], "confidences": {"x": 0.9, "y": 0.1}})
    assert several.uncertainty == pytest.approx(0.1054, abs=1e-4)
    assert LabeledText(["a"], {"score": 1.0}).uncertainty is None
    assert next_to_label([Answer(Part("a"), LabeledText(["a"], {"score": 1.0}))], 3) == []


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagger")
    (folder / "text.txt").write_text("\n".join(SENTENCES * 5))
    corpus = CorpusConfig(corpus=[str(folder / "text.txt")], documents="line")
    tokenizer = train_tokenizer(corpus, TokenizerConfig(vocab_size=80), folder / "model")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    encoder = build_encoder(BertConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=32, **sizes), 0)
    bertkit.save(TokenTagger(encoder, ("O", "B-X", "I-X"), 0), folder / "model", tokenizer)
    return folder


@pytest.mark.parametrize("output", ["conll", "jsonl", "doccano", "label-studio", "spans"])
def test_what_is_asked_about_comes_in_the_format_of_a_tool(output, tagger, tmp_path, capsys):
    page = tmp_path / "ask.html"
    command = ["tag", "--model", str(tagger / "model"), str(tagger / "text.txt"), "--output", output]
    assert main([*command, "--ask", "3", "--page", str(page)]) == 0
    told = capsys.readouterr().out
    if output == "conll":
        assert len(told.strip().split("\n\n")) == 3
    else:
        found = json.loads(told) if output == "label-studio" else [json.loads(line) for line in told.splitlines()]
        places = {(each.get("data") or each)["place"] for each in found}
        assert len(places) == 3
        assert all(place.startswith(str(tagger / "text.txt")) for place in places)
    assert "3 sentences worth labelling next" in page.read_text()


def test_sentences_of_columns_stay_apart_even_the_last_of_a_file(tagger, tmp_path, capsys):
    file = tmp_path / "words.conll"
    file.write_text("\n\n".join("\n".join(f"{word}\tid\tO" for word in text.split()) for text in SENTENCES))
    assert main(["tag", "--model", str(tagger / "model"), str(file), "--ask", "4"]) == 0
    blocks = capsys.readouterr().out.strip().split("\n\n")
    words = {" ".join(line.split("\t")[0] for line in block.split("\n")) for block in blocks}
    assert words == set(SENTENCES)
    assert all(line.split("\t")[1] == "id" for block in blocks for line in block.split("\n"))


@pytest.mark.parametrize(
    ("flags", "told"),
    [(["--ask", "0"], "--ask"), (["--page", "x.html"], "--page"), (["--ask", "2", "--output", "brat"], "brat")],
)
def test_what_cannot_be_asked_is_refused(flags, told, tagger, capsys):
    assert main(["tag", "--model", str(tagger / "model"), str(tagger / "text.txt"), *flags]) == 2
    assert told in capsys.readouterr().err
