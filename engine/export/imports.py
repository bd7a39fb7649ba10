"""Collects what a script imports, and writes it in the usual order."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path

from ..config.user_code import source_file
from ..errors import UserCodeError
from .code import assigned, call, literal, write

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
        place, _, name = reference.rpartition(":")
        module = place
        if place.endswith(".py"):
            path = source_file(reference) or Path(place)
            module = path.stem
            if not module.isidentifier():
                raise UserCodeError(
                    f"{reference} cannot be imported by a plain import: '{module}' is not a name in Python.",
                    remedy="Rename the file, and name it so in the run's config.toml.",
                )
            if (folder := str(path.parent.resolve())) not in self._folders:
                self._folders.append(folder)
        self._own.setdefault(module, set()).add(name)
        return name

    def lines(self, environment: dict[str, str]) -> list[str]:
        """Return the lines at the top of a script, which first sets some variables."""
        first = {"os"} if environment else set()
        if self._folders:
            first.add("sys")
        standard, others = _written(self._modules | first, self._names)
        setup = [assigned(f"os.environ[{literal(key)}]", value) for key, value in environment.items()]
        setup += [write(call("sys.path.insert", "0", literal(folder))) for folder in self._folders]
        _, own = _written(set(), self._own)
        blocks = [standard, setup, others, own] if setup else [standard, others, own]
        return [line for block in blocks if block for line in ("", *block)][1:]


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
