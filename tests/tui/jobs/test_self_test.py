"""The TPU whose bound is asked for after a training on it."""

from __future__ import annotations

import pytest

from tpu_console.engine.doctor.self_test import legs_of
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.preflight.topologies import TOPOLOGIES
from tpu_console.tui.jobs.self_test import tpu_name


@pytest.mark.parametrize(
    ("kind", "chips", "name"),
    [
        *[("v2", 4, "v2-8"), ("v3", 4, "v3-8"), ("v4", 4, "v4-8"), ("v5e", 1, "v5e-1"), ("v5e", 8, "v5e-8")],
        *[("v5p", 4, "v5p-8"), ("v6e", 8, "v6e-8"), ("7x", 4, "tpu7x-8"), ("v5e", 3, ""), ("", 8, "")],
    ],
)
def test_the_bound_is_of_the_tpu_that_trained(kind: str, chips: int, name: str) -> None:
    (*_, leg) = legs_of(Hardware(tpu="/dev/accel0", tpu_kind=kind, tpu_chips=chips), ())
    assert tpu_name(kind, leg.replicas) == name
    assert not name or TOPOLOGIES[name].devices == leg.replicas
