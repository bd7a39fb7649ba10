"""What no run uses is left out of a framework's import, and can be imported afterwards."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.helpers import run_python
from tpu_console.engine.accelerators.lean_import import without

if TYPE_CHECKING:
    from pathlib import Path

LATER = """
import sys
from tpu_console.engine.accelerators.lean_import import hidden_beside
with hidden_beside("tensorflow"):
    import keras
print(sorted({"IPython", "jax", "matplotlib", "sklearn"} & sys.modules.keys()))
import matplotlib.pyplot, sklearn.datasets
print(sklearn.datasets.load_digits().data.shape, keras.backend.backend())
"""


def test_a_package_is_missing_inside_and_there_afterwards() -> None:
    sys.modules.pop("colorsys", None)
    with without("colorsys"), pytest.raises(ModuleNotFoundError):
        import colorsys
    import colorsys

    assert colorsys.rgb_to_hsv(0, 0, 0) == (0, 0, 0)


def test_what_is_imported_already_stays() -> None:
    import json

    with without("json"):
        assert sys.modules["json"] is json
    assert sys.modules["json"] is json


def test_an_error_inside_leaves_nothing_behind() -> None:
    sys.modules.pop("colorsys", None)
    with pytest.raises(RuntimeError), without("colorsys"):
        raise RuntimeError
    assert "colorsys" not in sys.modules


@pytest.mark.slow
def test_keras_imports_without_optional_packages_which_can_be_imported_later(tmp_path: Path) -> None:
    assert run_python(LATER, cwd=tmp_path).splitlines() == ["[]", "(1797, 64) tensorflow"]
