"""Words counted in any number of parts make the tokenizer that the text itself makes."""

import pytest

from bertkit.cli import main
from data_pipelines.text import parts
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.parts import Part
from data_pipelines.vocab import sample as module
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.sample import Counted, count_part, counting_folder, sample
from data_pipelines.vocab.tokenizer import load_tokenizer, train_on_counts, train_tokenizer


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Documents of several scripts, in blocks of a few documents."""
    monkeypatch.setattr(parts, "BLOCK_CHARS", 400)
    texts = [
        f"Café number{n % 7} isn't {'re' * (n % 3)}opened by Émile, n°{n}; 我来到北京 и все [MASK] über-all\u00a0x"
        for n in range(60)
    ]
    (tmp_path / "c.txt").write_text("\n\n".join(texts), "utf-8")
    return CorpusConfig(corpus=[str(tmp_path / "c.txt")])


@pytest.mark.parametrize("of", [1, 3])
@pytest.mark.parametrize("options", [{}, {"lowercase": False}, {"kind": "bpe", "vocab_size": 400}])
def test_counted_words_make_the_tokenizer_of_the_text(corpus, tmp_path, monkeypatch, options, of):
    monkeypatch.setattr(module, "_REPEATS", 7)
    config = TokenizerConfig(**({"vocab_size": 200} | options))
    counted = Counted()
    for number in range(1, of + 1):
        path = tmp_path / f"{number}.json"
        count_part(corpus, config, Part(number, of), lambda done, total: None).save(path)
        counted.add(Counted.load(path))
    trained = train_on_counts(corpus, config, tmp_path / "counted", counted)
    assert trained.fingerprint == train_tokenizer(corpus, config, tmp_path / "read").fingerprint


def test_parts_sample_what_the_whole_samples(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("\n\n".join(f"document {n} " + "word " * 300 for n in range(2000)))
    corpus, config = CorpusConfig(corpus=[str(path)]), TokenizerConfig(sample_mb=1)
    whole = list(sample(corpus, config))
    assert 0.3 < len(whole) / 2000 < 0.4
    assert sorted(text for number in (1, 2) for text in sample(corpus, config, Part(number, 2))) == sorted(whole)


def test_counts_of_another_text_or_setting_are_not_taken(corpus, tmp_path):
    first = counting_folder(corpus, TokenizerConfig(), tmp_path / "t")
    assert first == counting_folder(corpus, TokenizerConfig(), tmp_path / "t")
    assert first != counting_folder(corpus, TokenizerConfig(lowercase=False), tmp_path / "t")
    with open(tmp_path / "c.txt", "a") as file:
        file.write("more")
    assert first != counting_folder(corpus, TokenizerConfig(), tmp_path / "t")


def test_the_verb_counts_on_an_engine(corpus, tmp_path, capsys):
    given = ["tokenizer", "train", "--corpus", *corpus.corpus, "--vocab-size", "200", "--out"]
    assert main([*given, str(tmp_path / "here")]) == 0
    assert main([*given, str(tmp_path / "there"), "--engine", "local", "--parts", "2"]) == 0
    assert not list(tmp_path.glob(".counting-*"))
    here, there = (load_tokenizer(tmp_path / name).fingerprint for name in ("here", "there"))
    assert here == there
    assert main([*given, str(tmp_path / "by-hand"), "--part", "1/2"]) == 0
    assert "--engine local --parts 2" in capsys.readouterr().out
    assert list(tmp_path.glob(".counting-by-hand-*/part-00001-of-00002.json"))
