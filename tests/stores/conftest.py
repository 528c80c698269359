"""A store on this machine, which fails when it is asked to."""

from contextlib import contextmanager

import fsspec
import pytest
from s3_server import S3Server, s3_server

from bertkit.run import loop
from data_pipelines.text import stores


@pytest.fixture(scope="session")
def server():
    pytest.importorskip("s3fs", reason="the extra s3 is not installed")
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server
        fsspec.filesystem("s3").clear_instance_cache()


@pytest.fixture
def store(server: S3Server, monkeypatch, tmp_path) -> S3Server:
    """The server, empty and sound; no try waits, and a block is small."""
    server.objects.clear()
    server.faults.clear()
    server.asked.clear()
    server.bytes_per_second = float("inf")
    monkeypatch.setattr(stores, "WAITS", (0.0,) * 4)
    monkeypatch.setattr(stores, "BLOCK_BYTES", 5000)
    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return server


@pytest.fixture
def stopped_after(monkeypatch):
    """A context in which a run ends after the given step, as if it had been asked to."""

    @contextmanager
    def stopping(step: int):
        def run_steps(*arguments):
            for result in loop.run_steps(*arguments):
                yield result._replace(stop=True) if arguments[2].step == step else result

        with monkeypatch.context() as patch:
            patch.setattr("bertkit.pretrain.train.run_steps", run_steps)
            yield

    return stopping
