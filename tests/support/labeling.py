"""Labeled files written and read."""

import gzip

from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.tagged import read_tagged


def write(path, text):
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def read(path, text, tagged=True, **settings):
    return list(read_tagged(write(path, text), TaggedConfig(**settings), tagged=tagged))
