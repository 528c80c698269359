"""Commands that a shell calls by name enter; each is done by a process forked from one that has imported everything.

A block of a README calls bertkit a few times, and every call would spend its seconds on importing torch. The scripts
in the folder of `stand_in_for` pass their words, environment, folder and open files to a server over a socket; it
forks a process that is theirs from there on, and its exit code becomes the script's.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path

_ADDRESS, _FOLDER = "STAND_INS_SOCKET", "STAND_INS_FOLDER"
_LENGTH_BYTES = 8


@contextlib.contextmanager
def stand_in_for(commands: tuple[str, ...], folder: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """Put scripts of these names into the folder; yields the environment in which a shell finds and can use them."""
    folder.mkdir()
    for name in commands:
        script = folder / name
        # Isolated and without site: the script itself starts in some hundredths of a second.
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{__file__}" {name} "$@"\n')
        script.chmod(0o755)
    # A folder of its own, because the path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="stand-ins-") as short:
        environment = environment | {
            _ADDRESS: f"{short}/socket",
            _FOLDER: str(folder),
            "PATH": os.pathsep.join([str(folder), environment["PATH"]]),
        }
        # The server ends when its standard input does, so it never outlives the tests, however they end.
        with subprocess.Popen([sys.executable, __file__, "--serve"], env=environment, stdin=subprocess.PIPE):
            yield environment


def without_stand_ins(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a stood-in command means itself."""
    path = [folder for folder in environment["PATH"].split(os.pathsep) if folder != environment[_FOLDER]]
    return {**environment, "PATH": os.pathsep.join(path)}


def call(command: str, arguments: list[str]) -> int:
    """Let the server do it; the exit code comes back."""
    request = json.dumps([command, arguments, os.getcwd(), dict(os.environ)]).encode()
    with _connection() as connection:
        socket.send_fds(connection, [len(request).to_bytes(_LENGTH_BYTES, "big")], [0, 1, 2])
        connection.sendall(request)
        answer = connection.recv(1)
    return answer[0] if answer else 1


def _connection() -> socket.socket:
    deadline = time.monotonic() + 600
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(os.environ[_ADDRESS])
            return connection
        except (FileNotFoundError, ConnectionRefusedError):  # it still imports
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def serve() -> None:
    """Import what commands need, then fork for each, until standard input ends."""
    import torch
    from shortened import main, warm_up

    torch.set_num_threads(1)
    warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.environ[_ADDRESS])
        listener.listen()
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _become(connection, main)
            connection.close()


def _become(connection: socket.socket, main) -> None:
    """Be the process that the script asked for, to the end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        length, files, _, _ = socket.recv_fds(connection, _LENGTH_BYTES, 3)
        request = b""
        while len(request) < int.from_bytes(length, "big"):
            request += connection.recv(1 << 16)
        command, arguments, folder, environment = json.loads(request)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        # A text stream remembers whether its file could seek, and these are other files.
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww")
        )
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        code = main(command, arguments)
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        with contextlib.suppress(OSError):
            connection.sendall(bytes([code & 255]))
        os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve()
    else:
        sys.exit(call(sys.argv[1], sys.argv[2:]))
