"""The quick starts in ``examples/`` run from the top, with fewer epochs and without the cells for one place only."""

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.helpers import LIMIT_S, ROOT, small_config
from tests.tui.forked_program import FORKED, forking
from tpu_console.engine.config.run_config import to_toml
from tpu_console.engine.runs.events import RunFinished
from tpu_console.engine.runs.follower import StateReader
from tpu_console.engine.runs.run_directory import list_runs

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
ELSEWHERE = "only-on-"
"""How the tags begin of cells that run at one place only, such as ``only-on-colab``."""

SMALL = 'PRESET = "small.toml"\nEPOCHS = 2'


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: Any) -> Iterator[Any]:
    return (cell for cell in notebook.cells if cell.cell_type == "code")


def is_elsewhere(cell: Any) -> bool:
    return any(tag.startswith(ELSEWHERE) for tag in cell.metadata.get("tags", ()))


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, tuple[list[Any], Path]]:
    """The cells of every notebook, run from the top, and its own home; one kernel imports Keras for all."""
    folder = tmp_path_factory.mktemp("notebooks")
    whole, found = nbformat.v4.new_notebook(), {}
    for path in NOTEBOOKS:
        cells = [cell for cell in code_cells(read(path)) if not is_elsewhere(cell)]
        (parameters,) = (cell for cell in cells if "parameters" in cell.metadata.get("tags", ()))
        parameters.source += f"\n{SMALL}"
        own = folder / path.stem
        own.mkdir()
        found[path] = cells, own
        (own / "small.toml").write_text(to_toml(small_config()))
        new = f"%reset -f\nimport os\nos.environ['TPU_CONSOLE_HOME'] = {str(own)!r}\n%cd -q {own}"
        whole.cells += [nbformat.v4.new_code_cell(new), *cells]
    with pytest.MonkeyPatch.context() as patch:
        # Its `tpu-console` is this one, whose training processes begin with Keras imported, and it leaves no files in
        # the user's folders.
        program = folder / "bin" / "tpu-console"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *FORKED])} "$@"\n')
        program.chmod(0o700)
        patch.setenv("PATH", str(program.parent), prepend=os.pathsep)
        for name, value in forking().items():
            patch.setenv(name, value)
        patch.setenv("KERAS_BACKEND", "tensorflow")
        for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
            patch.setenv(name, str(folder / "jupyter"))
        NotebookClient(whole, timeout=int(3 * LIMIT_S), kernel_name="python3").execute()
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_quick_start_is_stored_without_outputs(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert [cell.source for cell in code_cells(notebook) if cell.outputs or cell.execution_count] == []
    assert [cell.source for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())][1:] == []
    assert notebook.cells[0].source.startswith("# ")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_quick_start_runs(path: Path, executed: dict[Path, tuple[list[Any], Path]]) -> None:
    cells, home = executed[path]
    assert all(cell.execution_count for cell in cells)
    said = {cell.source: "".join(output.get("text", "") for output in cell.outputs) for cell in cells}
    assert [text for text in said.values() if "Error" in text or "usage:" in text.lower()] == []
    ends = [StateReader(run).catch_up().end for run in list_runs(home / "runs")]
    assert ends
    assert all(isinstance(end, RunFinished) for end in ends)
