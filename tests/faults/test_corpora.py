"""Text of any bytes is read, or refused with file and line; a line of any length takes the same memory."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from counts import counts
from grammar import documents

from bertkit.cli import main
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.prepare import prepare
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import read_documents
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

GOOD = "anna paints the old house.\n\nboris forgets the letter.\n"
REFUSED = {
    "invalid UTF-8": (b"anna\n\nboris \xff paints\n", "bad.txt:3: not UTF-8 (byte 0xff)"),
    "a character cut at the end": ("anna\n\nna\u00efve".encode()[:-3], "bad.txt:3: not UTF-8"),
    "UTF-16": (GOOD.encode("utf-16"), "bad.txt:1: not UTF-8"),
    "NUL": (b"anna\n\n\nboris\0paints\n", "bad.txt:4: a NUL character"),
    "an empty file": (b"", "holds no text"),
    "only blanks": (b" \n\t\n\r\n   ", "holds no text"),
    "gzip named .txt": (gzip.compress(GOOD.encode()), "bad.txt:1: these are gzip bytes in a file not named .gz"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_corpus_of_wrong_bytes_is_refused_with_its_place(home, tmp_path, tried, capsys, case):
    """Row 14: before training, with exit code 2 and one line."""
    data, complaint = REFUSED[case]
    (tmp_path / "bad.txt").write_bytes(data)
    places = [f"data.corpus={tmp_path / 'bad.txt'}", f"data.cache_dir={tmp_path / 'cache'}"]
    assert main(["pretrain", "bert-mini", *places, f"run.dir={tmp_path / 'run'}", "train.steps=1"]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("bertkit: ")
    assert complaint in said
    tried()


@pytest.mark.parametrize("case", ["invalid UTF-8", "a character cut at the end", "NUL"])
def test_wrong_bytes_are_replaced_where_that_is_asked_for(tmp_path, tried, case):
    """Row 14: each by the character for such cases; nothing else changes."""
    (tmp_path / "bad.txt").write_bytes(REFUSED[case][0])
    config = CorpusConfig(corpus=[str(tmp_path / "bad.txt")], errors="replace")
    texts = [document.text for document in read_documents(config)]
    assert texts[0] == "anna"
    assert texts[1].count("\ufffd") == 1
    tried()


def test_line_breaks_and_a_mark_at_the_start_change_no_token(tmp_path, tried):
    """Row 14: CRLF, a lone CR, a BOM and a missing last line break give the rows of plain LF."""
    text = "\n\n".join(documents(30)) + "\n"
    variants = {
        "lf": text.encode(),
        "crlf": text.replace("\n", "\r\n").encode(),
        "cr": text.replace("\n", "\r").encode(),
        "bom": b"\xef\xbb\xbf" + text.encode(),
        "open": text.rstrip("\n").encode(),
    }
    made = {}
    for name, data in variants.items():
        path = tmp_path / name / "text.txt"
        path.parent.mkdir()
        path.write_bytes(data)
        corpus = CorpusConfig(corpus=[str(path)])
        if name == "lf":
            train_tokenizer(corpus, TokenizerConfig(vocab_size=120), tmp_path / "tokenizer")
        folder = prepare(corpus, tmp_path / "tokenizer", PrepareConfig(seq_len=16), tmp_path / name / "rows")
        made[name] = {path.name: path.read_bytes() for path in folder.glob("*-0*")}
        assert made[name], "there are files of rows"
        assert made[name] == made["lf"], name
        tried()


PEAK = """
import sys
from bertkit.bench.measure import most_memory
from data_pipelines.text.config import CorpusConfig
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.rows.prepare import prepare
from data_pipelines.vocab.tokenizer import train_tokenizer
corpus = CorpusConfig(corpus=[sys.argv[1]])
train_tokenizer(corpus, TokenizerConfig(vocab_size=200, sample_mb=int(sys.argv[3])), sys.argv[2] + "/tokenizer")
told = set()
report = lambda now: told.add(now.tokens)
prepare(corpus, sys.argv[2] + "/tokenizer", PrepareConfig(), sys.argv[2] + "/rows", report=report)
print(int(most_memory()), len(told))
"""


@counts(everyday=1, full=4)
@pytest.mark.timeout(1800)
def test_a_line_of_50_megabytes_takes_no_more_memory_than_a_page(tmp_path, tried, count):
    """Row 15: a tokenizer is trained on it and rows are made of it; with spaces, without one, as JSON, in Chinese."""
    spaced, solid, chinese = "anna paints the old house ", "annapaints", "我们喜欢阅读书籍和听音乐"
    shapes = {
        "spaces.txt": lambda size: spaced * (size // len(spaced)),
        "solid.txt": lambda size: f"{spaced}\n" + solid * (size // len(solid)),
        "json.jsonl": lambda size: '{"text": "' + spaced * (size // len(spaced)) + '"}\n',
        "chinese.txt": lambda size: chinese * (size // len(chinese.encode())),
    }
    for name in list(shapes)[:count]:
        peaks = []
        for size in (10**5, 50 * 10**6):
            folder = tmp_path / f"{name}-{size}"
            folder.mkdir()
            (folder / name).write_text(shapes[name](size), encoding="utf-8")
            all_of_it = count > 1 and name == "spaces.txt"
            peaks.append(peak(folder / name, folder, sample_mb=60 if all_of_it else 5)[0])
        # A JSON line is one record, which must be held to be read: the text, its bytes and the line.
        assert peaks[1] <= peaks[0] + 300, (name, peaks)
        tried()


@counts(everyday=1, full=2)
@pytest.mark.timeout(3600)
def test_a_gzip_bomb_and_a_huge_line_take_no_more_memory_than_a_page(tmp_path, tried, count):
    """Row 38: a thousand times larger than its file, or a line of 200 MB; and the progress moves."""
    text = "anna paints the old house "
    # A hundredth is text: reading the rest takes as much memory, and tokenizing it would take minutes.
    blanks = (" " * 9_899 + "\n") * 10
    megabyte = gzip.compress((text * 38 + "\n" + blanks).encode() * 10)
    shapes = {
        "bomb.txt.gz": lambda size: megabyte * max(1, size // 10**6),
        "line.txt": lambda size: (text * (size // len(text))).encode(),
    }
    sizes = {"bomb.txt.gz": 10**9, "line.txt": 2 * 10**8} if count > 1 else {"bomb.txt.gz": 10**8}
    for name, size in sizes.items():
        found = []
        for number, chars in enumerate((10**5, size)):
            folder = tmp_path / f"{name}-{number}"
            folder.mkdir()
            (folder / name).write_bytes(shapes[name](chars))
            found.append(peak(folder / name, folder, sample_mb=5))
        (small, _), (large, num_told) = found
        assert large <= small + 300, (name, found)
        assert num_told > 5, "progress moves"
        tried()


def peak(corpus: Path, folder: Path, sample_mb: int) -> tuple[int, int]:
    """Megabytes, and how often the preparation told of its progress."""
    command = [sys.executable, "-c", PEAK, str(corpus), str(folder), str(sample_mb)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    megabytes, num_told = map(int, done.stdout.split())
    return megabytes, num_told
