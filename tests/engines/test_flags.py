"""A part is made by the verb with the flags that were given, but those that say where it runs."""

import argparse
import sys

from bertkit.cli.corpus import clean
from bertkit.engines.flags import part_command


def test_the_command_of_a_part_repeats_what_was_given():
    parser = argparse.ArgumentParser()
    clean(parser)
    given = ["--corpus", "a b.txt", "c.txt", "--out", "cleaned", "--no-near", "--private", "email", "phone"]
    arguments = parser.parse_args([*given, "--engine", "local", "--parts", "4", "--json"])
    command = part_command(["clean"], arguments, ["my_format"])(3)
    assert command[:5] == [sys.executable, "-m", "bertkit", "clean", "--plugin=my_format"]
    assert command[-2:] == ["--part", "3/4"]
    again = parser.parse_args(command[5:])
    assert (again.engine, again.parts, again.json) == (None, None, None)
    assert all(getattr(again, name) == getattr(arguments, name) for name in ("corpus", "out", "near", "private"))
