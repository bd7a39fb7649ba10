"""`tpu-console run`, `resume` and `runs mirror`: start a run, go on with one, and copy one."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from tpu_console.engine.errors import ConfigError, Problem, Severity
from tpu_console.engine.machine.devices import detect_hardware
from tpu_console.engine.runs.heartbeat import Liveness
from tpu_console.engine.runs.run_directory import RunDirectory, RunningError, find_run, newest_run_named
from tpu_console.engine.storage.paths import user_path, with_keras_home

from ..jobs.job_process import run_job
from ..jobs.run_process import HostedRun, InProcessRun, launch, train_here
from ..terminal.output import complain, say, width_of_output
from ..text.tables import labelled, wrapped
from .options import (
    chosen_preset,
    command,
    option,
    parsed,
    preset_argument,
    preset_file_option,
    run_argument,
    run_job_with_trust,
    training_options,
    trust_option,
    with_trust,
)

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.presets.catalog import Preset

_LIFE_S = 15.0


class How(Struct, frozen=True):
    """How a run is hosted and shown."""

    detach: bool  # whether it starts in the background
    in_process: bool  # whether it trains in this process
    as_json: bool  # whether its events are printed instead of lines

    @classmethod
    def of(cls, options: dict[str, Any]) -> How:
        """Take these from a command's options; refuse to train both in the background and in this process."""
        how = cls(**{name: options.pop(name) for name in ("detach", "in_process", "as_json")})
        if how.detach and how.in_process:
            raise click.UsageError("--detach starts a separate process; --in-process starts none.")
        return how


@command(
    "tpu-console run digits-cnn",
    "tpu-console run ./photos",
    "tpu-console run digits-cnn --epochs 5 --set optimizer.learning_rate=0.001",
    "tpu-console run ./mine.toml --accelerator sim:8",
    "tpu-console run ./mine.toml --accelerator tpu",
    "tpu-console run fashion-mnist-cnn --detach",
    "tpu-console run ./mine.toml --budget kaggle",
    "tpu-console run digits-cnn --json > events.jsonl",
    "tpu-console run digits-cnn --resume-if-exists my-run",
    "",
    "On two machines, the first at 10.0.0.1:",
    "tpu-console run mine.toml --hosts 2 --host-index 0 --coordinator 10.0.0.1",
    "tpu-console run mine.toml --hosts 2 --host-index 1 --coordinator 10.0.0.1",
)
@preset_argument
@training_options
@option("--hosts N", "Number of machines. [default: from the TPU pod, else 1]", "hosts__count", type=int)
@option("--host-index I", "Index of this machine, from 0.", "hosts__index", type=int)
@option("--coordinator ADDR", "ADDRESS[:PORT] of host 0; the same on all machines.", "hosts__coordinator")
@preset_file_option
@option(
    "--resume-if-exists NAME",
    "Name the run; if a run of that name is here or at the mirror, resume it, or watch it if it is training.",
    "resumed_name",
)
def run(preset: str, assignments: Sequence[str], preset_files: Sequence[Path], **options: Any) -> int:
    """Train a preset, or your own data, and print plain lines.

    PRESET is a preset's name (see `tpu-console presets`) or a preset file. DATA is a file or folder of yours, such as
    ./photos: its format is detected and the settings are chosen.

    The run trains in its own process. Ctrl-C stops it and saves the model; a second Ctrl-C kills it. If the terminal
    closes, the run continues: `tpu-console attach` comes back to it. With --in-process, it ends with this command.
    """
    from tpu_console.engine.config.reading import with_changes

    how, resumed_name = How.of(options), options.pop("resumed_name")
    given = [(name.replace("__", "."), value) for name, value in options.items() if value is not None]
    if resumed_name is not None:
        given.append(("name", resumed_name))
    chosen = chosen_preset(preset, preset_files, assignments)
    config = with_changes(chosen.config, [*parsed(assignments), *given])
    if resumed_name is not None:
        config = config.model_copy(update={"name": chosen.config.name})  # the name is the folder's, not the preset's
        if (code := _resumed(resumed_name, config, how)) is not None:
            return code
    plan = _checked_plan(config, chosen)
    say([] if how.as_json else plan)
    return _watched(launch(config, in_process=how.in_process, label=resumed_name or ""), how)


def _resumed(name: str, config: RunConfig, how: How) -> int | None:
    """Resume the run with a name, here or at the mirror; watch it if it is training. Return None without such a run."""
    from tpu_console.engine.config.user_code import note_start
    from tpu_console.engine.process.launch import FinishedError

    from ..following.follow import FINISHED, follow

    run, changes = newest_run_named(name), []
    if run is None and config.mirror:
        run, changes = _fetched(config.mirror, name, how), [("mirror", config.mirror)]
    if run is None:
        return None
    with suppress(OSError):  # which starting it would report
        note_start(config)  # the user has just named it
    try:
        return _resume(run, changes, how)
    except RunningError:
        return FINISHED if how.detach else follow(run, as_json=how.as_json)
    except FinishedError as finished:
        say([] if how.as_json else [finished.what])
        return FINISHED


def _checked_plan(config: RunConfig, preset: Preset) -> list[str]:
    """Return the plan's lines; raise `ConfigError` if the run would fail, with the source of the files it misses."""
    from tpu_console.engine.planning import make_plan

    from ..text.plan_text import plan_lines

    plan = make_plan(config, detect_hardware())
    refused = [item for item in plan.advice if item.severity is Severity.ERROR]
    errors = [Problem("", item.text) for item in refused]
    is_same_data = (config.dataset, config.data.options) == (preset.config.dataset, preset.config.data.options)
    if is_same_data and preset.about.data and any(item.key == "data.options.path" for item in refused):
        errors.append(Problem("", f"The data of {preset.name}: {with_keras_home(preset.about.data)}."))
    if errors:
        raise ConfigError(errors)
    width = width_of_output() or sys.maxsize
    notes = [line for label, text in preset.notes for line in wrapped(label, text, width)]
    return [*notes, *plan_lines(config, plan)[bool(notes) :]]


@command(
    "tpu-console resume",
    "tpu-console resume 20261120-133100-digits-cnn",
    "tpu-console resume digits --epochs 40",
    "tpu-console resume gs://bucket/runs/20261120-133100-digits-cnn",
    "tpu-console resume digits --accelerator cpu --set optimizer.learning_rate=0.0005",
)
@run_argument
@training_options
def resume(name: str | None, assignments: tuple[str, ...], **options: Any) -> int:
    """Continue a RUN that ended early, by default the newest.

    It goes on from its newest whole checkpoint, in the same folder and with the same curves, and ends as if it had
    never been interrupted. Settings can change, except the model and the optimizer.

    RUN may be the run's folder at its mirror, such as gs://bucket/runs/RUN. It is copied here first.

    A run that you did not start on this machine may name code, addresses and files. It goes on only with --trust, or if
    you confirm on a terminal; see SECURITY.md.
    """
    from tpu_console.engine.mirror.places import is_at_mirror

    how = How.of(options)
    changes = [*parsed(assignments), *((key, value) for key, value in options.items() if value is not None)]
    run = None
    if name is not None and is_at_mirror(name):
        place = name if "://" in name else str(Path(name).expanduser().absolute())
        changes.insert(0, ("mirror", place.rstrip("/").rpartition("/")[0]))
        run = _fetched(place, "", how)
    return _resume(run or find_run(name), changes, how)


@command("tpu-console runs mirror", "tpu-console runs mirror digits", done="everything is copied", failed="it is not")
@run_argument
@trust_option
def mirror(name: str | None) -> int:
    """Copy RUN to its mirror, by default the newest.

    This is for a run that ended while the mirror was away. While a run trains, it is copied by itself: set `mirror`
    to a folder or bucket.
    """
    run = find_run(name)
    if (copied := run_job_with_trust("mirror", {"run": str(run.path)}, "Not everything was copied.")) is None:
        return 1
    say([f"{run.run_id} is complete at {copied['place']}"])
    return 0


def _fetched(place: str, label: str, how: How) -> RunDirectory | None:
    """Copy a run from its folder at the mirror, unless it is here; with a label, the mirror's newest such run."""
    found = run_job("fetch", {"place": place, "label": label}, "Nothing was copied.")
    if "run" not in found:
        return None
    run = RunDirectory(Path(found["run"]))
    if not how.as_json:
        say([labelled("mirror", found["place"]), labelled("here", user_path(run.path))])
    return run


def _resume(run: RunDirectory, changes: Sequence[tuple[str, Any]], how: How) -> int:
    """Say what changes, and resume a run; watch it, or return once it trains."""
    from tpu_console.engine.process.launch import prepare_resumption

    from ..following.follow import FAILED

    if (prepared := with_trust(lambda trust: prepare_resumption(run, changes, trust=trust))) is None:
        return FAILED
    if not how.as_json:
        say([labelled("changed" if not number else "", change) for number, change in enumerate(prepared.changes)])
    if not how.in_process:
        return _watched(HostedRun(prepared.run, prepared.start()), how, resumed=prepared.earlier + 1)
    prepared.make_ready()
    hosted = train_here(prepared.run, prepared.config, prepared.checkpoint)
    return _watched(hosted, how, resumed=prepared.earlier + 1)


def _watched(hosted: HostedRun | InProcessRun, how: How, resumed: int = 0) -> int:
    """Follow a run until it ends, or a detached one until it begins; return the exit code. `resumed` as in `follow`."""
    from tpu_console.engine.runs.follower import LogTail

    from ..following.follow import FAILED, follow, wait_for_life
    from ..text.outcome import crashed_lines

    run = hosted.run
    if not how.detach or isinstance(hosted, InProcessRun):
        code = follow(run, as_json=how.as_json, kill=hosted.kill, resumed=resumed)
        hosted.release()
        return code
    life = wait_for_life(run, _LIFE_S, resumed=resumed)
    if life is Liveness.DEAD:
        what, *lines = crashed_lines(run, LogTail(run).read())
        complain([f"Error: {what}", *lines])
        return FAILED
    if how.as_json:
        say([json.dumps({"run": run.run_id, "path": str(run.path), "pid": hosted.process.pid})])
        return 0
    waits = "" if life is Liveness.ALIVE else "; waiting for the first heartbeat:"
    say([f"{'Resumed' if resumed else 'Started'}{waits} {run.run_id}",
         labelled("watch", f"tpu-console attach {run.run_id}"),
         labelled("stop", f"tpu-console stop {run.run_id}")])  # fmt: skip
    return 0
