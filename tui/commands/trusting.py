"""Runs jobs that load a model, which may contain foreign code, for `predict` and `export`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tpu_console.engine.errors import UntrustedCodeError

from ..terminal.output import complain

if TYPE_CHECKING:
    from collections.abc import Mapping


def run_job_with_model(name: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Run a job; on a terminal, ask whether code in its model may run. Return None if it may not.

    Raises:
        UntrustedCodeError: The model contains code, and there is no terminal to ask on.
    """
    from ..jobs.command_job import run_job

    try:
        return run_job(name, options)
    except UntrustedCodeError as error:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        complain([error.what])
        if not click.confirm("Allow it to run?", err=True):
            complain(["Nothing was written."])
            return None
        return run_job(name, {**options, "trust": True})


def run_line(name: str | None, run_id: str) -> str:
    """Return which run was used, and that it is the newest of its preset if only that was named."""
    from tpu_console.engine.runs.run_directory import is_named

    return f"{run_id}, the newest run of {name}" if name and is_named(run_id, name) else run_id
