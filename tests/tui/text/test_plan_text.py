from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import small_config
from tpu_console.engine.config.catalog import DATASETS
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.models.table import MODELS
from tpu_console.engine.planning import make_plan
from tpu_console.engine.runs.timing import PastRun
from tpu_console.presets.catalog import all_presets
from tpu_console.tui.text.plan_text import PlanLine, figures, laid_out, plan_lines

WORDS = ["a", "step,", "(auto:", "= 5;", "something-too-long-for-a-narrow-line", "batch"]


ON_TWO = """
Device    2 simulated replicas on the CPU
Backend   TensorFlow (asked for)
Replicas  2 (each step is split between them)
Step      12 per replica × 2 = global batch of 24 images
Rate      0.01 × 2 replicas = 0.02, linear decay to 0.002
Epoch     59 steps × 24 = 1,416 of 1,437 images
Run       2 epochs × 59 = 118 steps"""
WARMED_UP = """
Device    CPU
Backend   JAX (asked for)
Step      global batch of 12 images
Rate      0.001, after 2 epochs of warm-up
Epoch     20 steps × 12 = 240 of 1,437 images
Run       2 epochs × 20 = 40 steps"""
YOURS = """
Device    CPU
Backend   JAX (asked for)
Step      global batch of 12 examples
Rate      0.001, unless mine.py:build compiles its model
Epoch     the whole dataset
Run       2 epochs"""
DECAY = {"learning_rate": 0.01, "scale_with_replicas": True, "schedule": "linear(final_fraction=0.1)"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"accelerator": "sim:2", "backend": "tensorflow", "optimizer": DECAY}, ON_TWO),
        ({"steps_per_epoch": 20, "optimizer": {"warmup_epochs": 2}}, WARMED_UP),
        ({"dataset": "somewhere.data:load", "model": "mine.py:build", "model_options": {}}, YOURS),
    ],
)
def test_the_form_shows_each_figure_of_a_plan_that_there_is(changes: dict[str, Any], text: str) -> None:
    config = small_config(
        **{"model": "cnn", "model_options": {}, "batch_size": 12, "epochs": 2, "backend": "jax", **changes}
    )
    parts = figures(make_plan(config, Hardware()), config)
    assert "\n".join(laid_out(part, 200).plain for part in parts) == text.strip()


@pytest.mark.parametrize(
    ("lead", "width", "lines"),
    [
        ("Time      ", 40, ["Time      about 26 s, from a run here"]),
        ("Time      ", 32, ["Time      about 26 s,", "          from a run here"]),
        ("Time      ", 24, ["Time      about 26 s,", "  from a run here"]),
        ("          ", 32, ["          about 26 s,", "          from a run here"]),
        ("          ", 31, ["  about 26 s, from a run here"]),
    ],
)
def test_a_line_ends_between_two_facts(lead: str, width: int, lines: list[str]) -> None:
    assert laid_out([PlanLine(lead, "about 26 s, from a run here")], width).plain.split("\n") == lines


@given(words=st.lists(st.sampled_from(WORDS), max_size=12), width=st.integers(20, 60))
def test_a_wrapped_text_fits_and_keeps_every_word(words: list[str], width: int) -> None:
    lines = laid_out([PlanLine("Step      ", " ".join(words))], width).plain.split("\n")
    assert all(len(line) <= width for line in lines)
    assert "".join(" ".join(lines).split()) == "".join(["Step", *words]).replace(" ", "")


def test_no_fact_about_a_preset_breaks_in_the_narrowest_form() -> None:
    about = [preset.about for preset in all_presets()[0] if preset.is_builtin]
    texts = [text for one in about for text in (one.title, one.expected_score, one.expected_time, one.reproduces)]
    texts += [text for info in DATASETS.values() for text in (info.title, info.licence)]
    texts += [f"{name}: {model.title}" for name, model in MODELS.items()]
    for text in texts:
        lines = laid_out([PlanLine("Score    ", text)], 30).plain.split("\n")
        for line, after in pairwise(lines):
            assert line.endswith((",", ";", ":", "Score    ")) or after.strip().startswith(("(", "=")), text


def test_plan_says_how_long_it_takes(similar_run: Callable[[PastRun], None]) -> None:
    similar_run(PastRun(step_ms=420.0, epoch_s=0.7, rest_s=4.0, batch=32, day="2026-03-01"))
    cases: dict[str, dict[str, Any]] = {
        "about 1m 02s, from a similar run here on 2026-03-01": {},
        "roughly 1m 02s, from a similar run here on 2026-03-01 with batch 32": {"batch_size": 16},
        "at most about 1m 02s, from a similar run here on 2026-03-01": {"early_stopping": {"patience": 1}},
        "": {"dataset": "somewhere.data:load"},
    }
    for line, changes in cases.items():
        config = small_config(**{"epochs": 3, "batch_size": 32} | changes)
        lines = plan_lines(config, make_plan(config, Hardware()))
        assert [text.strip() for text in lines if " 2026-" in text] == ([line] if line else [])


def test_a_plan_has_the_batch_of_all_replicas_the_steps_and_warnings() -> None:
    config = RunConfig(dataset="digits", model="cnn", batch_size=12, epochs=2, accelerator="sim:2")
    lines = plan_lines(config, make_plan(config, Hardware()))
    assert "batch 24 (12 × 2 replicas), 59 steps" in lines[2]
    assert [line.split()[0] for line in lines] == ["preset", "digits", "plan", "adam,", "warning"]
