"""The quick starts in ``examples/`` run from the top, with fewer epochs and without the cells for one place only."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.helpers import LIMIT_S, ROOT, small_config
from tpu_console.engine.config.run_config import to_toml
from tpu_console.engine.runs.events import RunFinished
from tpu_console.engine.runs.follower import StateReader
from tpu_console.engine.runs.run_directory import list_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a kernel: its `tpu-console` is this one, and it leaves no files in the user's folders."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_quick_start_is_stored_without_outputs(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert [cell.source for cell in code_cells(notebook) if cell.outputs or cell.execution_count] == []
    assert [cell.source for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())][1:] == []
    assert notebook.cells[0].source.startswith("# ")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_quick_start_runs(path: Path, tmp_path: Path, kernel: None) -> None:
    notebook = read(path)
    notebook.cells = [cell for cell in notebook.cells if not is_elsewhere(cell)]
    (parameters,) = (cell for cell in code_cells(notebook) if "parameters" in cell.metadata.get("tags", ()))
    parameters.source += f"\n{SMALL}"
    (tmp_path / "small.toml").write_text(to_toml(small_config()))
    client = NotebookClient(
        notebook, timeout=int(3 * LIMIT_S), kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    said = {cell.source: "".join(output.get("text", "") for output in cell.outputs) for cell in code_cells(notebook)}
    assert [text for text in said.values() if "Error" in text or "usage:" in text.lower()] == []
    ends = [StateReader(run).catch_up().end for run in list_runs()]
    assert ends
    assert all(isinstance(end, RunFinished) for end in ends)
