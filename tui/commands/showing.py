"""`tpu-console show`: everything about one run."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.sanitize import printable

from ..terminal.output import say, say_json
from .options import examples, json_option, run_argument

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.runs.events import AcceleratorReady
    from tpu_console.engine.runs.state import RunState
    from tpu_console.presets.catalog import Preset

    from ..following.overview import Details

_MISTAKES = 5
_MOST_DEVICES = 32


@click.command(
    epilog=examples(
        "tpu-console show",
        "tpu-console show 20261120-133100-digits-cnn",
        "tpu-console show --json | jq '.epoch_records[-1]'",
    )
)
@run_argument
@json_option("Print a JSON object.")
def show(name: str | None, as_json: bool) -> int:
    """Show everything about RUN, by default the newest.

    Prints its settings, machine, times, epochs, class scores and files, and the error if it failed.
    """
    from tpu_console.engine.runs.run_directory import find_run

    from ..following.overview import read_details

    overview = read_details(find_run(name))
    config = overview.config()
    if as_json:
        say_json(_as_dict(overview, config))
    else:
        say(_sections(overview, config))
    return 0


def _sections(overview: Details, config: RunConfig | None) -> list[str]:
    from ..text.steering import steered_text

    sections = {
        "": _headline(overview),
        "Settings": _settings(config) if config is not None else _hyperparameters(overview),
        "Machine": _machine(overview),
        "Time": _times(overview),
        "Epochs": _epochs(overview),
        "Classes": _classes(overview),
        "Steering": [f"  {steered_text(event)}" for event in overview.state.steered],
        "Alerts": [f"  epoch {alert.epoch}: {alert.message}" for alert in overview.state.alerts],
        "Notes": [f"  {notice}" for notice in overview.state.notices],
        "Files": _files(overview),
        "Failure": _failure(overview),
    }
    lines: list[str] = []
    for title, body in sections.items():
        if body:
            lines += [*([""] if lines else []), *([title] if title else []), *body]
    return lines


def _headline(overview: Details) -> list[str]:
    from tpu_console.engine.runs.events import RunFinished

    from ..text.mirror import mirror_text
    from ..text.numbers import duration, waiting_text
    from ..text.outcome import best_text
    from ..text.run_lines import efficiency_line
    from ..text.steering import budget_text
    from ..text.tables import fields

    state, seconds = overview.state, overview.seconds()
    reason = f": {state.end.reason}" if isinstance(state.end, RunFinished) and state.end.reason else ""
    pairs = [("state", overview.remark or f"{overview.status}{reason}"), ("preset", overview.label)]
    written = overview.annotations
    archived = " (archived)" if written.archived else ""
    pairs += [
        (name, text)
        for name, text in (("title", written.title), ("tags", " ".join(written.tags)), ("note", written.note))
        if text
    ]
    if overview.status.is_live and (waiting := overview.life.waiting) is not None:
        pairs.append(("disk", waiting_text(waiting)))
    if overview.started is not None and seconds is not None:
        pairs.append(("started", f"{overview.started:%Y-%m-%d %H:%M:%S}, {duration(seconds)}"))
    if state.fit is not None:
        pairs.append(("epochs", f"{overview.epochs_done} of {state.fit.epochs}"))
    if state.budget is not None and overview.status.is_live:
        pairs.append(("budget", budget_text(state.budget, time.time())))
    if mirror := mirror_text(state):
        pairs.append(("mirror", f"{mirror}\n{state.mirror.place}" if state.mirror is not None else ""))
    if best := best_text(state):
        pairs.append(("best", best))
    if efficiency := efficiency_line(state):
        pairs.append(("efficiency", efficiency))
    return [f"{overview.run.run_id}{archived}", *fields(pairs)]


def _hyperparameters(overview: Details) -> list[str]:
    """List what a notebook or script passed as `config`."""
    from ..text.tables import fields

    started = overview.state.started
    return fields([(str(name), str(value)) for name, value in started.config.items()] if started is not None else [])


def _settings(config: RunConfig) -> list[str]:
    """List what differs from the preset, and the command that repeats the run."""
    from tpu_console.engine.config.run_command import run_command
    from tpu_console.engine.config.run_config import to_toml, without_secrets

    from ..text.settings import settings_of
    from ..text.tables import fields

    preset = _preset(config.name)
    if preset is None:
        text = to_toml(without_secrets(config))
        return [f"  The preset '{config.name}' no longer exists; all settings:", *_indented(text)]
    is_same_webhook = config.alerts.webhook == preset.config.alerts.webhook
    shown = config if is_same_webhook else without_secrets(config)
    changed = [(one.key, one.text) for one in settings_of(config, preset.config) if one.preset is not None]
    return [
        *(fields(changed) if changed else [f"  same as the preset {preset.name}"]),
        f"  repeat: {run_command(shown, preset.config, preset.name)}",
    ]


def _indented(text: str) -> list[str]:
    return [f"    {line}".rstrip() for line in text.splitlines()]


def _preset(name: str) -> Preset | None:
    from .preset_choice import chosen_preset

    try:
        return chosen_preset(name)
    except ConsoleError:
        return None


def _machine(overview: Details) -> list[str]:
    from ..text.hosts import input_verdict, topology_text
    from ..text.run_lines import found, settled, trained_by
    from ..text.tables import fields

    state, pairs = overview.state, []
    if state.started is not None:
        pairs.append(("trained by", trained_by(state.started)))
    if state.accelerator is not None:
        pairs += [
            ("accelerator", found("connecting", state)),
            ("backend", topology_text(state.accelerator)),
            ("devices", "\n".join(_devices(state.accelerator))),
        ]
    pairs += _hosts(state)
    if state.input is not None:
        pairs.append(("input", input_verdict(state.input)))
    if state.data is not None:
        pairs.append(("data", found("loading data", state)))
    if state.model is not None:
        pairs.append(("model", found("building", state)))
    if state.fit is not None:
        pairs.append(("training", settled(state.fit)))
    return fields(pairs)


def _devices(ready: AcceleratorReady) -> list[str]:
    """List the devices, or the hosts if there are too many devices."""
    if len(ready.replicas) <= _MOST_DEVICES:
        return [f"{r.index}: {r.kind}, {r.device}" + (f" at {r.coordinates}" if r.coordinates else "")
                for r in ready.replicas]  # fmt: skip
    hosts = Counter((r.process, r.host, r.kind) for r in ready.replicas)
    return [f"host {process} ({host}): {count} × {kind}" for (process, host, kind), count in hosts.items()]


def _hosts(state: RunState) -> list[tuple[str, str]]:
    """List the lost and slow hosts, and the last figures of each."""
    from ..text.gauges import gauges_of
    from ..text.hosts import hosts_of, lost_text, slow_text

    hosts = hosts_of(state)
    pairs = [("lost", lost_text(event)) for event in state.lost]
    pairs += [("slow", slow_text(host)) for host in hosts.values() if host.behind]
    lines = []
    for process in state.hosts:
        figures = [gauge for gauge in gauges_of(state, process) if gauge.metric != "wait_percent"]
        text = ", ".join(f"{gauge.name} {gauge.value or f'n/a ({gauge.why_not})'}" for gauge in figures)
        lines.append(f"{hosts[process].name}: {text}")
    return [*pairs, *([("hosts", "\n".join(lines))] if lines else [])]


def _times(overview: Details) -> list[str]:
    from ..text.numbers import duration
    from ..text.tables import fields

    spent = overview.state.phase_s
    longest = max((len(duration(seconds)) for seconds in spent.values()), default=0)
    return fields([(phase, duration(seconds).rjust(longest)) for phase, seconds in spent.items()])


def _epochs(overview: Details) -> list[str]:
    from tpu_console.engine.runs.plausible import MOST_METRICS
    from tpu_console.engine.runs.state import best_epoch

    from ..text.numbers import duration, metric
    from ..text.tables import Column, table

    state = overview.state
    if not state.epochs:
        return []
    names = list(dict.fromkeys(name for epoch in state.epochs for name in epoch.logs))[: 2 * MOST_METRICS]
    best = best_epoch(state.epochs, state.monitor)
    titles = ["epoch", "time", "compiling", "validating", "ms/step", "examples/s", "lr", *names]
    rows = [
        [
            str(epoch.epoch),
            duration(epoch.seconds),
            duration(epoch.compile_s) if epoch.compile_s else "–",
            duration(epoch.validation_s) if epoch.validation_s else "–",
            "–" if epoch.step_ms is None else f"{epoch.step_ms:.1f}",
            "–" if epoch.examples_per_s is None else f"{epoch.examples_per_s:,.0f}",
            "–" if epoch.learning_rate is None else f"{epoch.learning_rate:.1e}",
            *(metric(epoch.logs[name]) if name in epoch.logs else "–" for name in names),
            "★" if epoch is best else "",
        ]
        for epoch in state.epochs
    ]
    columns = [Column(title, 0, right=True) for title in titles]
    return [f"  {line}" for line in table([*columns, Column("", 0)], rows, None)]


def _classes(overview: Details) -> list[str]:
    """Show the class scores and confusions that fit on a terminal."""
    from tpu_console.engine.runs.class_report import read_report

    from ..terminal.output import width_of_output
    from ..text.confusion import headline, matrix_lines, mistake_text, score_lines

    try:
        report = read_report(overview.run)
    except ConsoleError as error:
        return [f"  {error.what}"]
    if report is None:
        return []
    width = width_of_output()
    room = None if width is None else width - 2
    blocks = [
        block
        for output in report.of_outputs
        for block in (
            [headline(output)],
            score_lines(output, room),
            matrix_lines(output, room),
            [mistake_text(one) for one in output.mistakes[:_MISTAKES]],
        )
    ]
    lines: list[str] = []
    for block in blocks:
        if block:
            lines += [*([""] if lines else []), *(f"  {line}" for line in block)]
    return lines


def _files(overview: Details) -> list[str]:
    from tpu_console.engine.storage.paths import user_path

    from ..text.run_lines import output_pairs
    from ..text.tables import fields

    return fields([("folder", user_path(overview.run.path)), *output_pairs(overview.run)])


def _failure(overview: Details) -> list[str]:
    from tpu_console.engine.runs.events import RunFailed
    from tpu_console.engine.runs.follower import LogTail

    from ..following.overview import Status
    from ..text.run_lines import crashed_lines, failed_lines

    if isinstance(overview.state.end, RunFailed):
        lines = failed_lines(overview.state.end, overview.run)
    elif overview.status is Status.CRASHED:
        lines = crashed_lines(overview.run, LogTail(overview.run).read())
    else:
        return []
    return [f"  {line.removeprefix('Error: ')}" for line in lines]


def _as_dict(overview: Details, config: RunConfig | None) -> dict[str, Any]:
    from dataclasses import asdict

    from tpu_console.engine.config.run_config import journal_values
    from tpu_console.engine.preflight.efficiency import efficiency_of
    from tpu_console.engine.runs.class_report import read_report

    from ..text.run_lines import output_places

    try:
        report = read_report(overview.run)
    except ConsoleError:
        report = None
    state = overview.state
    parts = {
        "machine": state.accelerator,
        "data": state.data,
        "model": state.model,
        "fit": state.fit,
        "input": state.input,
        "budget": state.budget,
        "mirror": state.mirror,
        "end": state.end,
    }
    return {
        **overview.as_dict(),
        "config": journal_values(config) if config is not None else None,
        **{name: _plain(asdict(part)) if part is not None else None for name, part in parts.items()},
        "hosts": [_plain(asdict(sampled)) for sampled in state.hosts.values()],
        "steered": [_plain(asdict(event)) for event in state.steered],
        "alerts": [_plain(asdict(alert)) for alert in state.alerts],
        "lost": [_plain(asdict(event)) for event in state.lost],
        "phase_seconds": dict(state.phase_s),
        "efficiency": _plain(asdict(efficiency)) if (efficiency := efficiency_of(state)) else None,
        "epoch_records": [_plain(asdict(epoch)) for epoch in state.epochs],
        "classes": report.as_dict() if report is not None else None,
        "notices": list(state.notices),
        "files": {name: printable(str(path)) for name, path in output_places(overview.run).items()},
    }


def _plain(value: Any) -> Any:
    """Spell out the numbers that JSON cannot hold, as the journal does."""
    from math import isfinite

    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
