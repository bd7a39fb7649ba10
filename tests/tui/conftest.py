from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import textual._wait
from textual.css import parse, stylesheet, tokenize
from textual.css.model import RuleSet

from tests.tui.calling import Call
from tests.tui.forked_program import forking, start_job
from tests.tui.live_fakes import FakeEngine

# After each key, a pilot waits for spans of this length until an app did next to nothing in two; 20 ms are more than a
# frame takes, of which there are 60 per second, and thousands of keys are pressed.
textual._wait.SLEEP_GRANULARITY = 0.01

# Each style sheet is parsed once for all apps of a session and each theme, and not once for each app.
_tokens_of = cache(lambda *variables: tokenize.tokenize_values(dict(variables)))
_parsed: dict[object, list[RuleSet]] = {}


def _parse_once(scope: str, css: str, read_from: object, *, variable_tokens: object, **more: Any) -> list[RuleSet]:
    key = (scope, css, read_from, id(variable_tokens), *more.values())
    if key not in _parsed:
        _parsed[key] = list(parse.parse(scope, css, read_from, variable_tokens=variable_tokens, **more))  # type: ignore[arg-type]
    return _parsed[key]


stylesheet.parse = _parse_once  # type: ignore[assignment, attr-defined]
stylesheet.tokenize_values = lambda values: _tokens_of(*values.items())  # type: ignore[attr-defined]


@pytest.fixture
def engine() -> FakeEngine:
    """A run that a test moves on event by event."""
    return FakeEngine()


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Return what runs the command line in this process."""
    return Call(capsys)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on a machine without the TPU compiler."""
    monkeypatch.setattr("tpu_console.tui.jobs.checks.check_compiler", lambda: None)


@pytest.fixture
def unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon on runs that do not answer."""
    monkeypatch.setattr("tpu_console.tui.commands.steering._ANSWER_S", 0.2)


@pytest.fixture
def jobs_from(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Let something else start the processes of jobs."""
    return partial(monkeypatch.setattr, "tpu_console.tui.jobs.job_process.start_job")


@pytest.fixture
def forked_jobs(monkeypatch: pytest.MonkeyPatch, jobs_from: Callable[[Any], None]) -> None:
    """Jobs begin with TensorFlow imported, in tests of what they do and say.

    Jobs that start as the program starts them are in ``test_training.py`` and ``test_job.py``, and in the
    tests that drive a terminal.
    """
    for name, value in forking().items():
        monkeypatch.setenv(name, value)
    jobs_from(start_job)
