"""Serves the console to browsers with textual-serve's scripts. Each page has a console, which draws for Textual's web.

Every path begins with a secret. Unlike a cookie, no other page can use it, and it works behind proxies and tunnels.
Nothing looks at a request before the secret is checked: not even a router, which answers some headers by itself.
`Host` and `Origin` are checked too, against names that somebody points at this machine. The page loads nothing from
other servers, and its policy forbids it.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from hmac import compare_digest
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aiohttp import WSMessage, web
from aiohttp.http_exceptions import HttpProcessingError

from tpu_console.engine.errors import ConsoleError

from ..terminal.output import say

if TYPE_CHECKING:
    Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_CONSOLE = {
    "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver",
    "TEXTUAL_FPS": "60",
    "TEXTUAL_COLOR_SYSTEM": "truecolor",
}
_COLAB = (".googleusercontent.com", ".colab.dev")  # where Colab's proxy shows a port
_POLICY = (
    "default-src 'none'; connect-src 'self'; font-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'nonce-{nonce}'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
_READY = b"__GANGLION__\n"  # what Textual prints before the first packet
_USUAL_SIZE, _LARGEST_SIZE = {"width": 80, "height": 24}, {"width": 1000, "height": 400}  # cells
_MOST_UNREAD = 1 << 20  # bytes of keys that a console may leave unread
_LONGEST_EXIT_S = 3.0


def serve(host: str, port: int, names: Sequence[str], arguments: Sequence[str]) -> None:
    """Serve the console until Ctrl-C, under more host `names`; raise `ConsoleError` if the port cannot be used."""
    token = secrets.token_urlsafe(24)
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        what = f"Port {port} of {host} cannot be used: {error.strerror}."
        raise ConsoleError(what, remedy="Choose another one, or any: --port 0") from error
    with listening:
        own = socket.gethostname()
        shown = own if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host  # noqa: S104  no binding
        address = f"http://{shown}:{listening.getsockname()[1]}/{token}/"
        say([address, "Keep this address secret. Ctrl-C closes the console; runs continue."])
        hosts = {name.lower() for name in ("localhost", host, own, *names)}
        # What anybody sends is not shown; errors of this program are.
        of_others = (HttpProcessingError, web.RequestPayloadError)
        logging.getLogger("aiohttp.server").addFilter(
            lambda record: not (record.exc_info and isinstance(record.exc_info[1], of_others))
        )
        asyncio.run(_serve(listening, make_handler(token, hosts, arguments)))


async def _serve(listening: socket.socket, handler: Handler) -> None:
    """Answer requests until Ctrl-C or SIGTERM."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # That there are too many connections is no error: it goes on when one closes.
        if not (isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}):
            loop.default_exception_handler(context)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    loop.set_exception_handler(report)
    runner = web.ServerRunner(web.Server(handler, access_log=None), shutdown_timeout=1.0)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    await ended.wait()
    await runner.cleanup()


def make_handler(token: str, hosts: Collection[str], arguments: Sequence[str] = ()) -> Handler:
    """Return what answers requests whose paths begin with the token; `hosts` are the allowed names of this machine."""
    nonce = secrets.token_urlsafe(16)
    page = Path(__file__).with_name("web_page.html").read_text(encoding="utf-8").replace("NONCE", nonce)
    scripts = Path(str(resources.files("textual_serve")))
    files = {file.relative_to(scripts).as_posix(): file for file in scripts.glob("static/*/*")}
    start = f"/{token}/"
    headers = {
        "Content-Security-Policy": _POLICY.format(nonce=nonce),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        given, name = request.path[: len(start)], request.path[len(start) :]
        if compare_digest(given.encode(errors="replace"), start.encode()) and _is_allowed(request, hosts):
            if name == "ws":
                return await _show_console(request, [sys.executable, "-m", "tpu_console", *arguments])
            if not name:
                return web.Response(text=page, content_type="text/html", headers=headers)
            if name in files:
                return web.FileResponse(files[name], headers=headers)
        return web.Response(text="Open the address that tpu-console web printed.", status=403, headers=headers)

    return answer


def _is_allowed(request: web.BaseRequest, hosts: Collection[str]) -> bool:
    """Return whether a request names this machine, and no page of another one sent it."""
    try:
        for url in (f"//{request.host}", *request.headers.getall("Origin", [])):
            name = urlsplit(url).hostname or ""
            is_colab = "COLAB_RELEASE_TAG" in os.environ and name.endswith(_COLAB)
            if not name or not (name in hosts or is_colab):
                ipaddress.ip_address(name)  # which cannot be pointed elsewhere
    except ValueError:
        return False
    return True


async def _show_console(request: web.BaseRequest, command: Sequence[str]) -> web.WebSocketResponse:
    """Run a console until it or its page closes; one that is busy then is killed."""
    page = web.WebSocketResponse(heartbeat=15)
    await page.prepare(request)
    size = _size(request.query)
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | _CONSOLE | {"COLUMNS": str(size["width"]), "ROWS": str(size["height"])},
    )
    keys, drawn = process.stdin, process.stdout
    if keys is None or drawn is None:
        raise AssertionError  # both are pipes
    drawing = asyncio.create_task(_draw(page, drawn))
    try:
        async for message in page:
            keys.write(_packet_of(message))
            if keys.transport.get_write_buffer_size() > _MOST_UNREAD:
                break
    finally:
        keys.write(_packet(b"M", b'{"type": "quit"}'))
        drawing.cancel()
        try:
            await _ended(process, drawing)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await _ended(process, drawing)
    return page


async def _ended(console: asyncio.subprocess.Process, drawing: asyncio.Task[None]) -> None:
    """Wait for a console to end, but not forever. It is read to its end: only then is its transport closed."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LONGEST_EXIT_S):
            await asyncio.wait([drawing])
            await console.communicate()


async def _draw(page: web.WebSocketResponse, console: asyncio.StreamReader) -> None:
    """Pass on what a console draws, until it ends; then close its page."""
    with suppress(OSError, EOFError, ValueError):
        while await console.readline() not in {_READY, b""}:
            pass  # what is printed before the first packet
        while True:
            kind, size = await console.readexactly(1), await console.readexactly(4)
            payload = await console.readexactly(int.from_bytes(size, "big"))
            if kind == b"D":
                await page.send_bytes(payload)
            elif json.loads(payload).get("type") == "exit":
                break
    await page.close()


def _packet_of(message: WSMessage) -> bytes:
    """Return what a page's message says to its console: keys, a size, or that it has the focus; else nothing."""
    try:
        kind, *values = json.loads(message.data)
        if kind == "stdin":
            return _packet(b"D", values[0].encode())
        if kind in {"resize", "focus", "blur"}:
            size = _size(values[0]) if kind == "resize" else {}
            return _packet(b"M", json.dumps({"type": kind, **size}).encode())
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        pass
    return b""


def _packet(kind: bytes, payload: bytes) -> bytes:
    return kind + len(payload).to_bytes(4, "big") + payload


def _size(given: Mapping[str, Any]) -> dict[str, int]:
    """Return a screen's size in cells, within what a console can draw."""
    size = {**_USUAL_SIZE}
    for name, most in _LARGEST_SIZE.items():
        with suppress(LookupError, ValueError, TypeError, ArithmeticError):
            size[name] = min(max(int(given[name]), 1), most)
    return size
