"""Files on object stores and web servers (s3://, gs://, hdfs://, https://, memory://), through fsspec.

The user's own credentials count, as the store's driver finds them. A file is read in blocks, the next one while the
current one is used; a block that fails or comes short is asked for again, then the error names the URL.
"""

import io
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

BLOCK_BYTES = 1 << 23
WAITS = (0.5, 1.0, 2.0, 4.0)
"""Seconds before each further try."""
BUCKETS = ("s3", "s3a", "gs", "gcs")
"""Stores without folders, where a file needs an existing bucket."""
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "http": "http", "https": "http"}
"""The extra of bertkit that installs a store's driver."""
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "modificationTime", "created")
_VERSIONS = ("ETag", "etag", "md5Hash", *_TIMES)
"""What stores call that which changes with a file; the first one that is there counts."""
_GLOB_SIGNS = "*?["
_MAX_WORDS = 300
"""Characters of a driver's complaint that are told."""
_NEEDS = {"hdfs": "; hdfs:// needs Java and Hadoop's libhdfs.so here: set JAVA_HOME, HADOOP_HOME and CLASSPATH"}
"""What a driver needs beside its Python package."""
T = TypeVar("T")


class StoreFails(ValueError):
    """A store that goes on failing, and may answer later."""


@dataclass(frozen=True)
class StoredFile:
    """One file of a store; it has a name and a suffix as a path has them, and is written as its URL."""

    url: str
    size: int
    version: str
    """Changes when the file does, as far as its store reports it."""

    @property
    def name(self) -> str:
        return PurePosixPath(self.url).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.url).suffix

    def open(self) -> io.BufferedReader:
        return io.BufferedReader(_Blocks(self), buffer_size=1 << 20)

    def __str__(self) -> str:
        return self.url


def is_url(name: str) -> bool:
    return "://" in name


def folder_or_url(name: str) -> Path | str:
    """A folder as a path, a URL without a slash at its end as it is."""
    return name.rstrip("/") if is_url(name) else Path(name)


def find_stored(url: str) -> list[StoredFile]:
    """The file of this URL, or all files of a folder or glob, in the order of their names."""
    store, path = open_store(url)
    store.invalidate_cache()  # what others have written since counts, too
    if any(sign in path for sign in _GLOB_SIGNS) and not url.startswith("http"):  # there ? begins a query
        found = {name: info for name, info in ask(url, lambda: store.glob(path, detail=True)).items() if _is_file(info)}
    else:
        info = ask(url, lambda: store.info(path))
        found = {path: info} if _is_file(info) else ask(url, lambda: store.find(path, detail=True))
    files = []
    for name, info in sorted(found.items()):
        if info.get("size") is None:
            raise ValueError(f"{url}: the store does not report the size of {name}; download it first")
        version = next((str(info[key]) for key in _VERSIONS if info.get(key)), "")
        files.append(StoredFile(url_of(store, name, url, path), info["size"], version))
    if not files:
        raise ValueError(f"no file matches {url!r}")
    return files


def url_of(store: Any, name: str, url: str, path: str) -> str:
    """The URL of what a store calls `name`, where it calls `path` what is at `url`. The store itself leaves out its
    host where paths begin behind it, as on hdfs://."""
    for whole in (url, url.rstrip("/")):
        if whole.endswith(path):
            return whole.removesuffix(path) + name
    return store.unstrip_protocol(name)


def open_store(url: str) -> tuple[Any, str]:
    """The store of a URL, and what the store itself calls the file."""
    import fsspec

    protocol = url.partition("://")[0]
    if "::" in url:
        raise ValueError(f"{url}: a URL inside another URL is not supported; name the file itself")
    try:
        return fsspec.core.url_to_fs(url)
    except ImportError as error:
        extra = _EXTRAS.get(protocol)
        remedy = f"pip install 'bertkit[{extra}]'" if extra else str(error)
        raise ValueError(f"{url}: the driver of {protocol}:// is not installed: {remedy}") from None
    except Exception as error:
        # Unknown protocols, missing credentials, hosts that nobody knows: each driver has its own exceptions.
        remedy = _NEEDS.get(protocol, "")
        raise ValueError(f"{url}: the store cannot be opened: {_words(error)}{remedy}") from None


def ask(url: str, question: Callable[[], T]) -> T:
    """The answer of a store, asked again where it failed for the moment."""
    for wait in (*WAITS, None):
        try:
            return question()
        except Exception as error:  # each driver has its own exceptions, and few derive from OSError
            _refuse_for_good(url, error)
            if wait is None:
                tries, remedy = len(WAITS) + 1, "check the URL and the network, or run again later"
                raise StoreFails(f"{url}: failed {tries} times ({_words(_cause(url, error))}); {remedy}") from None
            time.sleep(wait)
    raise AssertionError("the last try returns or raises")


def _refuse_for_good(url: str, error: Exception) -> None:
    """Raise where a retry cannot help: a file that is not there, or that the user may not read."""
    cause = _cause(url, error)
    status = getattr(cause, "status", None)
    if isinstance(cause, FileNotFoundError) or status in (404, 410):
        kinds = "file, folder or bucket" if url.partition("://")[0] in BUCKETS else "file or folder"
        raise ValueError(f"there is no {kinds} {url!r}") from None
    if isinstance(cause, PermissionError) or status in (401, 403) or "Credential" in type(cause).__name__:
        raise ValueError(f"{url}: the store refuses access ({_words(cause)}); check your credentials") from None
    if isinstance(cause, NotImplementedError):
        raise ValueError(f"{url} is on a read-only store; choose another one, or a local folder") from None


def _cause(url: str, error: Exception) -> BaseException:
    """What a driver met. fsspec calls every failure of a web server a missing file, whose name is all that it says."""
    return error.__cause__ or error if url.startswith("http") and isinstance(error, FileNotFoundError) else error


class _Blocks(io.RawIOBase):
    """The bytes of a stored file, fetched block by block, one block ahead."""

    def __init__(self, file: StoredFile):
        self._file, self._at = file, 0
        self._store, self._path = open_store(file.url)
        self._ahead = ThreadPoolExecutor(1)
        self._blocks: dict[int, Future[bytes]] = {}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        if self._at >= self._file.size:
            return 0
        index, start = divmod(self._at, BLOCK_BYTES)
        wanted = [i for i in (index, index + 1) if i * BLOCK_BYTES < self._file.size]
        self._blocks = {i: self._blocks.get(i) or self._ahead.submit(self._fetch, i) for i in wanted}
        data = self._blocks[index].result()[start : start + len(buffer)]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _fetch(self, index: int) -> bytes:
        start = index * BLOCK_BYTES
        end = min(start + BLOCK_BYTES, self._file.size)

        def fetched() -> bytes:
            data = self._store.cat_file(self._path, start=start, end=end)
            if len(data) not in (end - start, self._file.size):
                raise OSError(f"{len(data):,} bytes came of {end - start:,} from {start:,} on")
            return data

        data = ask(self._file.url, fetched)
        if len(data) != end - start:  # asked for each block anew, it would send all of the file as often
            raise ValueError(f"{self._file.url}: the server does not support range requests; download it first")
        return data

    def close(self) -> None:
        self._ahead.shutdown(wait=False, cancel_futures=True)
        super().close()


def _is_file(info: dict[str, Any]) -> bool:
    return info.get("type") != "directory"


def _words(error: BaseException) -> str:
    """What a driver says, on one line; some say thousands of words."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= _MAX_WORDS else f"{words[:_MAX_WORDS]}…"
