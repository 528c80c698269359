"""Preparation never mixes what does not belong together, and says what is wrong."""

import json
from pathlib import Path

import pytest
from preparing import SMALL, begun, files, sequences

from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.manifest import PROGRESS
from data_pipelines.rows.prepare import prepare
from data_pipelines.text.config import CorpusConfig

pytestmark = pytest.mark.usefixtures("small_batches")


@pytest.mark.parametrize("finished", [True, False])
def test_what_changed_is_refused_and_named(home, corpus, tokenizer, tmp_path, finished):
    folder = tmp_path / "data"
    if finished:
        prepare(corpus, tokenizer, SMALL, folder)
    else:
        begun(corpus, tokenizer, folder)
    before = files(folder)

    def refused(expected, corpus=corpus, tokenizer=tokenizer, config=SMALL):
        with pytest.raises(ValueError, match=expected):
            prepare(corpus, tokenizer, config, folder)
        assert files(folder) == before

    path = Path(corpus.corpus[0])
    refused("the tokenizer changed", tokenizer=home / "bpe")
    refused(r"a setting changed \(seq_len: 32 then, 64 now\)", config=PrepareConfig(**vars(SMALL) | {"seq_len": 64}))
    refused("documents: blank-line then, line now", corpus=CorpusConfig(corpus=corpus.corpus, documents="line"))
    refused(r"the corpus changed \(corpus.txt\)", corpus=CorpusConfig(corpus=[f"{path}@2"]))
    (tmp_path / "more.txt").write_text("more")
    refused(r"the corpus changed \(more.txt\)", corpus=CorpusConfig(corpus=[str(path), str(tmp_path / "more.txt")]))
    content = path.read_text()
    path.write_text(content.replace("anna", "olga"))
    refused(r"the corpus changed \(corpus.txt\)")
    path.write_text(content)  # the same bytes, written anew
    prepare(corpus, tokenizer, SMALL, folder)


def test_a_corpus_mended_before_the_first_shard_is_not_refused(tokenizer, tmp_path):
    """A bad byte stops the first run; once mended the same command must do."""
    path = tmp_path / "c.txt"
    path.write_bytes(b"anna paints\n\nthe \xff house\n")
    corpus = CorpusConfig(corpus=[str(path)])
    with pytest.raises(ValueError, match=f"{path}:3: not UTF-8"):
        prepare(corpus, tokenizer, PrepareConfig(validation_share=0), tmp_path / "data")
    path.write_bytes(b"anna paints\n\nthe house\n")
    prepare(corpus, tokenizer, PrepareConfig(validation_share=0), tmp_path / "data")
    assert len(sequences(tmp_path / "data")) == 2


def test_a_foreign_folder_is_refused(corpus, tokenizer, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all I have")
    for folder in (tmp_path / "mine", tmp_path / "mine" / "thesis.txt"):
        with pytest.raises(ValueError, match="choose another folder"):
            prepare(corpus, tokenizer, SMALL, folder)
    assert files(tmp_path / "mine") == {"thesis.txt": b"all I have"}


def test_damage_is_told_instead_of_taken_for_finished(corpus, tokenizer, tmp_path):
    for name in ("whole", "begun"):
        prepare(corpus, tokenizer, SMALL, tmp_path / name) if name == "whole" else begun(
            corpus, tokenizer, tmp_path / name
        )
        (tmp_path / name / "train-00000.tokens").write_bytes(b"")
        with pytest.raises(ValueError, match=r"train-00000.tokens is damaged: 0 bytes.*remove"):
            prepare(corpus, tokenizer, SMALL, tmp_path / name)
    whole = prepare(corpus, tokenizer, SMALL, tmp_path / "flipped") / "train-00000.tokens"
    whole.write_bytes(bytes([whole.read_bytes()[0] ^ 1]) + whole.read_bytes()[1:])
    with pytest.raises(ValueError, match=r"train-00000.tokens is damaged: its hash.*remove"):
        prepare(corpus, tokenizer, SMALL, tmp_path / "flipped")
    for content in ("", "{", "[]", "{}", json.dumps({"identity": {"sources": []}})):
        (tmp_path / "begun" / PROGRESS).write_text(content)
        with pytest.raises(ValueError, match=r"progress.json is damaged .*remove"):
            prepare(corpus, tokenizer, SMALL, tmp_path / "begun")


def test_an_empty_corpus_and_a_tokenizer_without_mask_are_refused_before_anything_is_written(tokenizer, tmp_path):
    (tmp_path / "empty.txt").write_text(" \n\n")
    with pytest.raises(ValueError, match="holds no text"):
        prepare(CorpusConfig(corpus=[str(tmp_path / "empty.txt")]), tokenizer, SMALL, tmp_path / "data")
    settings = json.loads((tokenizer / "tokenizer.json").read_text())
    settings["model"]["vocab"]["[WALL]"] = settings["model"]["vocab"].pop("[MASK]")
    settings["added_tokens"] = [token for token in settings["added_tokens"] if token["content"] != "[MASK]"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="has no mask token"):
        prepare(
            CorpusConfig(corpus=[str(tmp_path / "empty.txt")]), tmp_path / "tokenizer.json", SMALL, tmp_path / "data"
        )
    assert not (tmp_path / "data").exists()
