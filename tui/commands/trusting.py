"""Asks before a command uses what the user did not start: code in a model, and what a run reaches outside of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tpu_console.engine.errors import UntrustedCodeError

from ..terminal.output import complain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


def with_trust(act: Callable[[bool], T]) -> T | None:
    """Do something that may need trust, which is passed: that of ``--trust``, or else the answer to a question.

    Returns:
        What it returns; None if the answer is no.

    Raises:
        UntrustedCodeError: It is not trusted, and there is no terminal to ask on.
    """
    context = click.get_current_context(silent=True)
    try:
        return act(context is not None and context.meta.get("trust", False))
    except UntrustedCodeError as error:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        complain([*error.what.split("\n"), *([error.why] if error.why else [])])
        if not click.confirm("Allow it to run?", err=True):
            complain(["Nothing was done."])
            return None
        return act(True)


def run_job_with_trust(
    name: str, options: Mapping[str, Any], when_interrupted: str = "Nothing was written."
) -> dict[str, Any] | None:
    """Run a job that may need trust, as in `with_trust`."""
    from ..jobs.job_process import run_job

    return with_trust(lambda trust: run_job(name, {**options, "trust": trust}, when_interrupted))


def run_line(name: str | None, run_id: str) -> str:
    """Return which run was used, and that it is the newest of its preset if only that was named."""
    from tpu_console.engine.runs.run_directory import is_named

    return f"{run_id}, the newest run of {name}" if name and is_named(run_id, name) else run_id
