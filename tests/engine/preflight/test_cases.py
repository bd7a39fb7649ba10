"""What a person reads about each made case that compiles: one screen that says what to change, or that all is well.

`tests/engine/preflight/cases` has the models, and the verdicts that the TPU compiler reached on them;
``python -m tests.engine.preflight.cases`` asks it again. The cases that do not compile are in `test_refusals`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.data.input_speed import save_input_speed
from tpu_console.engine.preflight.result import Verdict, from_dict
from tpu_console.tui.text.verdicts import detail_lines, verdict_lines

FOLDER = Path(__file__).parent / "cases"
LINES = 50

EXPECTED = {
    "fine": ["fits", "likely at least", "ms/step"],
    "fine-eight-chips": ["fits", "exchanged"],
    "fine-bfloat16": ["fits", "bfloat16"],
    "fine-small-batch": ["Starting a step takes the host longer", "Wasted padding"],
    "lstm": ["fits", "16.5 GFLOP"],
    "halving": ["at least", "so it is counted once"],
    "rotated": ["reads 1,572,864 numbers one by one", "Remove the layer from the model and set augmentation.rotation"],
    "wide": ["Asked for float64, computed in float32 on a TPU: wide."],
    "printed": ["calls the host in every step", "Remove prints, callbacks and Python functions"],
    "padded": ["odd features 70 128", "Wasted padding"],
    "too-large-batch": ["does not fit", "result of conv0 (Conv2D)", "It fits with precision=mixed_bfloat16"],
    "too-large-attention": ["does not fit", "It fits with batch_size="],
}


def case(name: str) -> tuple[Any, Verdict]:
    """Return the configuration of a case, and its verdict."""
    found = json.loads((FOLDER / f"{name}.json").read_text())
    values = {"dataset": "cifar10", "model": f"{FOLDER / 'compiled.py'}:fine", "epochs": 10, **found["settings"]}
    return parse_config(values), from_dict(found["verdict"])


def screen(name: str) -> list[str]:
    """What `tpu-console preflight` prints on a terminal of 100 cells."""
    config, verdict = case(name)
    return [*verdict_lines([verdict], 100), *detail_lines(config, verdict, "mine.py:build", 100, "image")]


@pytest.mark.parametrize("name", EXPECTED)
def test_one_screen_says_what_to_change(name: str) -> None:
    lines = screen(name)
    text = re.sub(r"\s+", " ", " ".join(lines))
    for words in EXPECTED[name]:
        assert words in text, words
    assert len(verdict_lines([case(name)[1]], 100)) <= LINES
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("name", EXPECTED)
def test_the_parts_of_the_memory_add_up_to_the_peak(name: str) -> None:
    memory = case(name)[1].memory
    assert memory is not None
    parts = memory.parameters + memory.optimizer + memory.batch + memory.temporaries + memory.code + memory.other
    assert parts == memory.peak


@pytest.mark.parametrize(
    ("name", "per_s", "is_starved"), [("fine", 2000.0, True), ("fine-eight-chips", 50.0, True), ("fine", 1e9, False)]
)
def test_a_model_that_its_input_starves_is_called_input_bound(name: str, per_s: float, is_starved: bool) -> None:
    config, _ = case(name)
    save_input_speed(config, [{"name": "first", "per_s": per_s}])
    text = re.sub(r"\s+", " ", " ".join(screen(name)))
    assert ("input-bound" in text) is is_starved
    assert ("such cores" in text) is is_starved


def test_every_case_has_its_verdict() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(EXPECTED)
