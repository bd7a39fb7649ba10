"""Asks for attention from inside a terminal: its bell, and OSC 9, which many terminals show as a notification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpu_console.engine.sanitize import printable

if TYPE_CHECKING:
    from textual.app import App

_LONGEST = 200


def attention(text: str) -> str:
    """Return the control sequence: the bell, and a notification with a text."""
    return f"\a\x1b]9;{printable(text)[:_LONGEST]}\x1b\\"


def call_attention(app: App[object], text: str) -> None:
    """Ring the terminal that a console runs in; does nothing without one."""
    driver = app._driver  # noqa: SLF001  Textual has a public way for the bell only
    if driver is not None and not app.is_headless:
        driver.write(attention(text))
