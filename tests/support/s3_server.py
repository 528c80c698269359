"""An S3 server on this machine, as much of it as a driver needs, which fails when a test asks it to.

There is one bucket, and its objects are kept in memory. Faults are taken in turn by the requests for objects, and each
is met once: "500", "503" (with S3's SlowDown), "cut" (the connection ends in the middle of the content), or "" for a
request that is answered.
"""

import hashlib
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bucket"
_SLOW = "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_BROKEN = "<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"
_NO_BUCKET = "<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>"
_NO_KEY = "<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>"


class S3Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.faults: list[str] = []
        self.asked: list[str] = []
        """Method and key of every request for an object."""
        self.bytes_per_second = float("inf")
        """Of all connections together."""
        self._gate, self._free_at = threading.Lock(), 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """What makes a driver come here, and leaves all repeating to whoever calls it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def pace(self, num_bytes: int) -> None:
        """Wait as long as so many bytes take."""
        with self._gate:
            self._free_at = max(self._free_at, time.monotonic()) + num_bytes / self.bytes_per_second
            wait = self._free_at - time.monotonic()
        if wait > 0:
            time.sleep(wait)


@contextmanager
def s3_server() -> Iterator[S3Server]:
    with S3Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3Server

    def parse_request(self) -> bool:
        """As usual, but that what is meant for another bucket is answered here."""
        if not super().parse_request():
            return False
        bucket = urlsplit(self.path).path.strip("/").partition("/")[0]
        if bucket not in ("", BUCKET):
            self.server.asked.append(f"{self.command} another bucket")
            self._body()
            self._answer(404, _NO_BUCKET)
            return False
        return True

    def do_GET(self) -> None:
        key, query = self._target()
        if not key:
            self._list(query)
        elif not self._fails(key) and (data := self._object(key)) is not None:
            self._give(data)

    def do_HEAD(self) -> None:
        key, _ = self._target()
        if not key:
            self._answer(200)
        elif not self._fails(key) and (data := self._object(key)) is not None:
            self._answer(200, size=len(data), headers=_facts(data))

    def do_PUT(self) -> None:
        (key, query), data = self._target(), self._body()
        if not key:
            self._answer(200)
        elif not self._fails(key):
            if "uploadId" in query:
                self.server.uploads[query["uploadId"]][int(query["partNumber"])] = data
            else:
                self.server.objects[key] = data
            self._answer(200, headers=_facts(data))

    def do_POST(self) -> None:
        (key, query), body = self._target(), self._body()
        if "delete" in query:
            for name in re.findall(r"<Key>(.*?)</Key>", body.decode()):
                self.server.objects.pop(name, None)
            self._answer(200, "<DeleteResult></DeleteResult>")
        elif "uploads" in query:
            name = f"upload-{len(self.server.uploads)}"
            self.server.uploads[name] = {}
            self._answer(200, f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId>"
                         "</InitiateMultipartUploadResult>")  # fmt: skip
        else:
            parts = self.server.uploads.pop(query["uploadId"])
            self.server.objects[key] = b"".join(parts[number] for number in sorted(parts))
            self._answer(200, "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>")

    def do_DELETE(self) -> None:
        key, _ = self._target()
        self.server.objects.pop(key, None)
        self._answer(204)

    def _target(self) -> tuple[str, dict[str, str]]:
        """The key of an object, "" of the bucket, and what stands behind the question mark."""
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        return unquote(parts.path).lstrip("/").partition("/")[2], query

    def _body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            whole, rest = b"", data
            while rest:
                head, _, rest = rest.partition(b"\r\n")
                size = int(head.partition(b";")[0], 16)
                whole, rest = whole + rest[:size], rest[size + 2 :] if size else b""
            return whole
        return data

    def _fails(self, key: str) -> bool:
        self.server.asked.append(f"{self.command} {key}")
        if not self.server.faults or (self.server.faults[0] == "cut" and self.command != "GET"):
            return False
        fault = self.server.faults.pop(0)
        if not fault:
            return False
        if fault == "cut":
            data = self.server.objects[key]
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        else:
            self._answer(int(fault), _SLOW if fault == "503" else _BROKEN)
        return True

    def _object(self, key: str) -> bytes | None:
        if key not in self.server.objects:
            self._answer(404, _NO_KEY)
        return self.server.objects.get(key)

    def _give(self, data: bytes) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        headers = _facts(data)
        if asked:
            first, last = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            data = data[first : last + 1]
        self.server.pace(len(data))
        self._answer(206 if asked else 200, data, headers=headers)

    def _list(self, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        files, folders = [], set()
        for key, data in sorted(self.server.objects.items()):
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
            else:
                facts = _facts(data)
                files.append(
                    f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>{escape(facts['ETag'])}</ETag>"
                    "<LastModified>2026-01-01T00:00:00.000Z</LastModified><StorageClass>STANDARD</StorageClass></Contents>"
                )
        common = "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in folders)
        count = len(files) + len(folders)
        self._answer(
            200,
            f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{count}</KeyCount>"
            f"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{''.join(files)}{common}</ListBucketResult>",
        )

    def _answer(self, status: int, content: str | bytes = b"", size: int | None = None, headers=None) -> None:
        data = content.encode() if isinstance(content, str) else content
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) if size is None else size))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *arguments) -> None:
        pass


def _facts(data: bytes) -> dict[str, str]:
    return {
        "ETag": f'"{hashlib.md5(data).hexdigest()}"',
        "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT",
        "Content-Type": "binary/octet-stream",
        "Accept-Ranges": "bytes",
    }
