"""What depends on the framework is asked of its class: nothing else asks which one it is."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers import small_config
from tpu_console.engine.accelerators.table import FRAMEWORKS, framework_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
NAMES = {*FRAMEWORKS, "JAX", "TENSORFLOW"}


def comparisons(text: str) -> Iterator[int]:
    """Yield the lines that compare something with the name of a framework, or match it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare | ast.MatchValue):
            inner = [*ast.walk(node)]
            words = {one.value for one in inner if isinstance(one, ast.Constant) and isinstance(one.value, str)}
            words |= {one.id for one in inner if isinstance(one, ast.Name)}
            if words & NAMES:
                yield node.lineno


def test_a_question_for_the_framework_is_seen() -> None:
    asking = ['backend == "jax"', "JAX != x", 'x in {"cpu", "tensorflow"}', "match x:\n    case 'jax': pass"]
    assert all([*comparisons(text)] for text in asking)
    assert not [*comparisons("framework.joins_hosts == (x['backend'] != 'torch')")]


def test_no_code_outside_of_the_frameworks_asks_which_one_it_is() -> None:
    files = [path for folder in ("engine", "tui", "presets") for path in (ROOT / folder).rglob("*.py")]
    own = ROOT / "engine/accelerators"
    asking = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in files
        if own not in path.parents
        for line in comparisons(path.read_text(encoding="utf-8"))
    ]
    assert asking == []


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_answers_without_being_imported(name: str) -> None:
    framework = framework_of(name)
    config = small_config(accelerator="sim:2", backend=name)
    assert framework.environment(config)["KERAS_BACKEND"] == name
    environment, lines = framework.code("sim:2", 2)
    assert environment["KERAS_BACKEND"] == name
    assert any(line.startswith("strategy = ") for line in lines) == framework.uses_scope("sim:2", 2)
    assert framework.one_step_reason(2)
    assert framework_of("torch") is FRAMEWORKS["tensorflow"]
