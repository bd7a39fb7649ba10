"""What the tests of exported scripts share: reading the data as a script does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tpu_console.engine.code import Imports
from tpu_console.engine.data.kinds.table import KINDS

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.data.examples import Examples


def code_of(config: RunConfig, examples: Examples) -> str:
    """Return the part of a script that reads the data."""
    imports = Imports()
    record = json.loads(json.dumps(examples.record))
    code = KINDS[config.dataset].code(config, examples.validation_count or 0, record, imports)
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
