"""`tpu-console resume` and `tpu-console runs mirror`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..terminal.output import say
from .options import (
    backend_option,
    complete_accelerator,
    examples,
    in_process_option,
    json_option,
    run_argument,
    set_option,
    trust_option,
)
from .preset_choice import parsed
from .starting import fetched, refuse_both, resume_run
from .trusting import run_job_with_trust


@click.command(
    epilog=examples(
        "tpu-console resume",
        "tpu-console resume 20261120-133100-digits-cnn",
        "tpu-console resume digits --epochs 40",
        "tpu-console resume gs://bucket/runs/20261120-133100-digits-cnn",
        "tpu-console resume digits --accelerator cpu --set optimizer.learning_rate=0.0005",
    )
)
@run_argument
@set_option
@click.option("--epochs", type=int, metavar="N", help="Number of epochs, including those already done.")
@click.option("--batch-size", type=int, metavar="N", help="Batch size per replica.")
@click.option("--accelerator", metavar="A", shell_complete=complete_accelerator, help="Where to train from now on.")
@backend_option
@click.option("--budget", metavar="T", help="A new time budget from now on, such as 8h30m.")
@trust_option
@in_process_option
@click.option("--detach", is_flag=True, help="Start in the background and return.")
@json_option("Print the run's events, one JSON object per line.")
def resume(
    name: str | None,
    assignments: tuple[str, ...],
    detach: bool,
    in_process: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Continue RUN after it stopped, crashed or was killed; by default the newest.

    It goes on from its newest whole checkpoint, in the same folder and with the same curves, and ends as if it had
    never been interrupted. Settings can change, except the model and the optimizer.

    RUN may be the run's folder at its mirror, such as gs://bucket/runs/RUN. It is copied here first.

    A run that you did not start on this machine may name code, addresses and files. It goes on only with --trust, or if
    you confirm on a terminal; see SECURITY.md.
    """
    from tpu_console.engine.mirror.check import is_at_mirror
    from tpu_console.engine.runs.run_directory import find_run

    refuse_both(detach=detach, in_process=in_process)
    changes = [*parsed(assignments), *((key, value) for key, value in options.items() if value is not None)]
    run = None
    if name is not None and is_at_mirror(name):
        place = name if "://" in name else str(Path(name).expanduser().absolute())
        changes.insert(0, ("mirror", place.rstrip("/").rpartition("/")[0]))
        run = fetched(place, as_json=as_json)
    return resume_run(run or find_run(name), changes, detach=detach, as_json=as_json, in_process=in_process)


@click.command(
    epilog=examples(
        "tpu-console runs mirror", "tpu-console runs mirror digits", done="everything is copied", failed="it is not"
    )
)
@run_argument
@trust_option
def mirror(name: str | None) -> int:
    """Copy RUN to its mirror, if it ended while the mirror was away; by default the newest.

    While a run trains, it is copied by itself: set `mirror` to a folder or bucket.
    """
    from tpu_console.engine.runs.run_directory import find_run

    run = find_run(name)
    copied = run_job_with_trust("mirror", {"run": str(run.path)}, "Not everything was copied.")
    if copied is None:
        return 1
    say([f"{run.run_id} is complete at {copied['place']}"])
    return 0
