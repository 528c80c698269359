"""Preparation: nothing lost, killed anywhere the same files, and never mixed with what it does not belong to."""

import errno
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from grammar import NAMES, documents, write_corpus

from data_pipelines import prepare as module
from data_pipelines import shards
from data_pipelines.config import CorpusConfig, PrepareConfig, TokenizerConfig
from data_pipelines.corpus import read_documents
from data_pipelines.prepare import PROGRESS, Part, merge, prepare
from data_pipelines.shards import MANIFEST, open_rows
from data_pipelines.tokenizer import load_tokenizer, train_tokenizer
from data_pipelines.words import starts_from_word_ids

SMALL = PrepareConfig(seq_len=32, shard_tokens=600, validation_share=0.1)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(module, "_BATCH_CHARS", 2000)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A corpus and a tokenizer of each kind, made once."""
    folder = tmp_path_factory.mktemp("home")
    corpus = CorpusConfig(corpus=[str(write_corpus(folder / "corpus.txt", count=120))])
    for kind in ("wordpiece", "bpe"):
        train_tokenizer(corpus, TokenizerConfig(kind=kind, vocab_size=300), folder / kind)
    return folder


@pytest.fixture
def corpus(home, tmp_path) -> CorpusConfig:
    return CorpusConfig(corpus=[str(shutil.copy(home / "corpus.txt", tmp_path / "corpus.txt"))])


@pytest.fixture
def tokenizer(home) -> Path:
    return home / "wordpiece"


def numbered(count: int) -> list[str]:
    """Texts of words the tokenizers know, no two alike."""
    return [
        " ".join(NAMES[i // 6**place % 6] for place in range(4)) + f" {text}" for i, text in enumerate(documents(count))
    ]


def sequences(folder, split="train") -> list[list[int]]:
    rows = open_rows(folder, split)
    batch = rows.gather(np.arange(len(rows)))
    starts = batch.sequence_starts
    return [batch.ids_T[a:b].tolist() for a, b in pairwise(starts)]


def inner(folder, split="train") -> list[int]:
    return [token for sequence in sequences(folder, split) for token in sequence[1:-1]]


def files(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


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


class Killed(BaseException):
    """Nothing in the product catches it, as nothing catches kill -9."""


def test_killed_at_every_write_it_goes_on_to_the_same_files(tokenizer, tmp_path, monkeypatch):
    corpus = CorpusConfig(corpus=[str(write_corpus(tmp_path / "few.txt", count=45))])
    prepare(corpus, tokenizer, SMALL, tmp_path / "whole")
    expected = files(tmp_path / "whole")
    assert sum(name.endswith(".tokens") for name in expected) > 3
    write, replace = shards._write_durably, os.replace
    calls = 0

    def dying(real, half):
        def call(path, data):
            nonlocal calls
            calls -= 1
            if calls == 0:
                half(path, data)
                raise Killed
            real(path, data)

        return call

    monkeypatch.setattr(
        shards, "_write_durably", dying(write, lambda path, data: path.write_bytes(data[: len(data) // 2]))
    )
    monkeypatch.setattr(shards.os, "replace", dying(replace, lambda path, target: None))
    kills, die_at = 0, 1
    while True:
        folder = tmp_path / "killed"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            calls = die_at
            prepare(corpus, tokenizer, SMALL, folder)
            break
        except Killed:
            kills += 1
        if not (folder / MANIFEST).exists():
            with pytest.raises(ValueError, match=r"half prepared|no folder of prepared data"):
                open_rows(folder)
        for again in range(die_at % 3):  # killed a second and third time
            try:
                calls = again + 2
                prepare(corpus, tokenizer, SMALL, folder)
            except Killed:
                kills += 1
        calls = 0
        prepare(corpus, tokenizer, SMALL, folder)
        assert files(folder) == expected, f"killed at write {die_at}"
        die_at += 1
    assert kills > 30


def test_killed_between_two_shards_it_goes_on_to_the_same_files(corpus, tokenizer, tmp_path):
    prepare(corpus, tokenizer, SMALL, tmp_path / "whole")
    num_reports = []
    prepare(corpus, tokenizer, SMALL, tmp_path / "counted", report=num_reports.append)
    for stop in range(1, len(num_reports) + 1):
        seen = []

        def stopping(progress, stop=stop, seen=seen):
            seen.append(progress)
            if len(seen) == stop:
                raise Killed

        with pytest.raises(Killed):
            prepare(corpus, tokenizer, SMALL, tmp_path / f"{stop}", report=stopping)
        rest: list = []
        prepare(corpus, tokenizer, SMALL, tmp_path / f"{stop}", report=rest.append)
        assert files(tmp_path / f"{stop}") == files(tmp_path / "whole")
        assert len(rest) <= len(num_reports)
    assert len(rest) < len(num_reports) / 2  # went on, did not start over


KILLED = """
import sys, time
from data_pipelines import prepare as module
from data_pipelines.config import CorpusConfig, PrepareConfig
module._BATCH_CHARS = 2000
config = PrepareConfig(seq_len=32, shard_tokens=600, validation_share=0.1)
def report(progress):
    print(flush=True)
    time.sleep(0.01)
module.prepare(CorpusConfig(corpus=[sys.argv[1]]), sys.argv[2], config, sys.argv[3], report=report)
"""


def test_kill_9_at_a_random_moment(corpus, tokenizer, tmp_path):
    prepare(corpus, tokenizer, SMALL, tmp_path / "whole")
    rng = random.Random(0)
    for _ in range(2):
        command = [sys.executable, "-c", KILLED, corpus.corpus[0], tokenizer, tmp_path / "killed"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(rng.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    prepare(corpus, tokenizer, SMALL, tmp_path / "killed")
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


def begun(corpus, tokenizer, folder, config=SMALL):
    """A preparation that was stopped after some shards."""

    def stop(progress):
        if progress.tokens > 2500:
            raise Killed

    with pytest.raises(Killed):
        prepare(corpus, tokenizer, config, folder, report=stop)


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
        with pytest.raises(ValueError, match="holds something that is no prepared data"):
            prepare(corpus, tokenizer, SMALL, folder)
    assert files(tmp_path / "mine") == {"thesis.txt": b"all I have"}


def test_damage_is_told_instead_of_taken_for_finished(corpus, tokenizer, tmp_path):
    for name in ("whole", "begun"):
        prepare(corpus, tokenizer, SMALL, tmp_path / name) if name == "whole" else begun(
            corpus, tokenizer, tmp_path / name
        )
        (tmp_path / name / "train-00000.tokens").write_bytes(b"")
        with pytest.raises(ValueError, match=r"train-00000.tokens is damaged: 0 bytes, .* remove .* and prepare again"):
            prepare(corpus, tokenizer, SMALL, tmp_path / name)
    for content in ("", "{", "[]", "{}", json.dumps({"identity": {"sources": []}})):
        (tmp_path / "begun" / PROGRESS).write_text(content)
        with pytest.raises(ValueError, match=r"progress.json is damaged .* remove .* and start again"):
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


@pytest.mark.parametrize("of", [1, 3])
def test_the_parts_merged_have_the_documents_of_the_whole(corpus, tokenizer, tmp_path, of):
    config = PrepareConfig(seq_len=256, rows="line", validation_share=0.2)
    prepare(corpus, tokenizer, config, tmp_path / "whole")
    for number in range(1, of + 1):
        made = prepare(corpus, tokenizer, config, tmp_path / "parts", part=Part.parse(f"{number}/{of}"))
        assert made == tmp_path / "parts" / f"part-{number:05d}-of-{of:05d}"
        if number < of:
            with pytest.raises(ValueError, match=f"lacks {of - number} of {of} parts: part-{number + 1:05d}"):
                merge(tmp_path / "parts")
    assert merge(tmp_path / "parts") == tmp_path / "parts"
    for split in ("train", "validation"):
        assert sorted(sequences(tmp_path / "parts", split)) == sorted(sequences(tmp_path / "whole", split))
        open_rows(tmp_path / "parts", split).verify()
    prepare(corpus, tokenizer, config, tmp_path / "parts", report=pytest.fail)  # is the whole now
    with pytest.raises(ValueError, match="one finished set already"):
        merge(tmp_path / "parts")


def test_parts_that_do_not_belong_together_are_not_merged(home, corpus, tokenizer, tmp_path):
    parts = tmp_path / "parts"
    with pytest.raises(ValueError, match="holds no parts"):
        merge(tmp_path)
    prepare(corpus, tokenizer, SMALL, parts, part=Part(1, 2))
    copied = shutil.copytree(parts / "part-00001-of-00002", parts / "part-00002-of-00002")
    with pytest.raises(ValueError, match=r"part-00002-of-00002 .* the part changed"):
        merge(parts)
    shutil.rmtree(copied)
    prepare(corpus, home / "bpe", SMALL, parts, part=Part(2, 2))
    with pytest.raises(ValueError, match="the tokenizer changed"):
        merge(parts)
    shutil.rmtree(copied)
    begun(corpus, tokenizer, copied)
    with pytest.raises(ValueError, match="half prepared"):
        merge(parts)
    shutil.rmtree(copied)
    prepare(corpus, tokenizer, SMALL, parts, part=Part(2, 2))
    prepare(corpus, tokenizer, SMALL, parts, part=Part(2, 3))
    with pytest.raises(ValueError, match="part-00002-of-00003 beside 2 other parts"):
        merge(parts)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "1/0", "-1/3", "a/b", "1/3/4", ""])
def test_a_part_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="part must look like 3/16"):
        Part.parse(text)


def test_a_disk_too_small_is_told_before_anything_is_encoded(corpus, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 10**6, 1000))
    with pytest.raises(OSError, match=r"data: the shards need about [\d,]+ bytes, 1,000 are free"):
        prepare(corpus, tokenizer, SMALL, tmp_path / "data")


def test_a_disk_that_fills_up_is_told_and_can_be_emptied(corpus, tokenizer, tmp_path, monkeypatch):
    full = True

    def fsync(descriptor):
        if full and list((tmp_path / "data").glob("train-00002*")):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shards.os, "fsync", fsync)
    expected = r"train-00002.tokens: No space left on device; [\d,]+ bytes are needed, [\d,]+ are free"
    with pytest.raises(OSError, match=expected):
        prepare(corpus, tokenizer, SMALL, tmp_path / "data")
    full = False
    prepare(corpus, tokenizer, SMALL, tmp_path / "data")
    prepare(corpus, tokenizer, SMALL, tmp_path / "whole")
    assert files(tmp_path / "data") == files(tmp_path / "whole")


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


PEAK = """
import resource, sys
from data_pipelines.config import CorpusConfig, PrepareConfig
from data_pipelines.prepare import prepare
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
before = peak()
prepare(CorpusConfig(corpus=[sys.argv[1]]), sys.argv[2], PrepareConfig(), sys.argv[3])
print(before, peak())
"""


def megabytes(path, tokenizer, folder) -> tuple[int, int]:
    command = [sys.executable, "-c", PEAK, path, tokenizer, folder]
    before, peak = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
    return before, peak


@pytest.mark.faults
@pytest.mark.parametrize("shape", ["line", "document"])
def test_preparing_50_megabytes_in_one_piece_takes_less_than_300(tokenizer, tmp_path, shape):
    unit = b"anna paints the old house " * (1 if shape == "line" else 4) + b"\n" * (shape == "document")
    (tmp_path / "c.txt").write_bytes(unit * (50 * 10**6 // len(unit)))
    before, peak = megabytes(tmp_path / "c.txt", tokenizer, tmp_path / "data")
    assert peak - before < 300


@pytest.mark.faults
def test_preparing_200_megabytes_stays_below_a_gigabyte(tokenizer, tmp_path):
    with open(tmp_path / "c.txt", "w") as file:
        for seed in range(100):
            file.write("\n\n".join(documents(12_000, seed)) + "\n\n")
    assert (tmp_path / "c.txt").stat().st_size > 2 * 10**8
    _, peak = megabytes(tmp_path / "c.txt", tokenizer, tmp_path / "data")
    assert peak < 1000


def test_chinese_is_not_one_giant_word_to_a_byte_level_tokenizer(tmp_path):
    text = "\n\n".join(["我们喜欢阅读书籍和听音乐", "北京是中国的首都"] * 20)
    (tmp_path / "zh.txt").write_text(text, encoding="utf-8")
    corpus = CorpusConfig(corpus=[str(tmp_path / "zh.txt")])
    train_tokenizer(corpus, TokenizerConfig(kind="bpe", vocab_size=400), tmp_path / "bpe")
    rows = open_rows(prepare(corpus, tmp_path / "bpe", PrepareConfig(validation_share=0.0), tmp_path / "rows"))
    batch = rows.gather(np.arange(len(rows)))
    assert batch.starts_word_T.mean() > 0.25
