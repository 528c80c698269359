"""A first signal sets a flag, one passed on by a launcher is the same wish, a later one ends the process at once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bertkit.run.signals import StopSignals


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_sets_a_flag_and_nothing_else(number, code, caught):
    caught(number, signal.SIG_DFL)  # these tests may run under nohup themselves
    signals = StopSignals()
    signals.catch()
    os.kill(os.getpid(), number)
    os.kill(os.getpid(), number)  # the launcher passes Ctrl-C on
    signals.release()
    assert (signals.number, signals.exit_code) == (number, code)
    assert signal.getsignal(number) is signal.SIG_DFL


def test_a_hangup_that_nohup_ignores_stays_ignored(caught):
    caught(signal.SIGHUP, signal.SIG_IGN)
    signals = StopSignals()
    signals.catch()
    os.kill(os.getpid(), signal.SIGHUP)
    signals.release()
    assert signals.number == 0


@pytest.fixture
def caught():
    """Sets what a signal does, and puts back what it did before."""
    before: dict[int, object] = {}

    def set_handler(number: int, handler: object) -> None:
        before[number] = signal.signal(number, handler)

    yield set_handler
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_rank_that_was_not_asked_itself_ends_as_if_terminated():
    assert StopSignals().exit_code == 143


def test_a_second_signal_ends_the_process_at_once():
    code = """
import sys, time
sys.path.insert(0, sys.argv[1])
from bertkit.run import signals
signals._ONE_REQUEST_SECONDS = 0.0
stop = signals.StopSignals()
stop.catch()
print("ready", flush=True)
while not stop.number:
    time.sleep(0.01)
print("asked", flush=True)
time.sleep(200)
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(Path.cwd())], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "asked\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=100) == 143
    process.stdout.close()
