"""Collects what a script imports, and writes it in the usual order."""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path

from ..config.user_code import source_file
from ..errors import UserCodeError
from .writing import assigned, call, literal, write

_STANDARD = ("collections", "os", "pathlib", "re", "sys", "unicodedata")


@dataclass(slots=True)
class Imports:
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
        """Import the user's function or class; return its name.

        Raises:
            UserCodeError: Its file cannot be imported by a plain import.
        """
        module, _, name = reference.rpartition(":")
        folder = None
        if module.endswith(".py"):
            path = Path(module).expanduser().resolve()
            folder, module = path.parent, path.stem
        elif not _is_installed(module):
            folder = Path.cwd()
        bad = [part for part in (*module.split("."), name) if not part.isidentifier() or iskeyword(part)]
        if bad:
            raise UserCodeError(
                f"{reference} cannot be imported by a plain import: '{bad[0]}' is not a name in Python.",
                remedy="Rename it, and name it so in the run's config.toml.",
            )
        if folder is not None and str(folder) not in self._folders:
            self._folders.append(str(folder))
        self._own.setdefault(module, set()).add(name)
        return name

    @property
    def own_lines(self) -> list[str]:
        """The lines that import the user's code."""
        return [line for lines in _written(set(), self._own) for line in lines]

    def lines(self, environment: dict[str, str]) -> list[str]:
        """Return the lines at the top of a script, which first sets some variables."""
        first = {"os"} if environment else set()
        if self._folders:
            first.add("sys")
        standard, others = _written(self._modules | first, self._names)
        setup = [assigned(f"os.environ[{literal(key)}]", value) for key, value in environment.items()]
        setup += [write(call("sys.path.insert", "0", literal(folder))) for folder in self._folders]
        blocks = [standard, setup, others, self.own_lines] if setup else [standard, others, self.own_lines]
        return [line for block in blocks if block for line in ("", *block)][1:]


def _is_installed(module: str) -> bool:
    with suppress(ImportError, ValueError):
        return find_spec(module.partition(".")[0]) is not None
    return False


def is_class(reference: str) -> bool:
    """Return whether the user's code is a class, without running it."""
    path, name = source_file(reference), reference.rpartition(":")[2]
    if path is None:
        return False
    tree = ast.parse(path.read_bytes())
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in ast.walk(tree))


def _written(modules: set[str], names: dict[str, set[str]]) -> tuple[list[str], list[str]]:
    """Return the imports of the standard library and the others, sorted as `ruff` does."""
    plain = [(name, f"import {name}") for name in sorted(modules)]
    chosen = [(module, f"from {module} import {', '.join(sorted(names[module]))}") for module in sorted(names)]
    both = plain + chosen
    is_standard = [module.split()[0] in _STANDARD for module, _ in both]
    return (
        [line for (_, line), here in zip(both, is_standard, strict=True) if here],
        [line for (_, line), here in zip(both, is_standard, strict=True) if not here],
    )
