"""The start of a run on JAX, the first time and again: what was compiled is kept."""

from __future__ import annotations

import shutil
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.report import Row, Section, ratio_row

if TYPE_CHECKING:
    from tests.bench.bench import Bench

_COMMAND = ("run", "digits-cnn", "--backend", "jax", "--accelerator", "cpu", "--epochs", 1, "--json")


def measure(bench: Bench) -> Section:
    """Start with an empty cache and with the one that is left, in turn."""
    first, again = [], []
    for _ in bench.rounds(9, quick=2):
        shutil.rmtree(bench.folder / "home" / "cache" / "compiled", ignore_errors=True)
        first.append(_seconds_to_first_step(bench))
        again.append(_seconds_to_first_step(bench))
    return Section(
        "The second start on JAX",
        "`digits-cnn` on JAX on the CPU, from the first event to the first progress, without importing.",
        (
            Row("the first time", f"{median(first):.2f} s"),
            Row("again", f"{median(again):.2f} s"),
            ratio_row("again ÷ the first time", again, first, most=1.0),
        ),
    )


def _seconds_to_first_step(bench: Bench) -> float:
    records = bench.records(bench.console(*_COMMAND))
    connecting = next(r["t"] for r in records if r["type"] == "PhaseStarted" and r["phase"] == "connecting")
    return float(next(r["t"] for r in records if r["type"] == "Progress") - connecting)
