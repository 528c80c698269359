"""A preparation that is killed, or runs out of disk, goes on to the same files."""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from grammar import write_corpus
from preparing import SMALL, Killed, files, numbered

from data_pipelines import durable
from data_pipelines.rows import prepare as module
from data_pipelines.rows.manifest import MANIFEST
from data_pipelines.rows.prepare import prepare
from data_pipelines.rows.shards import open_rows
from data_pipelines.text import readers
from data_pipelines.text.config import CorpusConfig

pytestmark = pytest.mark.usefixtures("small_batches")


def test_killed_at_every_write_it_goes_on_to_the_same_files(tokenizer, tmp_path, monkeypatch):
    corpus = CorpusConfig(corpus=[str(write_corpus(tmp_path / "few.txt", count=45))])
    prepare(corpus, tokenizer, SMALL, tmp_path / "whole")
    expected = files(tmp_path / "whole")
    assert sum(name.endswith(".tokens") for name in expected) > 3
    write, append = durable.write_file, durable.append_file
    calls = 0

    def dying(real, half):
        def call(*arguments, **options):
            nonlocal calls
            calls -= 1
            if calls == 0:
                half(*arguments, **options)
                raise Killed
            real(*arguments, **options)

        return call

    def half_of(real):
        return lambda path, data, **options: real(path, data[: len(data) // 2], **options)

    monkeypatch.setattr(durable, "write_file", dying(write, half_of(write)))
    monkeypatch.setattr(durable, "append_file", dying(append, half_of(append)))
    monkeypatch.setattr(durable.os, "replace", dying(os.replace, lambda path, target: None))
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
            with pytest.raises(ValueError, match=r"half prepared|not a folder of prepared data"):
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
    kill_at_every_report(corpus, tokenizer, SMALL, tmp_path)


def test_killed_within_a_long_document_its_rest_stays_in_its_split(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MAX_CHARS", 800)
    texts = numbered(200)
    long = ["\n".join(texts[first : first + 25]) for first in range(0, 200, 25)]
    (tmp_path / "long.txt").write_text("\n\n".join(long))
    config = replace(SMALL, validation_share=0.5)
    kill_at_every_report(CorpusConfig(corpus=[str(tmp_path / "long.txt")]), tokenizer, config, tmp_path)
    assert 2 <= len(open_rows(tmp_path / "whole", "validation")) <= len(open_rows(tmp_path / "whole")) * 3


def kill_at_every_report(corpus, tokenizer, config, tmp_path):
    prepare(corpus, tokenizer, config, tmp_path / "whole")
    num_reports = []
    prepare(corpus, tokenizer, config, tmp_path / "counted", report=num_reports.append)
    for stop in range(1, len(num_reports) + 1):
        seen = []

        def stopping(progress, stop=stop, seen=seen):
            seen.append(progress)
            if len(seen) == stop:
                raise Killed

        with pytest.raises(Killed):
            prepare(corpus, tokenizer, config, tmp_path / f"{stop}", report=stopping)
        rest: list = []
        prepare(corpus, tokenizer, config, tmp_path / f"{stop}", report=rest.append)
        assert files(tmp_path / f"{stop}") == files(tmp_path / "whole")
        assert len(rest) <= len(num_reports)
    assert len(rest) < len(num_reports) / 2  # went on, did not start over


KILLED = """
import sys, time
from data_pipelines.rows import filling, prepare as module
from data_pipelines.text.config import CorpusConfig
from data_pipelines.rows.config import PrepareConfig
module._BATCH_TOKENS, filling._WRITTEN_TOKENS = 500, 300
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


def test_a_disk_too_small_is_told_before_anything_is_encoded(corpus, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 10**6, 1000))
    with pytest.raises(OSError, match=r"data: .* [\d,]+ bytes.* 1,000"):
        prepare(corpus, tokenizer, SMALL, tmp_path / "data")


def test_a_disk_that_fills_up_is_told_and_can_be_emptied(corpus, tokenizer, tmp_path, monkeypatch):
    full = True

    def fsync(descriptor):
        if full and list((tmp_path / "data").glob("train-00002*")):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(durable.os, "fsync", fsync)
    expected = r"train-00002.tokens: No space left on device; [\d,]+ bytes are needed, [\d,]+ are free"
    with pytest.raises(OSError, match=expected):
        prepare(corpus, tokenizer, SMALL, tmp_path / "data")
    full = False
    prepare(corpus, tokenizer, SMALL, tmp_path / "data")
    prepare(corpus, tokenizer, SMALL, tmp_path / "whole")
    assert files(tmp_path / "data") == files(tmp_path / "whole")
