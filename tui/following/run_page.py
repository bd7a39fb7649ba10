"""Everything about one run, for `tpu-console runs show`: as lines, and as plain values."""

import time
from collections import Counter
from typing import Any

from msgspec.structs import replace

from tpu_console.engine.config.reading import run_command
from tpu_console.engine.config.run_config import RunConfig, journal_values, to_toml, without_secrets
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.preflight.likely import efficiency_of
from tpu_console.engine.runs.class_report import ClassReport, read_report
from tpu_console.engine.runs.events import RunFailed, RunFinished
from tpu_console.engine.runs.follower import LogTail
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.sanitize import MOST_METRICS, printable
from tpu_console.engine.storage.paths import user_path

from ..text.confusion import MISTAKES, headline, matrix_lines, mistake_text, score_lines
from ..text.hosts import WAITS, account_of, gauges_of, hosts_of, lost_text, slow_text, topology_text
from ..text.names import Status
from ..text.numbers import duration, waiting_text
from ..text.outcome import best_text, crashed_lines, efficiency_line, failed_lines, output_pairs, output_places
from ..text.profile import compilation_lines
from ..text.run_lines import budget_text, epoch_columns, found, mirror_text, settled, steered_text, trained_by
from ..text.tables import BEST, Column, as_lines, as_values, fields, filled, for_json, paragraphs
from .overview import Overview, preset_named, settings_of

_MOST_DEVICES, _MOST_MISTAKES = 32, 5
# How a page writes columns of epochs, for which it has more room than a screen.
_IN_FULL: dict[str, dict[str, Any]] = {
    "compile_s": {"title": "compiling"},
    "step_ms": {"text": "{:.1f}".format},
    "learning_rate": {"text": "{:.1e}".format},
}


def page(overview: Overview, width: int | None) -> list[str]:
    """Return the lines about a run; its class scores fit a width in cells, if there is one."""
    run, state, config = overview.run, overview.state, overview.config()
    longest = max((len(duration(seconds)) for seconds in state.phase_s.values()), default=0)
    # What a notebook or script passed as `config`.
    passed = [(str(name), str(value)) for name, value in (state.started.config if state.started else {}).items()]
    failure = failed_lines(state.end, run) if isinstance(state.end, RunFailed) else []
    if overview.status is Status.CRASHED:
        failure = crashed_lines(run, LogTail(run).read())
    metrics = list(dict.fromkeys(name for epoch in state.epochs for name in epoch.logs))[: 2 * MOST_METRICS]
    columns = [replace(column, **_IN_FULL.get(column.key, {})) for column in epoch_columns(metrics)]
    best = state.best_epoch()
    columns.append(Column("", 0, value=lambda epoch: BEST * (epoch is best)))
    epochs = as_lines(columns, state.epochs, None) if state.epochs else []
    sections = {
        "": [f"{run.run_id}{' (archived)' if overview.annotations.archived else ''}", *fields(_head(overview))],
        "Settings": _settings(config) if config is not None else fields(passed),
        "Machine": fields(_machine(overview)),
        "Time": fields([(phase, duration(seconds).rjust(longest)) for phase, seconds in state.phase_s.items()]),
        "Compilations": [f"  {line}" for line in compilation_lines(state.compiled, width)],
        "Epochs": [f"  {line}" for line in epochs],
        "Classes": _classes(run, width),
        "Steering": [f"  {steered_text(event)}" for event in state.steered],
        "Alerts": [f"  epoch {alert.epoch}: {alert.message if state.end else alert.text}" for alert in state.alerts],
        "Notes": [f"  {notice}" for notice in state.notices],
        "Files": fields([("folder", user_path(run.path)), *output_pairs(run)]),
        "Failure": [f"  {line}" for line in failure],
    }
    return paragraphs([*([title] if title else []), *lines] for title, lines in sections.items() if lines)


def plain_values(overview: Overview) -> dict[str, Any]:
    """Return everything about a run as plain values, as ``--json`` prints them."""
    state, config = overview.state, overview.config()
    report, _ = _report(overview.run)
    return {
        **overview.as_dict(),
        "config": journal_values(config) if config is not None else None,
        "machine": for_json(state.accelerator),
        **as_values(state, "data", "model", "fit", "input", "budget", "mirror", "end"),
        "efficiency": for_json(efficiency_of(state)),
        "hosts": for_json([*state.hosts.values()]),
        **as_values(state, "steered", "alerts", "compiled", "profiled", "lost"),
        "epoch_records": for_json([*state.epochs]),
        "phase_seconds": dict(state.phase_s),
        "classes": report.as_dict() if report is not None else None,
        "notices": list(state.notices),
        "files": {name: printable(str(path)) for name, path in output_places(overview.run).items()},
    }


def _report(run: RunDirectory) -> tuple[ClassReport | None, str]:
    """Return a run's class scores, or why they cannot be read."""
    try:
        return read_report(run), ""
    except ConsoleError as error:
        return None, error.what


def _head(overview: Overview) -> list[tuple[str, str]]:
    state, written, seconds = overview.state, overview.annotations, overview.seconds()
    reason = f": {state.end.reason}" if isinstance(state.end, RunFinished) and state.end.reason else ""
    reason += "; the loss is NaN" if overview.is_broken else ""
    pairs = [("state", overview.remark or f"{overview.status}{reason}"), ("preset", overview.facts.label)]
    pairs += [("title", written.title), ("tags", " ".join(written.tags)), ("note", written.note)]
    if overview.status.is_live and (waiting := overview.life.waiting) is not None:
        pairs.append(("disk", waiting_text(waiting)))
    if seconds is not None:
        pairs.append(("started", f"{overview.started:%Y-%m-%d %H:%M:%S}, {duration(seconds)}"))
    if state.fit is not None:
        pairs.append(("epochs", f"{overview.facts.epochs_done} of {state.fit.epochs}"))
    if state.budget is not None and overview.status.is_live:
        pairs.append(("budget", budget_text(state.budget, time.time())))
    if state.mirror is not None:
        pairs.append(("mirror", f"{mirror_text(state)}\n{state.mirror.place}"))
    pairs += [("best", best_text(state)), ("efficiency", efficiency_line(state))]
    return [*pairs[:2], *filled(pairs[2:])]


def _settings(config: RunConfig) -> list[str]:
    """List what differs from the preset, and the command that repeats the run."""
    if (preset := preset_named(config.name)) is None:
        values = [f"    {line}".rstrip() for line in to_toml(without_secrets(config)).splitlines()]
        return [f"  Preset '{config.name}' not found; showing all settings:", *values]
    is_same_webhook = config.alerts.webhook == preset.config.alerts.webhook
    shown = config if is_same_webhook else without_secrets(config)
    changed = [(one.key, one.text) for one in settings_of(config, preset.config) if one.preset is not None]
    same = [] if changed else [f"  same as the preset {preset.name}"]
    return [*fields(changed), *same, f"  repeat: {run_command(shown, preset.config, preset.name)}"]


def _machine(overview: Overview) -> list[tuple[str, str]]:
    """Say what trained the run, on which devices and hosts, where its time went, and what it found."""
    state, hosts, pairs = overview.state, hosts_of(overview.state), []
    if state.started is not None:
        pairs.append(("trained by", trained_by(state.started)))
    if (ready := state.accelerator) is not None:
        devices = [f"{r.index}: {r.kind}, {r.device}" + (f" at {r.coordinates}" if r.coordinates else "")
                   for r in ready.replicas]  # fmt: skip
        if len(devices) > _MOST_DEVICES:
            counts = Counter((r.process, r.host, r.kind) for r in ready.replicas)
            devices = [f"host {process} ({host}): {n} × {kind}" for (process, host, kind), n in counts.items()]
        pairs += [("accelerator", found("connecting", state)), ("backend", topology_text(ready))]
        pairs.append(("devices", "\n".join(devices)))
    pairs += [("lost", lost_text(event)) for event in state.lost]
    pairs += [("slow", slow_text(host)) for host in hosts.values() if host.behind]
    lines = []
    for process in state.hosts:
        figures = [gauge for gauge in gauges_of(state, process) if gauge.metric != WAITS]
        text = ", ".join(f"{gauge.name} {gauge.value or f'n/a ({gauge.why_not})'}" for gauge in figures)
        lines.append(f"{hosts[process].name}: {text}")
    pairs += [("hosts", "\n".join(lines)), ("time", "\n".join(account_of(state)))]
    pairs += [("data", found("loading data", state)), ("model", found("building", state))]
    pairs.append(("training", settled(state.fit) if state.fit is not None else ""))
    return filled(pairs)


def _classes(run: RunDirectory, width: int | None) -> list[str]:
    """Show the class scores and confusions that fit a width."""
    report, problem = _report(run)
    if report is None:
        return [f"  {problem}"] if problem else []
    room, blocks = None if width is None else width - 2, list[list[str]]()
    for output in report.of_outputs:
        mistakes = [MISTAKES, *map(mistake_text, output.mistakes[:_MOST_MISTAKES])] if output.mistakes else []
        blocks += [[headline(output)], score_lines(output, room), matrix_lines(output, room), mistakes]
    return paragraphs([f"  {line}" for line in block] for block in blocks)
