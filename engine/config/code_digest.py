"""Identifies a function by its code and what that uses in its file, so that other changes of the file do not count."""

from __future__ import annotations

import ast
import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_DYNAMIC = {"eval", "exec", "globals"}  # what may use any other name of the file


@lru_cache(maxsize=64)
def code_digest(file: Path, name: str, stamp: int) -> str:  # noqa: ARG001  so that a changed file is read again
    """Return a digest of a function in a file, and of all that it uses there.

    Comments and layout do not count. If it is not known what the function uses, it is a digest of the whole file.
    """
    content = file.read_bytes()
    try:
        reached = _reached(ast.parse(content).body, name)
    except (SyntaxError, ValueError, RecursionError):
        reached = []
    return hashlib.sha256("\n".join(map(ast.dump, reached)).encode() or content).hexdigest()


def _reached(module: list[ast.stmt], name: str) -> list[ast.stmt]:
    """Return the statements of a module that make a name and the names that these use; none if that is not known."""
    names, found, count = {name}, [False] * len(module), -1
    while sum(found) > count:
        count = sum(found)
        for number, statement in enumerate(module):
            if not found[number] and names & _made(statement):
                found[number] = True
                names |= _mentioned(statement)
    is_known = any(name in _made(one) for one in module) and not names & _DYNAMIC
    return [one for one, is_found in zip(module, found, strict=True) if is_found and is_known]


def _made(statement: ast.stmt) -> set[str]:
    """Return the names that a statement makes, or may change: all that it mentions, unless it is of a simple kind."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    if isinstance(statement, ast.Assign | ast.AnnAssign) and all(isinstance(one, ast.Name) for one in targets):
        return {one.id for one in targets if isinstance(one, ast.Name)}
    return _mentioned(statement)


def _mentioned(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
