"""Writes Python: calls and literals, broken into lines of 88 characters as `ruff format` does it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH = 88
_INDENT = 4


@dataclass(frozen=True, slots=True)
class Group:
    """Items in brackets, such as a call, a list or a dictionary."""

    opening: str  # such as ``layers.Dense(``
    items: tuple[tuple[str, Code], ...]  # each item, after its prefix such as ``units=``
    closing: str


Code = str | Group


def call(called: str, /, *arguments: Code, **named: Code) -> Group:
    """Return a call."""
    items = [("", argument) for argument in arguments] + [(f"{key}=", value) for key, value in named.items()]
    return Group(f"{called}(", tuple(items), ")")


def listed(items: list[Code]) -> Group:
    """Return a list."""
    return Group("[", tuple(("", item) for item in items), "]")


def literal(value: Any) -> Code:
    """Return a plain value as code."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=not value.isprintable())
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, dict):
        return Group("{", tuple((f"{literal(str(key))}: ", literal(inner)) for key, inner in value.items()), "}")
    if isinstance(value, tuple):
        return Group("(", tuple(("", literal(inner)) for inner in value), ",)" if len(value) == 1 else ")")
    if isinstance(value, list):
        return listed([literal(inner) for inner in value])
    return repr(value)


def _number(value: float) -> str:
    """Write a number; one that was rounded to float32 as it was before: 0.001, not 0.0010000000474974513."""
    short = str(np.float32(value))
    return short if float(np.float32(value)) == value and len(short) < len(repr(value)) else repr(value)


def literals(values: Mapping[str, Any]) -> dict[str, Code]:
    """Return plain values as named arguments."""
    return {key: literal(value) for key, value in values.items()}


def assigned(target: str, value: str) -> str:
    """Return the assignment of a text, in brackets if it only fits in a line of its own."""
    text = json.dumps(value, ensure_ascii=not value.isprintable())
    line = f"{target} = {text}"
    return f"{target} = (\n    {text}\n)" if len(line) > WIDTH >= _INDENT + len(text) else line


def write(code: Code, indent: int = 0, before: str = "", after: str = "") -> str:
    """Return code as text, with `before` at its start and `after` at its end; its first line is not indented."""
    flat = before + _flat(code) + after
    if isinstance(code, str) or indent + len(flat) <= WIDTH:
        return flat
    inner = indent + _INDENT
    body = ", ".join(key + _flat(item) for key, item in code.items)
    is_long_list = code.opening == "[" and any(isinstance(item, Group) for _, item in code.items)
    if inner + len(body) <= WIDTH and not is_long_list:
        return f"{before}{code.opening}\n{' ' * inner}{body}\n{' ' * indent}{code.closing.removeprefix(',')}{after}"
    is_alone = len(code.items) == 1 and code.items[0][0] == ""
    lines = [" " * inner + write(item, inner, key, "" if is_alone else ",") for key, item in code.items]
    closing = code.closing.removeprefix(",")
    return "\n".join([before + code.opening, *lines, " " * indent + closing + after])


def _flat(code: Code) -> str:
    if isinstance(code, str):
        return code
    return code.opening + ", ".join(key + _flat(item) for key, item in code.items) + code.closing
