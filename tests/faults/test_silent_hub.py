"""A name on the hub ends within seconds where there is no network, and soon where the hub falls silent."""

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

NAME = "nobody/no-such-thing"
MODEL = ["info", f"hf:{NAME}"]
CORPUS = ["tokenizer", "train", "--corpus", f"hf:{NAME}", "--out", "tokenizer"]
LABELED = ["finetune", "ner", f"data.train=hf:{NAME}", "run.dir=run"]
# Silence is given up after ten seconds; a test need not wait so long.
IMPATIENT = """
import sys
from data_pipelines.text import hub
from bertkit.cli import main
hub.SILENT_SECONDS = 1.0
calls = []
sys.addaudithook(lambda event, values: calls.append(values) if event == "socket.connect" else None)
code = main(sys.argv[1:])
print(len(calls), "calls")
sys.exit(code)
"""


@contextmanager
def nobody():
    """A port on which nobody listens."""
    yield 9


@contextmanager
def silent():
    """A hub that takes every call and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def silent_after_one_answer():
    """A hub that says what a repository holds, and nothing more."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        answered = False

        def do_GET(self):
            if Handler.answered:
                over.wait(120)
                return
            Handler.answered = True
            files = [{"rfilename": name} for name in ("config.json", "model.safetensors", "train.jsonl")]
            answer = {"id": NAME, "sha": "0" * 40, "private": False, "siblings": files, "tags": [], "downloads": 0}
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_HEAD = do_POST = do_GET

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            over.set()
            server.shutdown()


def run(argv: list[str], port: int, folder: Path, seconds: float) -> tuple[subprocess.CompletedProcess, int]:
    """How it ended, and how often it called."""
    environment = os.environ | {
        "HF_ENDPOINT": f"http://127.0.0.1:{port}",
        "HF_HOME": str(folder / "hub"),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "PYTHONPATH": str(Path.cwd()),
    }
    command = [sys.executable, "-c", IMPATIENT, *argv]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=seconds)
    calls = int(done.stdout.split()[-2]) if done.stdout.endswith(" calls\n") else -1
    return done, calls


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(MODEL, id="model"),
        pytest.param(CORPUS, id="corpus"),
        pytest.param(LABELED, id="labeled data", marks=pytest.mark.faults),
    ],
)
@pytest.mark.timeout(500)
def test_without_a_network_a_name_ends_within_seconds(tmp_path, tried, within, argv):
    """Row 21: one line, exit code 2, and what to do instead; starting Python and importing are most of it."""
    with nobody() as port:
        done, calls = run(argv, port, tmp_path, seconds=within(60))
    assert done.returncode == 2, done.stderr
    assert "hf download" in done.stderr or "give that file's path" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
    assert 1 <= calls <= 3, "no storm of retries"
    tried()


@pytest.mark.parametrize("hub", [silent, silent_after_one_answer])
@pytest.mark.parametrize("argv", [MODEL, CORPUS, LABELED], ids=["model", "corpus", "labeled data"])
@pytest.mark.faults
@pytest.mark.timeout(400)
def test_a_hub_that_falls_silent_is_given_up(tmp_path, tried, argv, hub):
    """Row 21: at the first call or after an answer."""
    with hub() as port:
        done, _ = run(argv, port, tmp_path, seconds=300)
    assert done.returncode == 2, done.stderr
    assert "hf download" in done.stderr or "give that file's path" in done.stderr
    assert "Traceback" not in done.stderr
    tried()
