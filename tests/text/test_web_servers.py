"""Text on a web server: what it lacks, refuses or cannot do is told as that; only what may pass is asked for again."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from grammar import documents as generated

from data_pipelines.text import stores
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.corpus import read_documents

pytest.importorskip("aiohttp", reason="the extra http is not installed")
TEXT = "\n\n".join(generated(200, seed=0))


class Server(ThreadingHTTPServer):
    daemon_threads = True
    statuses: list[int]
    """With which the next requests fail."""
    asked = 0
    ranges = True


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        data, status = TEXT.encode(), self.server.statuses.pop(0) if self.server.statuses else 200
        if status != 200:
            self.send_error(status)
            return
        asked = self.headers.get("Range", "") if self.server.ranges else ""
        if asked:
            first, last = map(int, asked.removeprefix("bytes=").split("-"))
            data = data[first : last + 1]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET

    def log_message(self, *arguments) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setattr(stores, "WAITS", (0.0,) * 4)
    monkeypatch.setattr(stores, "BLOCK_BYTES", 1000)
    with Server(("127.0.0.1", 0), Handler) as server:
        server.statuses = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def url_of(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_port}/my.txt"


def texts(url: str) -> list[str]:
    return [document.text for document in read_documents(CorpusConfig(corpus=[url]))]


def test_a_server_that_fails_now_and_then_is_asked_again(server):
    server.statuses = [500, 503, 200, 502]  # HEAD and GET of the first question, HEAD of the second, the first block
    assert texts(url_of(server)) == TEXT.split("\n\n")
    assert not server.statuses


@pytest.mark.parametrize(
    ("status", "named", "asked"),
    [(404, "there is no file", 2), (403, "credentials", 2), (500, "failed 5 times", 10)],
)
def test_what_will_not_pass_is_told_at_once(server, status, named, asked):
    server.statuses = [status] * 100
    with pytest.raises(ValueError, match=named) as told:
        texts(url_of(server))
    assert url_of(server) in str(told.value)
    assert server.asked == asked


def test_a_server_that_nobody_runs_is_not_taken_for_one_without_the_file(server):
    with Server(("127.0.0.1", 0), Handler) as closed:
        url = url_of(closed)
    with pytest.raises(stores.StoreFails, match="Cannot connect"):
        texts(url)


def test_a_server_that_gives_no_parts_of_a_file_is_named(server):
    server.ranges = False
    with pytest.raises(ValueError, match="download it first"):
        texts(url_of(server))
