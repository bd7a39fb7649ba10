"""`tpu-console resume` and `tpu-console mirror`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..terminal.output import say
from ..text.tables import labelled
from .options import backend_option, complete_accelerator, examples, json_option, run_argument, set_option
from .preset_choice import parsed
from .training import detached

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.engine.process.resume import Resumption
    from tpu_console.engine.runs.run_directory import RunDirectory


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
@click.option("--epochs", type=int, metavar="N", help="Number of epochs, those already done included.")
@click.option("--batch-size", type=int, metavar="N", help="Batch size per replica.")
@click.option("--accelerator", metavar="A", shell_complete=complete_accelerator, help="Where to train from now on.")
@backend_option
@click.option("--budget", metavar="T", help="A new time budget from now on, such as 8h30m.")
@click.option("--detach", is_flag=True, help="Start in the background and return.")
@json_option("Print the run's events, one JSON object per line.")
def resume(
    name: str | None,
    assignments: tuple[str, ...],
    epochs: int | None,
    batch_size: int | None,
    accelerator: str | None,
    backend: str | None,
    budget: str | None,
    detach: bool,
    as_json: bool,
) -> int:
    """Continue RUN after it stopped, crashed or was killed; by default the newest.

    It goes on from its newest whole checkpoint, in the same folder and with the same curves, and ends as if it had
    never been interrupted. Settings can change, except the model and the optimizer.

    RUN may be the run's folder at its mirror, such as gs://bucket/runs/RUN. It is copied here first.
    """
    from tpu_console.engine.mirror.check import is_at_mirror
    from tpu_console.engine.process.resume import prepare_resumption
    from tpu_console.engine.runs.run_directory import find_run

    options = {
        "epochs": epochs,
        "batch_size": batch_size,
        "accelerator": accelerator,
        "backend": backend,
        "budget": budget,
    }
    changes: list[tuple[str, Any]] = [*parsed(assignments), *((k, v) for k, v in options.items() if v is not None)]
    run = None
    if name is not None and is_at_mirror(name):
        place = name if "://" in name else str(Path(name).expanduser().absolute())
        changes.insert(0, ("mirror", place.rstrip("/").rpartition("/")[0]))
        run = fetched(place, as_json=as_json)
    return _resume(prepare_resumption(run or find_run(name), changes), detach=detach, as_json=as_json)


def fetched(place: str, label: str = "", *, as_json: bool) -> RunDirectory | None:
    """Copy a run from its mirror, unless it is here.

    Args:
        place: The run's folder at the mirror, or the mirror if there is a label.
        label: Chooses the newest run with it; the result is None if there is none.
        as_json: Print nothing.
    """
    from tpu_console.engine.runs.run_directory import RunDirectory
    from tpu_console.engine.storage.paths import user_path

    from ..jobs.command_job import run_job

    found = run_job("fetch", {"place": place, "label": label}, "Nothing was copied.")
    if "run" not in found:
        return None
    run = RunDirectory(Path(found["run"]))
    if not as_json:
        say([labelled("mirror", found["place"]), labelled("here", user_path(run.path))])
    return run


@click.command(
    epilog=examples("tpu-console mirror", "tpu-console mirror digits", done="everything is copied", failed="it is not")
)
@run_argument
def mirror(name: str | None) -> int:
    """Copy RUN to its mirror, if it ended while the mirror was away; by default the newest.

    While a run trains, it is copied by itself: set `mirror` to a folder or bucket.
    """
    from tpu_console.engine.runs.run_directory import find_run

    from ..jobs.command_job import run_job

    run = find_run(name)
    copied = run_job("mirror", {"run": str(run.path)}, "Not everything was copied.")
    say([f"{run.run_id} is complete at {copied['place']}"])
    return 0


def resume_or_watch(run: RunDirectory, changes: Sequence[tuple[str, Any]] = (), *, detach: bool, as_json: bool) -> int:
    """Resume a run; watch it if it is training, and say so if it has finished.

    Args:
        run: The run.
        changes: Settings to change, by dotted key.
        detach: Return once it trains.
        as_json: Print its events as JSON.
    """
    from tpu_console.engine.process.launch import RunningError
    from tpu_console.engine.process.resume import FinishedError, prepare_resumption

    from ..following.follow import FINISHED, follow

    try:
        prepared = prepare_resumption(run, changes)
    except RunningError:
        return FINISHED if detach else follow(run, as_json=as_json)
    except FinishedError as finished:
        say([] if as_json else [finished.what])
        return FINISHED
    return _resume(prepared, detach=detach, as_json=as_json)


def _resume(prepared: Resumption, *, detach: bool, as_json: bool) -> int:
    from ..following.follow import follow

    if not as_json:
        say([labelled("changed" if not number else "", change) for number, change in enumerate(prepared.changes)])
    process = prepared.start()
    times = prepared.earlier + 1
    if detach:
        return detached(prepared.run, process, as_json=as_json, resumed=times)
    return follow(prepared.run, as_json=as_json, process=process, resumed=times)
