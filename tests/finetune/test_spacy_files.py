"""A tagger learns from documents of spaCy, tags them and is scored on them, as on any labeled file.

Without spaCy (`make test-spacy`) nothing is shown.
"""

import io
import json
import sys
from itertools import chain

import pytest
import torch
from tuning import SMALL

from bertkit.cli import main
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.tagged import read_tagged

spacy = pytest.importorskip("spacy", reason="spaCy is not installed, so .spacy files were not tried: make test-spacy")
torch.set_num_threads(1)


def save_docs(conll, path):
    """A document of every three sentences, with entities and, in place of parts of speech, whether a word is inside of
    one; in the end an empty document."""
    sentences = list(read_tagged(str(conll), TaggedConfig()))
    vocab, docs = spacy.blank("en").vocab, []
    for start in range(0, len(sentences), 3):
        group = sentences[start : start + 3]
        words, tags = ([*chain(*(getattr(one, name) for one in group))] for name in ("words", "tags"))
        begins = [*chain(*([True, *[False] * (len(one.words) - 1)] for one in group))]
        pos = ["X" if tag == "O" else "PROPN" for tag in tags]
        docs.append(spacy.tokens.Doc(vocab, words=words, ents=tags, pos=pos, sent_starts=begins))
    docs.append(spacy.tokens.Doc(vocab, words=[]))
    spacy.tokens.DocBin(docs=docs).to_disk(path)
    return path


def opened(path):
    return list(spacy.tokens.DocBin().from_disk(path).get_docs(spacy.blank("en").vocab))


@pytest.fixture(scope="module")
def trained(home, tmp_path_factory):
    """Of each recipe a run on documents of spaCy, and the documents that it was scored on."""
    folder = tmp_path_factory.mktemp("spacy")
    train, dev = (save_docs(home / f"{name}.conll", folder / f"{name}.spacy") for name in ("train", "dev"))
    data = [f"data.train={train}", f"data.dev={dev}", f"model.init={home / 'encoder'}", *SMALL]
    for recipe in ("ner", "pos"):
        assert main(["finetune", recipe, *data, f"run.dir={folder / recipe}"]) == 0
    return folder


def tag(capfdbinary, path, *arguments):
    capfdbinary.readouterr()
    assert main(["tag", *map(str, arguments)]) == 0
    path.write_bytes(capfdbinary.readouterr().out)
    return path


def score(capfdbinary, *arguments):
    capfdbinary.readouterr()
    assert main(["evaluate", *map(str, arguments), "--json"]) == 0
    return json.loads(capfdbinary.readouterr().out)


@pytest.mark.parametrize(("recipe", "key"), [("ner", "f1"), ("pos", "accuracy")])
def test_what_a_tagger_wrote_is_right_by_its_own_judgment(trained, recipe, key, tmp_path, capfdbinary):
    raw = tmp_path / "raw.txt"
    raw.write_text("anna paints  the old house.\n\n\tboris watches the river \n", encoding="utf-8")
    for source in (raw, trained / "dev.spacy"):
        written = tag(capfdbinary, tmp_path / "out.spacy", "--model", trained / recipe, "--output", "spacy", source)
        if source is raw:
            assert [doc.text for doc in opened(written)] == raw.read_text(encoding="utf-8").split("\n")[:-1]
        assert score(capfdbinary, trained / recipe, written)[key] == 1.0


def test_tagged_documents_keep_what_is_not_tagged(trained, tmp_path, capfdbinary):
    written = opened(tag(capfdbinary, tmp_path / "out.spacy", "--model", trained / "ner", trained / "dev.spacy"))
    given = opened(trained / "dev.spacy")
    for field in ("text", "pos_", "is_sent_start"):
        assert [[getattr(token, field) for token in doc] for doc in written] == [
            [getattr(token, field) for token in doc] for doc in given
        ]


def test_labels_of_words_are_scored_where_spacy_has_them(trained, home, tmp_path, capfdbinary):
    assert score(capfdbinary, trained / "pos", trained / "dev.spacy")["accuracy"] > 0.5
    columns = tmp_path / "dev.conll"
    rows = (
        (word, "X" if tag == "O" else "PROPN")
        for one in read_tagged(str(home / "dev.conll"), TaggedConfig())
        for word, tag in [*zip(one.words, one.tags, strict=True)]
    )
    columns.write_text("".join(f"{word}\t{tag}\n" for word, tag in rows), encoding="utf-8")
    data = [f"data.train={columns}", "data.tag_column=-1", f"model.init={home / 'encoder'}", *SMALL]
    assert main(["finetune", "pos", *data, f"run.dir={tmp_path / 'run'}"]) == 0
    assert score(capfdbinary, tmp_path / "run", trained / "dev.spacy")["accuracy"] > 0.5


def test_chinese_documents_teach_how_raw_text_is_split(home, tmp_path, capfdbinary):
    words = ["王小明", "在", "北京", "工作", "。"]
    docs = [
        spacy.tokens.Doc(spacy.blank("en").vocab, words=words, spaces=[False] * 5, ents=["B-P", "O", "B-L", "O", "O"])
        for _ in range(8)
    ]
    spacy.tokens.DocBin(docs=docs).to_disk(tmp_path / "zh.spacy")
    data = [f"data.train={tmp_path / 'zh.spacy'}", f"model.init={home / 'encoder'}", *SMALL]
    assert main(["finetune", "ner", *data, f"run.dir={tmp_path / 'run'}"]) == 0
    (tmp_path / "raw.txt").write_text("王小明在北京工作。", encoding="utf-8")
    arguments = ("--model", tmp_path / "run", "--output", "spacy", tmp_path / "raw.txt")
    (doc,) = opened(tag(capfdbinary, tmp_path / "out.spacy", *arguments))
    assert [token.text for token in doc] == words


def test_standard_input_holds_no_documents(trained, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\x00")))
    assert main(["tag", "--model", str(trained / "ner"), "--input", "spacy", "--output", "conll"]) == 2
    assert "spacy" in capsys.readouterr().err
