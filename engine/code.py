"""Writes Python: imports, calls and literals, broken into lines of 88 characters as `ruff format` does it.

Text from elsewhere, such as a path or a key of a configuration, becomes code only through `literal`, `call` and
`docstring`, which keep it inside a string.
"""

import ast
import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, time
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from .config.user_code import source_file
from .errors import DataError, UserCodeError

WIDTH = 88
_INDENT = 4


class Brackets(Struct, frozen=True):
    """Items in brackets, such as a call, a list or a dictionary."""

    opening: str  # such as ``layers.Dense(``
    items: tuple[tuple[str, "Code"], ...]  # each item, after its prefix such as ``units=``
    closing: str


Code = str | Brackets


def call(called: str, /, *arguments: Code, **named: Code) -> Brackets:
    """Return a call. Keys that cannot be written as the name of an argument are passed in a dictionary."""
    items = [("", argument) for argument in arguments]
    items += [(f"{key}=", value) for key, value in named.items() if _is_argument(key)]
    if others := {key: value for key, value in named.items() if not _is_argument(key)}:
        items.append(("**", _dictionary(others)))
    return Brackets(f"{called}(", tuple(items), ")")


def _is_argument(key: str) -> bool:
    # Python changes names that are not ASCII (NFKC), so that the function would get another one.
    return key.isidentifier() and key.isascii() and not iskeyword(key) and key != "__debug__"


def _dictionary(values: Mapping[Any, Code]) -> Brackets:
    return Brackets("{", tuple((f"{write(literal(key))}: ", value) for key, value in values.items()), "}")


def listed(items: list[Code]) -> Brackets:
    """Return a list."""
    return Brackets("[", tuple(("", item) for item in items), "]")


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
        if not math.isfinite(value):
            return f'float("{value}")'
        # A number that was rounded to float32 is written as it was before: 0.001, not 0.0010000000474974513.
        rounded = np.float32(value) if abs(value) < 3e38 else value
        return min(repr(value), str(rounded), key=len) if float(rounded) == value else repr(value)
    if isinstance(value, dict):
        return _dictionary({key: literal(inner) for key, inner in value.items()})
    if isinstance(value, tuple):
        return Brackets("(", tuple(("", literal(inner)) for inner in value), ",)" if len(value) == 1 else ")")
    if isinstance(value, list):
        return listed([literal(inner) for inner in value])
    if value is None or isinstance(value, int):
        return repr(value)
    raise DataError(f"A value of the type {type(value).__name__} cannot be exported as code.")


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
    is_long_list = code.opening == "[" and any(isinstance(item, Brackets) for _, item in code.items)
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


_STANDARD = ("collections", "os", "pathlib", "re", "sys", "unicodedata")


class Imports(Struct):
    """The imports of a script."""

    _modules: set[str] = field(default_factory=set)
    _names: dict[str, set[str]] = field(default_factory=dict)
    _own: dict[str, set[str]] = field(default_factory=dict)
    _folders: list[str] = field(default_factory=list)

    def add(self, name: str, module: str = "") -> None:
        """Import a module, such as ``numpy as np``, or a name of a module."""
        if module:
            self._names.setdefault(module, set()).add(name)
        else:
            self._modules.add(name)

    def own(self, reference: str) -> str:
        """Import the user's function or class; return its name, or raise `UserCodeError` if a plain import cannot."""
        module, _, name = reference.rpartition(":")
        folder: Path | None = Path.cwd()
        if module.endswith(".py"):
            path = Path(module).expanduser().resolve()
            folder, module = path.parent, path.stem
        else:
            with suppress(ImportError, ValueError):
                folder = None if find_spec(module.partition(".")[0]) else folder
        bad = [part for part in (*module.split("."), name) if not part.isidentifier() or iskeyword(part)]
        if bad:
            what = f"{reference} cannot be imported by a plain import: '{bad[0]}' is not a name in Python."
            raise UserCodeError(what, remedy="Rename it, and name it so in the run's config.toml.")
        if folder is not None and str(folder) not in self._folders:
            self._folders.append(str(folder))
        self._own.setdefault(module, set()).add(name)
        return name

    def lines(self, environment: dict[str, str]) -> list[str]:
        """Return the lines at the top of a script, which first sets some variables."""
        first = {name for name, needs in (("os", environment), ("sys", self._folders)) if needs}
        plain = [(name.split()[0], f"import {name}") for name in sorted(self._modules | first)]
        both = plain + _chosen(self._names)  # as `ruff` sorts them
        standard = [line for module, line in both if module in _STANDARD]
        others = [line for module, line in both if module not in _STANDARD]
        setup = [assigned(f"os.environ[{literal(key)}]", value) for key, value in environment.items()]
        setup += [write(call("sys.path.insert", "0", literal(folder))) for folder in self._folders]
        own = [line for _, line in _chosen(self._own)]
        blocks = [standard, setup, others, own] if setup else [standard, others, own]
        return [line for block in blocks if block for line in ("", *block)][1:]


def _chosen(names: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    return [(module, f"from {module} import {', '.join(sorted(names[module]))}") for module in sorted(names)]


def is_class(reference: str) -> bool:
    """Return whether the user's code is a class, without running it."""
    path, name = source_file(reference), reference.rpartition(":")[2]
    if path is None:
        return False
    tree = ast.parse(path.read_bytes())
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in ast.walk(tree))
