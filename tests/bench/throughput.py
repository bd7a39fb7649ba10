"""Images per second of `fashion-mnist-cnn`: a plain script against the console, headless and watched."""

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from tests.bench.bench import HERE, Bench, end_process, journal_of
from tests.bench.report import Row, Section, ratio_row

BATCH = 1000
_STEPS = 15
_CLOSE_S = 60.0


def measure(bench: Bench) -> Section:
    epochs = 3 if bench.is_quick else 7
    preset = ["fashion-mnist-cnn", "--epochs", epochs, "--set", f"steps_per_epoch={_STEPS}"]
    preset += ["--set", f"validation_freq={epochs}"]
    script = bench.python(HERE / "plain_fashion.py", "--epochs", epochs, "--steps", _STEPS)
    ways = {
        "plain": lambda: _speed(json.loads(bench.output(script))["ended_at"]),
        "headless": lambda: _speed(_epoch_ends(bench.records(bench.console("run", *preset, "--json")))),
        "watched": lambda: _speed(_epoch_ends(_watch(bench, preset))),
    }
    plain, headless, watched = bench.in_turn(bench.rounds(9), ways).values()
    return Section(
        "Throughput of fashion-mnist-cnn",
        f"{epochs} epochs of {_STEPS} steps of {BATCH} images, without the first and the last one. *Plain*: the "
        "same model and pipeline in a script with `model.fit(verbose=0)` and no output. *Watched*: with "
        "`tpu-console attach` in a pseudo-terminal of 120×40.",
        (
            Row("plain script", f"{median(plain):,.0f} examples/s"),
            Row("console, headless", f"{median(headless):,.0f} examples/s"),
            Row("console, watched", f"{median(watched):,.0f} examples/s"),
            ratio_row("headless ÷ plain", headless, plain, 0.99),
            ratio_row("watched ÷ plain", watched, plain, 0.97),
        ),
    )


def _speed(ends: Sequence[float]) -> float:
    """Return the images per second after the first epoch; the last one also validates, on both sides."""
    return BATCH * _STEPS / median(after - before for before, after in pairwise(ends[:-1]))


def _epoch_ends(records: Iterable[dict[str, Any]]) -> list[float]:
    """Return when each epoch of a run ended, in seconds since `fit` began."""
    return [record["elapsed_s"] for record in records if record["type"] == "EpochEnded"]


def _watch(bench: Bench, preset: Sequence[object]) -> list[dict[str, Any]]:
    """Train with the live screen on, from beginning to end, and return the journal."""
    run, host = bench.start_detached("run", *preset)
    try:
        with bench.open(bench.console("attach", run.run_id)) as terminal:
            terminal.wait_for(run.run_id.encode())
            host.wait()
            terminal.wait_for(b"Finished", limit_s=_CLOSE_S)
    finally:
        end_process(host)
    return journal_of(run)
