"""Writes Python: calls and literals, broken into lines of 88 characters as `ruff format` does it.

Text from elsewhere, such as a path or a key of a configuration, becomes code only through `literal`, `call` and
`docstring`, which keep it inside a string.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, time
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError

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
    """Return a call. Keys that cannot be written as the name of an argument are passed in a dictionary."""
    items = [("", argument) for argument in arguments]
    items += [(f"{key}=", value) for key, value in named.items() if _is_argument(key)]
    if others := {key: value for key, value in named.items() if not _is_argument(key)}:
        items.append(("**", _dictionary(others)))
    return Group(f"{called}(", tuple(items), ")")


def _is_argument(key: str) -> bool:
    # Python changes names that are not ASCII (NFKC), so that the function would get another one.
    return key.isidentifier() and key.isascii() and not iskeyword(key) and key != "__debug__"


def _dictionary(values: Mapping[Any, Code]) -> Group:
    return Group("{", tuple((f"{write(literal(key))}: ", value) for key, value in values.items()), "}")


def listed(items: list[Code]) -> Group:
    """Return a list."""
    return Group("[", tuple(("", item) for item in items), "]")


def literal(value: Any) -> Code:
    """Return a plain value as code; raise `DataError` if it is not one."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, date | time):  # TOML has dates; a run passes them on as text
        value = value.isoformat()
    if isinstance(value, str):
        text = repr(value)
        return f'"{text[1:-1]}"' if "'" not in value and '"' not in value else text
    if isinstance(value, float):
        return _number(value) if math.isfinite(value) else f'float("{value}")'
    if isinstance(value, dict):
        return _dictionary({key: literal(inner) for key, inner in value.items()})
    if isinstance(value, tuple):
        return Group("(", tuple(("", literal(inner)) for inner in value), ",)" if len(value) == 1 else ")")
    if isinstance(value, list):
        return listed([literal(inner) for inner in value])
    if value is None or isinstance(value, int):
        return repr(value)
    raise DataError(f"A value of the type {type(value).__name__} cannot be exported as code.")


def _number(value: float) -> str:
    """Write a number; one that was rounded to float32 as it was before: 0.001, not 0.0010000000474974513."""
    rounded = np.float32(value) if abs(value) < 3e38 else value
    return min(repr(value), str(rounded), key=len) if float(rounded) == value else repr(value)


def literals(values: Mapping[str, Any]) -> dict[str, Code]:
    """Return plain values as named arguments."""
    return {key: literal(value) for key, value in values.items()}


def assigned(target: str, value: Any) -> str:
    """Return the assignment of a plain value."""
    return write(literal(value), 0, f"{target} = ")


def docstring(text: str) -> str:
    """Return a text of several lines as a docstring."""
    safe = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""{safe}\n"""'


def write(code: Code, indent: int = 0, before: str = "", after: str = "") -> str:
    """Return code as text, with `before` at its start and `after` at its end; its first line is not indented."""
    flat = before + _flat(code) + after
    if indent + len(flat) <= WIDTH:
        return flat
    inner = indent + _INDENT
    if isinstance(code, str):
        fits_alone = before.endswith(" = ") and inner + len(code) <= WIDTH
        return f"{before}(\n{' ' * inner}{code}\n{' ' * indent}){after}" if fits_alone else flat
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
