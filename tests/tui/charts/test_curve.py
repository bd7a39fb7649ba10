from __future__ import annotations

import numpy as np
import pytest

from tpu_console.tui.charts.curve import Axis, Curve


def test_each_axis_has_its_own_positions() -> None:
    curve = Curve("loss", np.array([1.0]), np.array([2.0]), np.array([3.0]), np.array([4.0]), False)
    assert [curve.along(axis)[0] for axis in (Axis.STEP, Axis.EPOCH, Axis.TIME)] == [1.0, 2.0, 3.0]


def test_refuses_arrays_of_different_lengths() -> None:
    with pytest.raises(ValueError, match="loss"):
        Curve("loss", np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(3), False)
