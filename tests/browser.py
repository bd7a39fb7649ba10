import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_DRIVER = shutil.which("chromedriver")

needs_chromium = pytest.mark.skipif(
    _BROWSER is None or _DRIVER is None, reason="chromium and chromedriver are not installed"
)


@contextmanager
def chromium(width: int = 1400, height: int = 1000) -> Iterator[Any]:
    """Start a chromium without a window, in a test that `needs_chromium`; yields the driver of selenium."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(_BROWSER)
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--window-size={width},{height}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(_DRIVER))
    try:
        yield started
    finally:
        started.quit()
