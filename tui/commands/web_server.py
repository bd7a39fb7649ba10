"""Serves the console to browsers, with textual-serve's handlers.

Every path begins with a secret. Unlike a cookie, no other page can use it, and it works behind proxies and tunnels.
`Host` and `Origin` are checked too, against names that somebody points at this machine. The page loads nothing from
other servers, and its policy forbids it.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import shlex
import socket
import sys
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aiohttp import web
from textual_serve.server import Server

from tpu_console.engine.errors import ConsoleError

from ..terminal.output import say

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_COLAB = (".googleusercontent.com", ".colab.dev")  # where Colab's proxy shows a port
_POLICY = (
    "default-src 'none'; connect-src 'self'; font-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'nonce-{nonce}'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
_REFUSED = "Open the address that tpu-console web printed."


def serve(host: str, port: int, names: Sequence[str], arguments: Sequence[str]) -> None:
    """Serve the console until Ctrl-C; `names` are more names that browsers may use for this machine.

    Raises:
        ConsoleError: The port cannot be used.
    """
    token = secrets.token_urlsafe(24)
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        what = f"Port {port} of {host} cannot be used: {error.strerror}."
        raise ConsoleError(what, remedy="Choose another one, or any: --port 0") from error
    with listening:
        own = socket.gethostname()
        shown = own if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host  # noqa: S104  no binding
        say(
            [
                f"http://{shown}:{listening.getsockname()[1]}/{token}/",
                "Keep this address secret. Ctrl-C closes the console; runs continue.",
            ]
        )
        hosts = {name.lower() for name in ("localhost", host, own, *names)}
        web.run_app(
            make_app(token, hosts, arguments), sock=listening, print=None, access_log=None, shutdown_timeout=1.0
        )


def make_app(token: str, hosts: Collection[str], arguments: Sequence[str] = ()) -> web.Application:
    """Return the web application, whose paths begin with the token; `hosts` are the allowed names of this machine."""
    # textual-serve starts its command through a shell.
    served = Server(shlex.join([sys.executable, "-m", "tpu_console", *arguments]), title="tpu-console")
    nonce = secrets.token_urlsafe(16)
    page = Path(__file__).with_name("web_page.html").read_text(encoding="utf-8").replace("NONCE", nonce)

    @web.middleware
    async def guard(request: Any, handler: Any) -> Any:
        given = request.path.split("/", 2)[1]
        urls = [f"//{request.host}", *request.headers.getall("Origin", [])]
        names = [urlsplit(url).hostname for url in urls]
        if not all(_is_allowed(name, hosts) for name in names) or not compare_digest(given.encode(), token.encode()):
            raise web.HTTPForbidden(text=_REFUSED)
        return await handler(request)

    async def add_headers(_: Any, response: Any) -> None:
        response.headers["Content-Security-Policy"] = _POLICY.format(nonce=nonce)
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["X-Content-Type-Options"] = "nosniff"

    async def show_page(_: Any) -> Any:
        return web.Response(text=page, content_type="text/html")

    app = web.Application(middlewares=[guard])
    app.on_response_prepare.append(add_headers)
    app.add_routes([
        web.get(f"/{token}/", show_page),
        web.get(f"/{token}/ws", served.handle_websocket),
        web.static(f"/{token}/static", served.statics_path),
    ])  # fmt: skip
    return app


def _is_allowed(name: str | None, hosts: Collection[str]) -> bool:
    """Return whether a browser may use a name for this machine; an address cannot be pointed elsewhere."""
    if not name:
        return False
    if name in hosts or ("COLAB_RELEASE_TAG" in os.environ and name.endswith(_COLAB)):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
