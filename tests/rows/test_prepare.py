"""Preparation: the rows hold every token of every document, in order, on one side of the split, with its words."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from preparing import SMALL, files, inner, numbered, sequences

from data_pipelines.masks.collator import MaskingCollator
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.manifest import PROGRESS
from data_pipelines.rows.prepare import prepare
from data_pipelines.rows.shards import open_rows
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import read_documents
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import load_tokenizer, train_tokenizer
from data_pipelines.vocab.words import starts_from_word_ids

pytestmark = pytest.mark.usefixtures("small_batches")


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
@pytest.mark.parametrize("rows", ["fill", "line"])
def test_the_rows_hold_all_tokens_of_all_documents_in_order(home, corpus, tmp_path, kind, rows):
    config = PrepareConfig(seq_len=24, shard_tokens=500, validation_share=0, rows=rows)
    prepare(corpus, home / kind, config, tmp_path / "data")
    backend = load_tokenizer(home / kind).backend
    encoded = [backend.encode(d.text, add_special_tokens=False) for d in read_documents(corpus)]
    assert inner(tmp_path / "data") == [token for encoding in encoded for token in encoding.ids]
    opened = open_rows(tmp_path / "data")
    batch = opened.gather(np.arange(len(opened)))
    assert np.diff(batch.row_starts).max() <= 24
    assert all(s[0] == 2 and s[-1] == 3 and not {2, 3} & set(s[1:-1]) for s in sequences(tmp_path / "data"))
    expected = np.concatenate([starts_from_word_ids(encoding.word_ids) for encoding in encoded])
    assert np.array_equal(batch.starts_word_T[~np.isin(batch.ids_T, (2, 3))], expected)
    if rows == "line":
        assert np.array_equal(batch.row_starts, batch.sequence_starts)


def test_sentences_are_sequences_of_their_own_and_stay_with_their_document(tokenizer, tmp_path):
    documents = [f"Anna paints {n}. Does Tom read {n}?\nThe house {n}" for n in range(60)]
    (tmp_path / "c.txt").write_text("\n\n".join(documents))
    corpus = CorpusConfig(corpus=[str(tmp_path / "c.txt")])
    for rows in ("fill", "sentences"):
        prepare(corpus, tokenizer, PrepareConfig(validation_share=0.3, rows=rows), tmp_path / rows)
    backend = load_tokenizer(tokenizer).backend
    for split in ("train", "validation"):
        assert inner(tmp_path / "sentences", split) == inner(tmp_path / "fill", split)
    parts = [part for n in range(60) for part in (f"Anna paints {n}.", f"Does Tom read {n}?", f"The house {n}")]
    encoded = [backend.encode(part, add_special_tokens=False).ids for part in parts]
    held = [s[1:-1] for s in sequences(tmp_path / "sentences", "validation")]
    assert sorted([s[1:-1] for s in sequences(tmp_path / "sentences")] + held) == sorted(encoded)
    assert 0 < len(held) < len(encoded)


def test_a_vocabulary_beyond_two_bytes_is_stored_in_four(corpus, tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = [*special, *(f"w{i}" for i in range(70_000)), "anna"]
    backend = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.save(str(tmp_path / "tokenizer.json"))
    prepare(corpus, tmp_path / "tokenizer.json", SMALL, tmp_path / "data")
    assert (tmp_path / "data" / "train-00000.tokens").stat().st_size % 4 == 0
    assert 70_005 in inner(tmp_path / "data")


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_special_tokens_written_in_the_corpus_are_text(home, tmp_path, kind):
    (tmp_path / "c.txt").write_text("anna [MASK] paints [CLS][SEP] the [PAD] house [UNK]")
    corpus = CorpusConfig(corpus=[str(tmp_path / "c.txt")])
    prepare(corpus, home / kind, PrepareConfig(validation_share=0), tmp_path / "data")
    allowed = {1} if kind == "wordpiece" else set()  # "[" was never seen in training: unknown, not special
    assert not set(inner(tmp_path / "data")) & ({0, 1, 2, 3, 4} - allowed)


def test_windows_line_breaks_a_mark_and_gzip_change_no_token(tokenizer, tmp_path, corpus):
    text = Path(corpus.corpus[0]).read_bytes()
    variants = {
        "a.txt": text,
        "b.txt": b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"),
        "c.txt": text.replace(b"\n", b"\r"),
    }
    variants["d.txt.gz"] = gzip.compress(text)
    found = set()
    for name, data in variants.items():
        (tmp_path / name).write_bytes(data)
        prepare(CorpusConfig(corpus=[str(tmp_path / name)]), tokenizer, SMALL, tmp_path / f"{name}-data")
        found.add(open_rows(tmp_path / f"{name}-data").fingerprint)
    assert len(found) == 1


def split_of_document(folder, tokenizer, texts) -> list[str]:
    backend = load_tokenizer(tokenizer).backend
    held_out = {tuple(sequence) for sequence in sequences(folder, "validation")}
    return ["validation" if tuple(backend.encode(text).ids) in held_out else "train" for text in texts]


def test_a_document_stays_on_its_side_as_the_corpus_grows(tokenizer, tmp_path):
    texts = numbered(400)
    config = PrepareConfig(seq_len=256, rows="line", validation_share=0.2)
    sides = []
    for name, chosen in (("few", texts[100:200]), ("more", texts)):
        (tmp_path / f"{name}.txt").write_text("\n\n".join(chosen))
        prepare(CorpusConfig(corpus=[str(tmp_path / f"{name}.txt")]), tokenizer, config, tmp_path / name)
        sides.append(split_of_document(tmp_path / name, tokenizer, texts[100:200]))
    assert sides[0] == sides[1]
    assert abs(len(open_rows(tmp_path / "more", "validation")) - 80) < 4 * 8


def test_weights_repeat_training_documents_and_never_validation_documents(tokenizer, tmp_path):
    texts = numbered(200)
    (tmp_path / "c.txt").write_text("\n\n".join(texts))
    config = PrepareConfig(seq_len=256, rows="line", validation_share=0.2)
    for name in ("c.txt", "c.txt@2", "c.txt@2.5"):
        prepare(CorpusConfig(corpus=[f"{tmp_path / name}"]), tokenizer, config, tmp_path / f"{name}-data")
    once, twice, more = (tmp_path / f"{name}-data" for name in ("c.txt", "c.txt@2", "c.txt@2.5"))
    assert sequences(once, "validation") == sequences(twice, "validation") == sequences(more, "validation")
    assert sequences(twice) == sequences(once) * 2
    assert len(sequences(more)) > len(sequences(twice))
    assert not {tuple(s) for s in sequences(more)} & {tuple(s) for s in sequences(more, "validation")}


def test_a_second_run_finds_its_work_done(corpus, tokenizer, tmp_path):
    prepare(corpus, tokenizer, SMALL, tmp_path / "data")
    before = files(tmp_path / "data")
    os.utime(corpus.corpus[0])  # touched, not changed
    assert prepare(corpus, tokenizer, SMALL, tmp_path / "data", report=pytest.fail) == tmp_path / "data"
    assert files(tmp_path / "data") == before
    assert PROGRESS not in before


def test_progress_is_estimated_well(corpus, tokenizer, tmp_path):
    reports: list = []
    prepare(corpus, tokenizer, SMALL, tmp_path / "data", report=reports.append)
    assert [report.chars for report in reports] == sorted(report.chars for report in reports)
    assert reports[-1].tokens == sum(
        open_rows(tmp_path / "data", split).num_tokens for split in ("train", "validation")
    )
    assert 0.9 < reports[-1].chars / reports[0].total_chars < 1.1
    written = sum(path.stat().st_size for path in (tmp_path / "data").glob("*.tokens"))
    assert 0.7 < written / reports[0].estimated_bytes < 1.3


def test_jieba_words_are_kept_in_the_shards(tmp_path):
    pytest.importorskip("jieba")
    (tmp_path / "c.txt").write_text("我来到北京清华大学\n\n" * 3, encoding="utf-8")
    corpus = CorpusConfig(corpus=[str(tmp_path / "c.txt")])
    train_tokenizer(corpus, TokenizerConfig(vocab_size=100), tmp_path / "tokenizer")
    config = PrepareConfig(seq_len=32, validation_share=0, segmenter="jieba", rows="line")
    prepare(corpus, tmp_path / "tokenizer", config, tmp_path / "data")
    batch = open_rows(tmp_path / "data").gather(np.array([1]))
    # [CLS] 我 来到 北京 清华大学 [SEP]
    assert batch.starts_word_T.tolist() == [True, True, True, False, True, False, True, False, False, False, True]

    tokenizer = load_tokenizer(tmp_path / "data" / "tokenizer")
    collator = MaskingCollator(tokenizer, 0.5, unit="word", layout="packed", return_tensors="np", seed=0)
    kinds = np.full((100, len(batch.ids_T)), -1)
    for epoch in range(100):
        masked = collator.collate_rows(batch, np.array([1]), np.array([epoch]), step=0)
        kinds[epoch, masked.target_index] = masked.target_kind
    for word in (slice(2, 4), slice(4, 6), slice(6, 10)):  # chosen and corrupted as a whole
        assert (kinds[:, word] == kinds[:, word][:, :1]).all()
    assert {tuple(chosen) for chosen in (kinds[:, [1, 2, 4, 6]] >= 0).tolist()} >= {
        (True, False, False, False), (False, True, False, False), (False, False, True, False),
        (False, False, False, True),
    }  # fmt: skip
    assert (kinds[:, [0, -1]] == -1).all()


def test_chinese_is_not_one_giant_word_to_a_byte_level_tokenizer(tmp_path):
    text = "\n\n".join(["我们喜欢阅读书籍和听音乐", "北京是中国的首都"] * 20)
    (tmp_path / "zh.txt").write_text(text, encoding="utf-8")
    corpus = CorpusConfig(corpus=[str(tmp_path / "zh.txt")])
    train_tokenizer(corpus, TokenizerConfig(kind="bpe", vocab_size=400), tmp_path / "bpe")
    rows = open_rows(prepare(corpus, tmp_path / "bpe", PrepareConfig(validation_share=0.0), tmp_path / "rows"))
    batch = rows.gather(np.arange(len(rows)))
    assert batch.starts_word_T.mean() > 0.25
