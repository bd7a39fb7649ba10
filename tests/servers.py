"""Servers on this machine: a plain one, and a bucket of Google Cloud Storage that TensorFlow itself reads."""

import json
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@contextmanager
def local_server(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve until the block ends; gives the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


class Answering(BaseHTTPRequestHandler):
    """Sends answers, and logs nothing to standard error."""

    def answer(
        self, content: bytes, status: int = 200, headers: Mapping[str, object] | None = None, *, is_half: bool = False
    ) -> None:
        """Send an answer, or only its first half, and then wait until the client disconnects."""
        self.send_response(status)
        for name, value in {"Content-Length": len(content), **(headers or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            with suppress(OSError):  # a client may disconnect after the headers, to request a range
                self.wfile.write(content[: len(content) // 2] if is_half else content)
                if is_half:
                    self.connection.recv(1)
            self.close_connection = self.close_connection or is_half

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def bucket(folder: Path, scratch: Path) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Serve a folder as the bucket ``gs://bucket``, through a proxy with a self-signed certificate.

    Gives the environment variables that lead to it, and the paths that were requested.
    """
    key, certificate = scratch / "key.pem", scratch / "certificate.pem"
    names = "subjectAltName=DNS:www.googleapis.com,DNS:storage.googleapis.com"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-subj", "/CN=bucket", "-addext", names, "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    requested: list[str] = []
    with local_server(partial(_BucketHandler, folder, context, requested)) as address:
        variables = {
            "https_proxy": address,
            "no_proxy": "",
            "CURL_CA_BUNDLE": str(certificate),
            "NO_GCE_CHECK": "true",
            "GCS_RETRY_CONFIG_MAX_RETRIES": "1",
        }
        yield variables, requested


class _BucketHandler(Answering):
    protocol_version = "HTTP/1.1"

    def __init__(self, folder: Path, context: ssl.SSLContext, requested: list[str], *arguments: Any) -> None:
        self._folder, self._context, self._requested = folder, context, requested
        super().__init__(*arguments)

    def do_CONNECT(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.connection = self._context.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
        self.close_connection = False

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        path, wanted = unquote(url.path), parse_qs(url.query)
        self._requested.append(path)
        if path.rstrip("/").endswith("/b/bucket"):
            self.answer(b"{}")
        elif path.endswith("/b/bucket/o"):
            self.answer(json.dumps(self._listed(wanted.get("prefix", [""])[0], "delimiter" in wanted)).encode())
        elif not (file := self._folder / path.partition("/o/" if "/b/" in path else "/bucket/")[2]).is_file():
            self.answer(b"", 404)
        elif "/b/" in path:
            self.answer(json.dumps(_metadata(file)).encode())
        else:
            first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
            content = file.read_bytes()
            self.answer(content[int(first) : int(last or len(content)) + 1], 206 if content else 200)

    def _listed(self, prefix: str, has_delimiter: bool) -> dict[str, Any]:
        items, prefixes = [], set()
        for path in sorted(self._folder.rglob("*")):
            name = path.relative_to(self._folder).as_posix()
            if path.is_file() and name.startswith(prefix):
                first, slash, _ = name.removeprefix(prefix).partition("/")
                if has_delimiter and slash:
                    prefixes.add(f"{prefix}{first}/")
                else:
                    items.append({"name": name, **_metadata(path)})
        return {"items": items, "prefixes": sorted(prefixes)}


def _metadata(file: Path) -> dict[str, str]:
    return {"size": str(file.stat().st_size), "generation": "1", "updated": "2026-01-01T00:00:00.000Z"}
