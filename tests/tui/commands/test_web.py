"""`tpu-console web`: who may open it, over plain HTTP and in a real browser."""

import asyncio
import gc
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError, web
from aiohttp.test_utils import RawTestServer, TestClient
from selenium.webdriver import ActionChains, Keys

from tests.browser import chromium, needs_chromium
from tests.helpers import LIMIT_S, ROOT, wait_until
from tests.tui.calling import Call
from tpu_console.tui.commands.web_server import make_handler

Client = TestClient[web.BaseRequest, None]

TOKEN = "a-secret"


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    made: Client = TestClient(RawTestServer(make_handler(TOKEN, {"localhost", "my-proxy"})))
    async with made:
        yield made
    transports = [one for one in gc.get_objects() if issubclass(type(one), asyncio.SubprocessTransport)]
    assert all(one.is_closing() for one in transports), "a console's pipes are left open"


async def test_without_the_token_or_under_another_host_name_everything_is_refused(client: Client) -> None:
    for path, headers in (
        ("/", {}),
        ("/wrong/", {}),
        (f"/{TOKEN}x/ws", {}),
        (f"/{TOKEN}/", {"Host": "attacker.example"}),
        (f"/{TOKEN}/ws", {"Origin": "http://attacker.example"}),
        (f"/{TOKEN}/ws", {"Origin": "null"}),
        (f"/{TOKEN}/", {"Host": "8000-x.prod.colab.dev"}),
    ):
        async with client.get(path, headers=headers) as response:
            assert (response.status, TOKEN in await response.text()) == (403, False)
        with pytest.raises(WSServerHandshakeError, match="403"):
            await client.ws_connect(path, headers=headers)


async def test_with_the_secret_the_page_loads_nothing_from_elsewhere(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for host in ("127.0.0.1:8000", "[::1]:8000", "localhost:9000", "my-proxy"):
        async with client.get(f"/{TOKEN}/", headers={"Host": host}) as response:
            assert response.status == 200
            page = await response.text()
    assert "https:" not in page
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert response.headers["Referrer-Policy"] == "no-referrer"
    for part in ("js/textual.js", "css/xterm.css", "fonts/RobotoMono-VariableFont_wght.ttf"):
        assert f'"static/{part}"' in page
        assert (await client.get(f"/{TOKEN}/static/{part}")).status == 200
    assert (await client.get(f"/{TOKEN}/static/")).status == 403
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release")
    assert (await client.get(f"/{TOKEN}/", headers={"Host": "8000-x.prod.colab.dev"})).status == 200


_NO_NAMES = ["[::1", "[", "[]", "]", "a@[", "", "@", "\u2100.com", "[v1.x]", "%ff", "x:99999", "a" * 300]
_TARGETS = ["*", "x:1", "/", "//[", "http://[::1/", "http://:99999/", "/%ff/", "/\xed\xa0\x80/", "?", "/\xff"]


@pytest.mark.parametrize("method", ["GET", "CONNECT", "NEW"])
async def test_whatever_is_sent_without_the_secret_is_refused(client: Client, method: str) -> None:
    headers = [f"Host: {name}" for name in _NO_NAMES]
    headers += [f"Host: localhost\r\nOrigin: {prefix}{name}" for name in _NO_NAMES for prefix in ("http://", "")]
    headers += ["Accept: x", *(f"Host: localhost\r\nExpect: {value}" for value in ("100-continue", "\udcff"))]
    for target in (*_TARGETS, f"/{TOKEN}"):
        for header in headers:
            reader, writer = await asyncio.open_connection(client.host, client.port)
            request = f"{method} {target} HTTP/1.1\r\n{header}\r\nConnection: close\r\n\r\n"
            writer.write(request.encode(errors="surrogateescape"))
            status = (await asyncio.wait_for(reader.readline(), LIMIT_S)).split()[1]
            writer.close()
            assert status in {b"400", b"403"}, request


async def test_options_reach_the_console_as_they_are(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    theme = f"x'; touch {tmp_path}/made; '"
    client: Client = TestClient(RawTestServer(make_handler(TOKEN, {"localhost"}, ["--theme", theme])))
    said = ""
    async with client, client.ws_connect(f"/{TOKEN}/ws"), asyncio.timeout(LIMIT_S):
        while "There is no theme" not in said:
            await asyncio.sleep(0.05)
            said += capfd.readouterr().err
    assert theme in said
    assert not (tmp_path / "made").exists()


@asynccontextmanager
async def _page(client: Client, query: str = "") -> AsyncIterator[tuple[ClientWebSocketResponse, psutil.Process]]:
    """A page whose console has drawn something, and the process of that console."""
    before = set(psutil.Process().children())
    async with asyncio.timeout(LIMIT_S), client.ws_connect(f"/{TOKEN}/ws{query}") as page:
        await page.receive_bytes()
        (console,) = set(psutil.Process().children()) - before
        yield page, console


async def _wait_for_end(console: psutil.Process) -> None:
    async with asyncio.timeout(LIMIT_S):
        while console.is_running() and console.status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.05)


async def test_a_page_has_a_limited_size(client: Client) -> None:
    async with _page(client, "?width=1000000000&height=x") as (page, console):
        for nonsense in ('["resize", {"width": []}]', "[" * 10_000, "{}", '["stdin"]', '["stdin", "\\ud800"]', "x"):
            await page.send_str(nonsense)
        drawn = b""
        await page.send_json(["resize", {"width": 10**9, "height": 10**9}])
        while not (rows := [int(row) for row in re.findall(rb"\x1b\[(\d+);\d+H", drawn)]) or max(rows) < 400:
            drawn += await page.receive_bytes()
        assert max(rows) <= 400
        assert console.memory_info().rss < 1 << 30
        await page.send_json(["stdin", "\x11"])
        while (await page.receive()).type is WSMsgType.BINARY:
            pass
        assert page.close_code == 1000
    await _wait_for_end(console)


async def test_a_console_that_does_not_respond_ends_with_its_page(client: Client) -> None:
    async with _page(client) as (page, console):
        console.suspend()
        await page.close()
        await _wait_for_end(console)
    async with _page(client) as (page, console):
        console.suspend()
        for _ in range(40):
            await page.send_json(["stdin", "x" * 100_000])  # which it does not read
        await _wait_for_end(console)


async def test_a_console_ends_with_the_server(served: subprocess.Popen[str]) -> None:
    address = address_of(served).replace("http:", "ws:")
    async with ClientSession() as session, session.ws_connect(f"{address}ws") as page:
        await page.receive_bytes()
        (console,) = psutil.Process(served.pid).children()
        served.kill()
        served.wait()
    await _wait_for_end(console)


def test_nothing_that_others_send_is_written_to_the_terminal(served: subprocess.Popen[str]) -> None:
    assert served.stderr is not None
    address = urlsplit(address_of(served))

    def connect() -> socket.socket:
        return socket.create_connection((address.hostname, address.port), timeout=LIMIT_S)

    def answer(head: str, body: str = "") -> bytes:
        with connect() as connection:
            connection.sendall(f"{head}Host: localhost\r\nConnection: close\r\n\r\n{body}".encode())
            return connection.recv(12)

    broken = answer("GET / HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 7\r\n", "no gzip")
    assert broken == b"HTTP/1.1 403"
    server = psutil.Process(served.pid)
    server.rlimit(psutil.RLIMIT_NOFILE, (40, 40))
    others = [connect() for _ in range(60)]
    wait_until(lambda: server.num_fds() == 40, "all file descriptors are in use")
    for connection in others:
        connection.close()
    wait_until(lambda: server.num_fds() < 40, "connections are closed")
    assert answer(f"GET {address.path} HTTP/1.1\r\n") == b"HTTP/1.1 200"
    served.terminate()
    assert served.stderr.read() == ""


def test_a_port_in_use_is_one_sentence(call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        err = call.refused("web", "--port", port, code=1)
    assert f"Port {port} " in err


@pytest.fixture
def served() -> Iterator[subprocess.Popen[str]]:
    """A real `tpu-console web`, which prints its address."""
    with subprocess.Popen(
        [sys.executable, "-m", "tpu_console", "web", "--port", "0", "--theme", "textual-light"],
        cwd=ROOT,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def address_of(served: subprocess.Popen[str]) -> str:
    assert served.stdout is not None
    return served.stdout.readline().strip()


_RECORDED = """
window.seen = '';
const Plain = WebSocket;
window.WebSocket = class extends Plain {
  constructor(...given) {
    super(...given);
    this.addEventListener('message', (event) => {
      if (typeof event.data !== 'string') window.seen += new TextDecoder().decode(event.data);
    });
  }
};
"""


@pytest.mark.slow
@needs_chromium
def test_a_browser_draws_the_setup_screen_and_opens_it_again(served: subprocess.Popen[str]) -> None:
    address = address_of(served)
    with chromium() as browser:
        browser.get(f"http://{urlsplit(address).netloc}/")
        refusal = "Open the address that tpu-console web printed."
        wait_until(lambda: refusal in browser.page_source, "the refusal")
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _RECORDED})
        browser.get(address)
        wait_until(lambda: "digits-cnn" in browser.execute_script("return window.seen"), "the setup screen")
        body = browser.find_element("css selector", "body")
        assert "-first-byte" in body.get_attribute("class")
        assert not [entry for entry in browser.get_log("browser") if "Content Security Policy" in entry["message"]]
        browser.execute_script("document.querySelector('.xterm-helper-textarea').focus()")  # too small for a click
        ActionChains(browser).key_down(Keys.CONTROL).send_keys("q").key_up(Keys.CONTROL).perform()
        wait_until(lambda: "-closed" in body.get_attribute("class"), "the end of the console")
        again = browser.find_element("link text", "Open it again")
        wait_until(again.is_displayed, "the link")
        again.click()
        wait_until(lambda: "digits-cnn" in browser.execute_script("return window.seen"), "the setup screen again")
        served.terminate()  # with the page open
        assert served.wait(LIMIT_S) == 0
