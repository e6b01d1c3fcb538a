"""The part of S3 that deltalake speaks, in memory: conditional PUT, ranged GET, HEAD, LIST, DELETE; loses answers.

It is a process of its own: deltalake holds the GIL while it waits for an answer.
"""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape

BUCKET = "tables"
_CONTROL = "/-/lose"
_ROOT = Path(__file__).parents[2]
_WHEN = formatdate(1_700_000_000, usegmt=True)


class ObjectStore:
    """One bucket. The answer of what :meth:`losing` names is lost after its object was stored."""

    def __enter__(self) -> ObjectStore:
        command = [sys.executable, "-m", "tests.sinks.object_store"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT)
        assert self._process.stdout is not None
        self._url = self._process.stdout.readline().strip()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def options(self) -> dict[str, str]:
        """Storage options of deltalake."""
        return {
            "AWS_ENDPOINT_URL": self._url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }

    @contextmanager
    def losing(self, suffix: str, instead: HTTPStatus | None = None) -> Iterator[None]:
        """Lose the answer of the next PUT of a key that ends so: cut the connection, or say something ``instead``."""
        before = self._set(suffix, instead)
        try:
            yield
        finally:
            lost = self._set(None, None)
        assert len(lost) == len(before) + 1, f"no PUT of *{suffix} came"

    def _set(self, suffix: str | None, instead: HTTPStatus | None) -> list[str]:
        body = json.dumps({"suffix": suffix, "instead": instead})
        with urlopen(Request(self._url + _CONTROL, body.encode(), method="POST")) as answer:
            lost: list[str] = json.load(answer)
        return lost


class _Store:
    """What the server holds: objects by key, keys whose answers were lost, and what to lose next."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.lost: list[str] = []
        self.suffix: str | None = None
        self.instead: int | None = None
        self.turn = threading.Lock()

    def put(self, key: str, body: bytes, *, once: bool) -> tuple[bool, bool]:
        """Store an object; whether it was stored, and whether its answer is to be lost."""
        with self.turn:
            if once and key in self.objects:
                return False, False
            self.objects[key] = body
            loses = self.suffix is not None and key.endswith(self.suffix)
            if loses:
                self.suffix = None
                self.lost.append(key)
            return True, loses


class _Handler(BaseHTTPRequestHandler):
    store: _Store
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_PUT(self) -> None:
        key, body = self._key, self._body
        stored, loses = self.store.put(key, body, once=self.headers.get("If-None-Match") == "*")
        if not stored:
            self._say(HTTPStatus.PRECONDITION_FAILED, b"<Error><Code>PreconditionFailed</Code></Error>")
        elif not loses:
            self._say(HTTPStatus.OK, ETag=_etag(body))
        elif self.store.instead is not None:
            self._say(HTTPStatus(self.store.instead), b"<Error><Code>InternalError</Code></Error>")
        else:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_POST(self) -> None:
        assert self.path == _CONTROL, f"not needed so far: {self.path}"
        wanted = json.loads(self._body)
        self.store.suffix, self.store.instead = wanted["suffix"], wanted["instead"]
        self._say(HTTPStatus.OK, json.dumps(self.store.lost).encode())

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if "list-type" in query:
            self._list({name: values[0] for name, values in query.items()})
        elif (body := self.store.objects.get(self._key)) is None:
            self._say(HTTPStatus.NOT_FOUND, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            self._send(body)

    def _send(self, body: bytes) -> None:
        said = {"ETag": _etag(body), "Last-Modified": _WHEN}
        wanted = self.headers.get("Range")
        if wanted is None or self.command == "HEAD":
            self._say(HTTPStatus.OK, body, **said)
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start = int(first) if first else len(body) - int(last)
        end = min(int(last) + 1, len(body)) if first and last else len(body)
        self._say(
            HTTPStatus.PARTIAL_CONTENT, body[start:end], **said, Content_Range=f"bytes {start}-{end - 1}/{len(body)}"
        )

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.store.objects.pop(self._key, None)
        self._say(HTTPStatus.NO_CONTENT)

    def _list(self, query: dict[str, str]) -> None:
        prefix, delimiter, after = query.get("prefix", ""), query.get("delimiter"), query.get("start-after", "")
        keys = [key for key in sorted(self.store.objects) if key.startswith(prefix) and key > after]
        folders = {_folder(key, prefix, delimiter) for key in keys} if delimiter else set[str]()
        files = [key for key in keys if not delimiter or delimiter not in key[len(prefix) :]]
        parts = [
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.store.objects[key])}</Size>"
            f"<LastModified>2023-11-14T22:13:20.000Z</LastModified><ETag>{_etag(self.store.objects[key])}</ETag></Contents>"
            for key in files
        ]
        parts += [
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders) if name
        ]
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(parts)}</ListBucketResult>"
        self._say(HTTPStatus.OK, text.encode())

    def _say(self, status: HTTPStatus, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @property
    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}/")


def _folder(key: str, prefix: str, delimiter: str) -> str:
    inner, found, _ = key[len(prefix) :].partition(delimiter)
    return f"{prefix}{inner}{delimiter}" if found else ""


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that has read enough of an object hangs up."""


if __name__ == "__main__":
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": _Store()}))
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
