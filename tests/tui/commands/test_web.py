"""`tpu-console web`: who may open it, over plain HTTP and in a real browser."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from aiohttp import WSServerHandshakeError
from aiohttp.test_utils import TestClient, TestServer
from selenium.webdriver import ActionChains, Keys

from tests.browser import chromium, needs_chromium
from tests.helpers import LIMIT_S, ROOT, wait_until
from tpu_console.tui.commands.web_server import make_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from aiohttp import web
    from aiohttp.test_utils import TestClient as Client

    Called = tuple[int, str, str]

TOKEN = "a-secret"


@pytest.fixture
async def client() -> AsyncIterator[Client[web.Request, web.Application]]:
    async with TestClient(TestServer(make_app(TOKEN, {"localhost", "my-proxy"}))) as made:
        yield made


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/wrong/", {}),
        ("/static/js/textual.js", {}),
        ("/ws", {}),
        (f"/{TOKEN}x/ws", {}),
        (f"/{TOKEN}/", {"Host": "attacker.example"}),
        (f"/{TOKEN}/", {"Host": "localhost.attacker.example:8000"}),
        (f"/{TOKEN}/ws", {"Origin": "http://attacker.example"}),
        (f"/{TOKEN}/ws", {"Origin": "null"}),
        (f"/{TOKEN}/", {"Host": "8000-x.prod.colab.dev"}),
    ],
)
async def test_without_the_secret_or_under_another_name_everything_is_refused(
    client: Client[web.Request, web.Application], path: str, headers: dict[str, str]
) -> None:
    async with client.get(path, headers=headers) as response:
        assert response.status == 403
        assert await response.text() == "Open the address that tpu-console web printed."
    with pytest.raises(WSServerHandshakeError, match="403"):
        await client.ws_connect(path, headers=headers)


async def test_with_the_secret_the_page_loads_nothing_from_elsewhere(
    client: Client[web.Request, web.Application], monkeypatch: pytest.MonkeyPatch
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


async def test_options_reach_the_console_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theme = f"x'; touch {tmp_path}/made; '"
    server, said = TestServer(make_app(TOKEN, {"localhost"}, ["--theme", theme])), ""
    async with TestClient(server) as client, client.ws_connect(f"/{TOKEN}/ws"), asyncio.timeout(LIMIT_S):
        while "There is no theme" not in said:
            await asyncio.sleep(0.05)
            said += capsys.readouterr().out
    assert theme in said
    assert not (tmp_path / "made").exists()


def test_a_port_in_use_is_one_sentence(call: Callable[..., Called]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, out, err = call("web", "--port", port)
    assert (code, out) == (1, "")
    assert err.startswith(f"Error: Port {port} of 127.0.0.1 cannot be used: ")


@pytest.fixture
def served() -> Iterator[subprocess.Popen[str]]:
    """A real `tpu-console web`, which prints its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tpu_console", "web", "--port", "0", "--theme", "textual-light"],
        cwd=ROOT,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.wait()


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
    assert served.stdout is not None
    address = served.stdout.readline().strip()
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
