"""Files in a run's folder are opened by `engine.storage.files` only, which follows no link there."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.helpers import ROOT

FOLLOWS = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "copyfile", "copytree"}
"""Functions and methods of the standard library that open a path and follow links."""

ELSEWHERE = {
    "engine/jobs/predict.py: draft.open",  # the file that the user named, under another name until it is whole
    "engine/mirror/copier.py: place.open",  # a method of a mirror, which checks its paths
    "engine/mirror/copier.py: self._place.open",
    "engine/process/main.py: os.open",  # /dev/null
    "tui/commands/exporting.py: Path(result['out']).read_text",  # what the command has written
    "tui/commands/exporting.py: path.read_text",
}
"""Functions that modules about runs open other files with."""

JOINS = {"engine/sweeps/folder.py", "engine/sweeps/cells.py"}
"""Modules that add a name to the path of a folder: one that they have just made, or that has no folder on the way."""


def opened_in(file: Path, name: str) -> Iterator[str]:
    """Yield the expressions of a module that open a file, or name one, without a look at links."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Call) and "opener" not in {key.arg for key in node.keywords}:
            function = ast.unparse(node.func)
            is_method = "." in function or function == "open"  # of these names, ours are plain functions
            if is_method and function.rpartition(".")[2] in FOLLOWS and f"{name}: {function}" not in ELSEWHERE:
                yield ast.unparse(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and name not in JOINS:
            yield from [ast.unparse(node)] * ast.unparse(node.left).endswith(".path")  # `inside` checks the way


def test_no_module_opens_a_file_of_a_run_by_itself() -> None:
    found = []
    for file in (file for top in ("engine", "presets", "tui") for file in (ROOT / top).rglob("*.py")):
        name = file.relative_to(ROOT).as_posix()
        if "import RunDirectory" in file.read_text("utf-8") or file.parent.name in {"runs", "sweeps", "mirror"}:
            found += [f"{name}: {expression}" for expression in opened_in(file, name)]
    assert found == []
