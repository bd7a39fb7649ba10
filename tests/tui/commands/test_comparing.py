"""`tpu-console runs compare` in this process."""

import re
import sys
from itertools import cycle
from pathlib import Path

import pytest
from selenium import webdriver

from tests.browser import chromium, needs_chromium
from tests.helpers import wait_until
from tests.tui.calling import Call
from tests.tui.made_runs import made_run

LOADS = re.compile(r"<(script|link|img)[^>]*(src|href)=")


def compared(call: Call, *args: str) -> list[str]:
    return [run["run"] for run in call.json("compare", *args)["runs"]]


def test_runs_are_compared_as_they_are_named_or_with_others_of_their_preset(call: Call) -> None:
    old, other, new = made_run(), made_run(label="other"), made_run(batch_size=64)
    assert compared(call, "other", str(old.path)) == [other.run_id, old.run_id]
    assert compared(call) == [new.run_id, old.run_id]
    assert compared(call, old.run_id) == [old.run_id, new.run_id]


def test_what_cannot_be_compared_is_refused(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    call.refused("compare")
    run = made_run(label="alone")
    assert run.run_id in call.refused("compare", code=1)
    others = [made_run(label=f"other-{number}").run_id for number in range(20)]
    assert "2 to 20" in call.refused("compare", run.run_id, *others, code=1)
    assert "'x'" in call("compare", *others[:2], "--metric", "x")[2]
    for name in ("plotly", "plotly.graph_objects", "plotly.subplots"):
        monkeypatch.setitem(sys.modules, name, None)
    assert re.search("install .*plotly", call.refused("compare", *others[:2], "--html", code=1))


def test_the_page_needs_no_network_and_runs_nothing_that_a_run_says(call: Call) -> None:
    pytest.importorskip("plotly")
    calm = [made_run([{"loss": 1.0, "val_x": 0.5}], label="calm") for _ in range(2)]
    page = call.out("compare", *(run.run_id for run in calm), "--html")
    assert page.count(">finished<") == 2
    assert not LOADS.search(page)
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    hostile = [made_run([{"loss": 1.0, f"val_{evil}": 0.5}], label="evil", has_config=False) for _ in range(2)]
    hostile[0].path.rename(renamed := hostile[0].path.with_name("a<img src=x onerror=alert(1)>"))
    found = call("compare", str(renamed), hostile[1].run_id, "--html")[1]
    assert "&lt;img src=x" in found
    for tag in ("<script", "</script", "<img"):
        assert found.count(tag) == page.count(tag)


@needs_chromium
@pytest.mark.slow
def test_the_page_works_in_a_browser_in_both_colors_and_without_a_network(call: Call, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    evil = "</script><script>window.harmed = 1</script><img src=x onerror=window.harmed=2>"
    logs = [{"loss": 1 / epoch, f"val_{evil}": 1 / epoch} for epoch in range(1, 9)]
    runs = [made_run(logs) for _ in range(2)]
    runs[0].path.rename(renamed := runs[0].path.with_name("a<img src=x onerror=window.harmed=3>"))
    page = tmp_path / "page.html"
    page.write_text(call("compare", str(renamed), runs[1].run_id, "--html")[1], encoding="utf-8")
    with chromium() as browser:
        browser.get(page.as_uri())
        wait_until(lambda: len(browser.find_elements("css selector", ".xy, .x2y2")) >= 2, "the plots")
        look = "return ['body', '.js-plotly-plot'].map(name => getComputedStyle(document.querySelector(name)))"
        look += ".map(style => style.backgroundColor + style.filter)"
        before = browser.execute_script(look)
        dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
        pairs = zip(before, browser.execute_script(look), strict=True)
        assert all(light != dark for light, dark in pairs), "the page and its plots have dark colors"
        plot = browser.find_element("css selector", ".nsewdrag")
        mouse, places = webdriver.ActionChains(browser), cycle((20, 60))

        def values() -> str:
            mouse.move_to_element_with_offset(plot, next(places), 0).perform()
            return str(browser.execute_script("return document.querySelector('.hoverlayer').textContent"))

        wait_until(lambda: f"A {renamed.name}" in values(), "the values under the mouse")
        mouse.move_to_element_with_offset(plot, -200, 0).click_and_hold().move_by_offset(200, 0).release().perform()
        ranges = "const at = document.querySelector('.js-plotly-plot').layout; return [at.xaxis.range, at.xaxis2.range]"
        wait_until(lambda: (found := browser.execute_script(ranges))[0] == found[1] and found[0][0] > 10, "the zoom")
        buttons = browser.find_elements("css selector", ".modebar-btn")
        assert not any("hare" in (button.get_attribute("data-title") or "") for button in buttons)  # that uploads
        assert browser.execute_script("return window.harmed") is None
        loaded = "return performance.getEntriesByType('resource').length"
        assert browser.execute_script(loaded) == 0
        assert browser.get_log("browser") == []
