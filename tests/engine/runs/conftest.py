from pathlib import Path

import pytest

from tpu_console.engine.runs.run_directory import RunDirectory, create_run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return create_run("a", tmp_path)
