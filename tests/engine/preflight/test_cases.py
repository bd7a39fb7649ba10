"""What a person reads about each made case that compiles: one screen that says what to change, or that all is well.

`tests/engine/preflight/cases` has the models, and the verdicts that the TPU compiler reached on them;
``python -m tests.engine.preflight.cases`` asks it again. The cases that do not compile are in `test_refusals`.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import known, replace
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.data.cached_facts import save_input_speed
from tpu_console.engine.preflight.likely import likely_of
from tpu_console.engine.preflight.result import Verdict, from_dict
from tpu_console.tui.text.checks import detail_lines, verdict_lines

FOLDER = Path(__file__).parent / "cases"
LINES, CELLS = 32, 80

EXPECTED = {
    "fine": ["fits", "likely ≥", "at best", "per step", "is the limit"],
    "fine-eight-chips": ["fits", "exchanged"],
    "fine-bfloat16": ["fits", "bfloat16"],
    "fine-small-batch": ["Keras needs 200 µs on the host to start a step, and a larger batch does more in each"],
    "lstm": ["fits", "16.5 GFLOP"],
    "halving": ["at least", "so it is counted once"],
    "rotated": ["reads 1,572,864 numbers one by one", "Remove the layer from the model and set augmentation.rotation"],
    "wide": ["Asked for float64, computed in float32 on a TPU: wide."],
    "printed": ["calls the host in every step", "Remove prints, callbacks and Python functions"],
    "padded": ["odd: features 70 padded to 128, 45%"],
    "too-large-batch": ["does not fit", "result of conv0 (Conv2D)", "change It fits with precision=mixed_bfloat16"],
    "too-large-table": [
        "weights and optimizer slots of table (Embedding) 14.88 GiB, 75%; gradient of table",
        "the table's gradient alone need 19.8 GiB. Every device holds all of them, so neither a smaller batch nor more",
        "Use a table with fewer rows or columns",
        "It fits with optimizer.name=lion",
        "It fits on v6e-1",
    ],
    "too-large-weights": [
        "weights and optimizer slots of huge (Dense)",
        "neither a smaller batch nor more chips of this kind help",
        "It fits on v6e-1",
    ],
    "too-large-bfloat16": ["result of conv0 (Conv2D)", "It fits with batch_size="],
    "too-large-attention": [
        "tensor 512×8×1024×1024 of attends0 (MultiHeadAttention) 16.00 GiB, 32%",
        "It fits with batch_size=",
        "It fits on v5e-4 with batch_size=128 (the same 512 examples per step)",
    ],
}


def case(name: str) -> tuple[Any, Verdict]:
    """Return the configuration of a case, and its verdict."""
    found = json.loads((FOLDER / f"{name}.json").read_text())
    values = {"dataset": "cifar10", "model": f"{FOLDER / 'compiled.py'}:fine", "epochs": 10, **found["settings"]}
    return parse_config(values), from_dict(found["verdict"])


def screen(name: str) -> list[str]:
    """What `tpu-console preflight` prints on a terminal."""
    config, verdict = case(name)
    verdict = replace(verdict, likely=likely_of(config, verdict))
    return verdict_lines(config, [verdict], "mine.py:build", CELLS)


@pytest.mark.parametrize("name", EXPECTED)
def test_one_screen_and_the_console_say_what_to_change_and_the_memory_adds_up(name: str) -> None:
    config, verdict = case(name)
    lines = screen(name)
    text = re.sub(r"\s+", " ", " ".join(lines))
    for words in EXPECTED[name]:
        assert words in text, words
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= CELLS
    shown = re.sub(r"\s+", " ", " ".join(detail_lines(config, verdict, "mine.py:build", CELLS)))
    for finding in verdict.findings:
        assert finding.remedy.rstrip(".") in shown
    memory = known(verdict.memory)
    parts = memory.parameters + memory.optimizer + memory.batch + memory.temporaries + memory.code + memory.other
    assert parts == memory.peak
    if name.startswith("too-large"):  # three things and a change that fits are named
        assert len(verdict.fillings) == 3
        assert [one for one in verdict.findings if one.is_change]


@pytest.mark.parametrize(
    ("name", "per_s", "is_starved"), [("fine", 2000.0, True), ("fine-eight-chips", 50.0, True), ("fine", 1e9, False)]
)
def test_a_model_that_its_input_starves_is_called_input_bound(name: str, per_s: float, is_starved: bool) -> None:
    config, _ = case(name)
    save_input_speed(config, [{"name": "first", "per_s": per_s}])
    text = re.sub(r"\s+", " ", " ".join(screen(name)))
    assert ("input-bound" in text) is ("make the input cheaper" in text) is is_starved


def test_every_case_has_its_verdict() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(EXPECTED)
