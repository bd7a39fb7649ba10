"""What the tests of kinds share: reading data as an exported script does, and the first run on data with a name."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import to_builtins

from tests.helpers import small_config
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.data.code import Imports
from tpu_console.engine.data.examples import Examples
from tpu_console.engine.data.kinds.formats import first_run
from tpu_console.engine.data.kinds.table import KINDS
from tpu_console.engine.export.script import data_code
from tpu_console.engine.jobs.inspect import inspect_dataset
from tpu_console.engine.messages import Reporter


def code_of(config: RunConfig, examples: Examples) -> str:
    """Return the part of a script that reads the data."""
    imports = Imports()
    record = json.loads(json.dumps(examples.record))
    code = data_code(config, examples.validation_count or 0, record, imports)
    imports.add("tensorflow as tf")
    return "\n".join([*imports.lines({}), *code.lines])


def assert_script_reads(config: RunConfig, examples: Examples, tolerance: float = 1e-6) -> None:
    """Check that a script makes the same examples, in the same order."""
    names: dict[str, Any] = {"SEED": config.seed}
    exec(code_of(config, examples), names)
    for part in ("train", "validation"):
        for ours, theirs in zip(getattr(examples, part), names[part], strict=True):
            for one, other in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=tolerance)


def inspected(config: RunConfig) -> dict[str, Any]:
    """Return what `inspect` finds out about a configuration's data."""
    return inspect_dataset(Reporter(io.StringIO()), config.model_dump(mode="json"))


def ask_here(kind: str, options: dict[str, Any]) -> Any:
    """Answer as `asking.ask` does, in this process, which has imported the package."""
    asked: Any = KINDS[kind]
    return to_builtins(asked.ask(asked.Options.model_validate(options)))


def started(name: str, folder: Path, **options: Any) -> RunConfig:
    """Return how to train on data with a name, such as ``hf:leaves``, whose files are in a folder."""
    changes = [(f"data.options.{key}", value) for key, value in {"data_dir": str(folder), **options}.items()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tpu_console.engine.data.kinds.asking.ask", ask_here)
        return first_run(name, changes).config


def small(config: RunConfig, **changes: Any) -> RunConfig:
    """Return a configuration that trains a small model on the same data."""
    same = config.model_dump(mode="json", include={"dataset", "model", "loss", "metrics", "data"})
    return small_config(**same | {"model_options": {}} | changes)
