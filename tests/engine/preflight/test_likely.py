"""The likely time beside the bound, from the user's runs, the host and the input; and how near a run came to it."""

import json
import math
import re

import pytest

from tests.helpers import known, replace, small_config
from tests.made_verdicts import FITS
from tpu_console.engine.accelerators.backend import FRAMEWORKS
from tpu_console.engine.data.cached_facts import save_input_speed
from tpu_console.engine.machine.environment import usable_cores
from tpu_console.engine.preflight.choice import save_verdict
from tpu_console.engine.preflight.likely import (
    InputThroughput,
    QuotaShare,
    best_case_of,
    efficiency_of,
    input_throughput_of,
    kaggle_share,
    likely_of,
)
from tpu_console.engine.preflight.result import Verdict
from tpu_console.engine.runs.events import AcceleratorReady, EpochEnded, Event, FitStarted, Replica, RunStarted
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.engine.storage.paths import runs_folder
from tpu_console.tui.text.checks import likely_text

CONFIG = small_config(accelerator="tpu")
OF_128 = small_config(accelerator="tpu", batch_size=128)
BEST = 2.32e-3
BOUND = known(FITS.bound)


def save_run(name: str, tpu: str, reached: object) -> None:
    folder = runs_folder() / name
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({"best_case": {"tpu": tpu, "step_ms": 1.0, "reached": reached}}))


def on(step_s: float) -> Verdict:
    return replace(FITS, bound=replace(BOUND, step_s=step_s, images_per_s=FITS.global_batch / step_s))


def test_without_any_run_only_the_least_time_is_known() -> None:
    likely = known(likely_of(CONFIG, FITS))
    assert (likely.low_s, likely.high_s, likely.limited_by, likely.source) == (BEST, None, "device", "")
    text = likely_text(replace(FITS, likely=likely))
    assert re.findall(r"[≥≤] [\d.,]+", text) == ["≥ 22.3", "≥ 2.32", "≤ 441,379"]
    assert [likely_of(CONFIG, none) for none in (replace(FITS, bound=None), replace(FITS, tpu="v9"))] == [None, None]
    assert likely_of(CONFIG, replace(FITS, bound=replace(BOUND, step_s=0.0))) is None


def test_the_users_runs_on_the_same_generation_give_a_range() -> None:
    for name, tpu, reached in (
        *(("a", "v5e-8", 0.4), ("b", "v5e-4", 0.5), ("c", "v3-8", 0.9)),
        *(("d", "v5e-8", "much"), ("f", "v5e-8", 0.0), ("g", "v5e-8", 1.5), ("h", "v9", 0.1)),
    ):
        save_run(name, tpu, reached)
    (runs_folder() / "e").mkdir()
    (runs_folder() / "e" / "summary.json").write_text("{")
    likely = known(likely_of(CONFIG, FITS))
    assert [likely.low_s, likely.high_s] == pytest.approx([BEST / 0.5, BEST / 0.4])
    assert likely.run_high_s == pytest.approx(22.3 / 0.4)
    assert likely.source == "your 2 runs on v5e"
    text = likely_text(replace(FITS, likely=likely))
    assert re.findall(r"[\d.,]+\d", text)[:7] == ["44.6", "55.7", "22.3", "4.64", "5.8", "2.32", "176,552"]


def test_an_input_that_is_slower_is_named() -> None:
    save_run("a", "v5e-8", 0.5)
    save_input_speed(CONFIG, [{"name": "first", "per_s": 100.0}, {"name": "later", "per_s": 10_240.0}])
    likely = known(likely_of(CONFIG, FITS))
    assert (likely.low_s, likely.high_s, likely.limited_by) == (0.1, 0.1, "input")
    limited = replace(FITS, likely=likely)
    assert limited.limited_by == "input"
    assert "0.10 s (2.32 ms) per step" in likely_text(limited)
    assert "input-bound" in likely_text(limited)


def test_a_short_step_takes_as_long_as_the_host_needs_to_start_it() -> None:
    likely = known(likely_of(CONFIG, on(1e-6)))
    assert (likely.low_s, likely.limited_by) == (FRAMEWORKS["jax"].host_step_s, "host")
    short = replace(on(1e-6), likely=likely)
    assert short.limited_by == "host"
    assert "a larger batch" in likely_text(short)
    save_input_speed(CONFIG, [{"name": "first", "per_s": 1000.0}])
    feeding = known(input_throughput_of(CONFIG, on(1e-6)))
    assert feeding.wanted_per_s == FITS.global_batch / FRAMEWORKS["jax"].host_step_s


def test_the_input_of_each_host_needs_cores_for_its_share_of_the_examples() -> None:
    wants = replace(on(1.0), hosts=4)
    assert input_throughput_of(CONFIG, wants) is None
    save_input_speed(CONFIG, [{"name": "first", "per_s": 100.0}])
    assert input_throughput_of(CONFIG, replace(FITS, bound=None)) is None
    feeding = known(input_throughput_of(CONFIG, wants))
    assert feeding == InputThroughput(FITS.global_batch, 100.0, cores := usable_cores(), feeding.cores_needed)
    assert feeding.cores_needed == math.ceil(FITS.global_batch / 100 * cores / 4)
    assert [InputThroughput(100.0, per_s, 1, 1).keeps_up for per_s in (99.0, 100.0)] == [False, True]


def test_a_run_takes_a_share_of_the_free_hours_where_these_are_fixed() -> None:
    assert kaggle_share("v5e-8", 36_000.0) == QuotaShare(0.5, 36_000 / 32_400)
    assert kaggle_share("v6e-1", 3600.0) is kaggle_share("v5e-8", None) is None


def state_of(kind: str = "TPU v5 lite", devices: int = 8, accelerator: str = "tpu") -> RunState:
    replicas = tuple(Replica(index, f"tpu:{index}", kind, "host") for index in range(devices))
    events: list[Event] = [
        RunStarted("small", "host", 1, "here", OF_128.model_dump(mode="json")),
        AcceleratorReady(accelerator, "", "", replicas, {}),
        *(
            EpochEnded(n, n, 1, n, 1.0, 0.0, 0.0, step_ms, 9.0, 0.1, {"loss": 1.0})
            for n, step_ms in ((1, 9.0), (2, 4.0), (3, 2.9))
        ),
    ]
    state = RunState()
    for event in events:
        state = reduce(state, event, 0.0)
    return state


def test_a_run_is_compared_with_its_verdict_on_the_same_tpu() -> None:
    save_verdict(OF_128, FITS)
    efficiency = known(efficiency_of(state_of()))
    assert (efficiency.tpu, efficiency.best_step_ms, efficiency.measured_step_ms) == ("v5e-8", 2.32, 4.0)
    assert efficiency.share == pytest.approx(0.58)
    assert efficiency.summary == {"tpu": "v5e-8", "step_ms": 2.32, "reached": efficiency.share}


def test_a_run_keeps_the_verdict_that_was_there_when_it_began() -> None:
    fit = FitStarted(3, 1, 1024, 128, 1, best_step_ms=1.0, best_layers_ms={"conv": 0.75})
    efficiency = known(efficiency_of(reduce(state_of(), fit, 0.0)))  # read on a machine without the verdict
    assert (efficiency.tpu, efficiency.best_step_ms, efficiency.share) == ("v5e-8", 1.0, 0.25)
    assert best_case_of(reduce(state_of(), fit, 0.0)) == ("v5e-8", 1.0, {"conv": 0.75})
    save_verdict(OF_128, replace(FITS, bound=replace(BOUND, layers={"conv": 0.5e-3})))
    assert best_case_of(state_of()) == ("v5e-8", 2.32, {"conv": 0.5})


def test_no_efficiency_for_another_tpu_another_configuration_or_no_tpu() -> None:
    assert efficiency_of(state_of()) is None
    save_verdict(small_config(batch_size=128, model_options={"hidden": [9]}), FITS)
    assert efficiency_of(state_of()) is None
    save_verdict(OF_128, FITS)
    assert efficiency_of(state_of(kind="TPU v4")) is None
    assert efficiency_of(state_of(devices=4)) is None
    assert efficiency_of(state_of(accelerator="cpu")) is None
