"""Lines are given out as they come; whoever sends them slowly gets an answer to each, whoever is fast many at once."""

import io
import os

import pytest

from bertkit.finetune.predict.standard_input import StandardInput
from bertkit.finetune.predict.tagger import _chunks


class Pipe:
    """A pipe with both of its ends, and how often the reader was about to wait."""

    def __init__(self):
        receiving, self._sending = os.pipe()
        self._file = os.fdopen(receiving, "rb")
        self.waits = 0
        self.input = StandardInput(self._file, self._count)

    def _count(self) -> None:
        self.waits += 1

    def send(self, data: bytes) -> None:
        os.write(self._sending, data)

    def close(self) -> None:
        os.close(self._sending)


def texts(data: bytes) -> list[str]:
    return [line.text for line in StandardInput(io.BytesIO(data), lambda: None).lines()]


def test_a_line_is_given_out_before_the_next_one_has_come():
    pipe = Pipe()
    lines = pipe.input.lines()
    for word in (b"one", b"two", b"three"):
        assert pipe.input.must_wait()
        pipe.send(word + b"\n")
        assert not pipe.input.must_wait()
        assert next(lines).text == word.decode()
    assert pipe.waits == 0
    pipe.close()
    assert not pipe.input.must_wait(), "the end is known at once"
    assert list(lines) == []


def test_half_a_line_is_not_given_out_and_its_other_half_not_lost():
    pipe = Pipe()
    lines = pipe.input.lines()
    pipe.send("whole\nhä".encode()[:-1])  # cut inside a character
    assert next(lines).text == "whole"
    assert pipe.input.must_wait()
    pipe.send("hä".encode()[-1:] + b"lf\n")
    assert next(lines).text == "hälf"
    pipe.close()


def test_slow_lines_make_small_chunks_and_fast_ones_make_full_ones():
    pipe = Pipe()
    given = ((line.text, False) for line in pipe.input.lines())
    chunks = ([text for text, _ in held] for held in _chunks(given, 4, pipe.input.must_wait, context=False))
    pipe.send(b"a\n")
    assert next(chunks) == ["a"]
    pipe.send(b"b\nc\n")
    assert next(chunks) == ["b", "c"]
    pipe.send(b"d\n" * 6)
    assert [len(next(chunks)), len(next(chunks))] == [4, 2]
    pipe.send(b"e\nlast")
    pipe.close()
    assert list(chunks) == [["e", "last"]]


def test_what_is_known_is_answered_before_waiting():
    answered = []
    receiving, sending = os.pipe()
    with os.fdopen(receiving, "rb") as file:
        # The other side sends a second line only when it has the first answer.
        stream = StandardInput(file, lambda: (answered.append("flushed"), os.write(sending, b"second\n")))
        lines = stream.lines()
        os.write(sending, b"first\n")
        assert next(lines).text == "first"
        assert next(lines).text == "second"
    assert answered == ["flushed"]
    os.close(sending)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\r\nb\rc\n", ["a", "b", "c"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", ["a", "\ufeffb"]),
        (b"x" * 300_000 + b"\ny", ["x" * 300_000, "y"]),
        ("a\u2028b\n".encode(), ["a\u2028b"]),
    ],
)
def test_lines_break_as_in_files(data, expected):
    assert texts(data) == expected


def test_bytes_that_are_no_text_are_named_by_line():
    with pytest.raises(ValueError, match="standard input:3: not UTF-8"):
        texts(b"a\rb\n\xff\n")
