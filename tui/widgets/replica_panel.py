"""Shows the replicas: their devices, speed and memory, or why a figure is unknown.

Many replicas on several hosts get one row per host, with the chosen host's replicas below it.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from rich.cells import cell_len

from tpu_console.engine.runs.events import Replica, ReplicaMemory

from ..text.cells import BAR, BAR_LEFT, FAILED, NOW, WARNING, clipped, widest
from ..text.hosts import (
    LOST,
    Host,
    fullest,
    hosts_of,
    kinds_text,
    lost_text,
    mean_duty,
    no_batch,
    no_duty,
    no_memory,
    slow_text,
    topology_text,
)
from ..text.numbers import bar_cells, count, memory, percent
from ..text.tables import Column, fitting
from .rows_pane import LinesPane, Row, heat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpu_console.engine.runs.state import RunState


_LONGEST_BAR = 24
_SHORTEST_BAR = 8
_PEAK_FROM = 38  # cells for a bar and its figures, from which the peak memory is shown too
_ALERTS = 2
_NEARLY_FULL = 0.95


class ReplicaPanel(LinesPane):
    """One row per replica, or per host if there are many, followed by what is missing and why."""

    is_as_high_as_rows = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--warn"}
    DEFAULT_CSS = """
    ReplicaPanel {
        .rows--warn { color: $text-warning; text-style: bold; }
    }
    """

    def __init__(self) -> None:
        super().__init__("4 replicas", "replicas")
        self._state: RunState | None = None
        self._chosen = 0
        self._head: list[Row] = []

    def show(self, state: RunState) -> None:
        """Show the replicas of a state; redraws only if something about them changed."""
        old, self._state = self._state, state
        if old is None or any(one is not other for one, other in zip(_seen(old), _seen(state), strict=True)):
            self.rows_changed()

    def choose(self, process: int) -> None:
        """Show the replicas of another host, if rows are hosts."""
        self._chosen = process
        self.rows_changed()

    def notify_style_update(self) -> None:
        """Lay out again: the pane may have been entered or left."""
        super().notify_style_update()
        if self._state is not None:
            self.rows_changed()

    def head(self) -> list[Row]:
        """Return the topology, the lost and slow hosts, and the column names."""
        return self._head

    @property
    def _is_open(self) -> bool:
        """Whether there is room for more than a line per replica."""
        return not self.styles.height or not self.styles.height.is_auto

    def laid_out(self) -> list[Row]:
        """Return the replicas or hosts, and the remarks."""
        state, width = self._state, self.room
        if state is None or state.accelerator is None:
            self._head = []
            return [[("not connected yet", "faint")]]
        table = table_of(state, width, self._chosen)
        titles = "  ".join(column.cell(column.title) for column in table.columns)
        alerts = [(f"{FAILED} {lost_text(host.lost)}", "bad") for host in table.hosts if host.lost is not None]
        alerts += [(f"{WARNING} {slow_text(host)}", "warn") for host in table.hosts if host.behind]
        self._head = self._alert_rows(alerts)
        rows = [self._line_row(line, table.columns) for line in table.lines]
        if not self._is_open:
            return rows
        self._head.append([(f"  {titles}", "head")])
        if width >= TOPOLOGY_FROM:
            self._head.insert(0, [(clipped(topology_text(state.accelerator), self.room), "faint")])
        unsaid = [text for index, (text, _) in enumerate(alerts) if index >= _ALERTS or cell_len(text) > self.room]
        remarks = [line for text in [*unsaid, *table.remarks] for line in textwrap.wrap(text, max(16, width))]
        return rows + [[(line, "faint")] for line in remarks]

    def _alert_rows(self, said: Sequence[tuple[str, str]]) -> list[Row]:
        """Return two of them for the head, one per line; the others are counted there and listed below the rows."""
        rows: list[Row] = [[(clipped(text, self.room), look)] for text, look in said[:_ALERTS]]
        if len(said) > _ALERTS:
            last, look = said[_ALERTS - 1]
            more = f" (and {len(said) - _ALERTS} more)"
            rows[-1] = [(clipped(last, self.room - len(more)) + more, look)]
        return rows

    def _line_row(self, line: ReplicaLine, columns: Sequence[Column]) -> Row:
        sign, look = self._sign(line.host, is_host_row=isinstance(line.item, Host))
        row: list[tuple[str, str]] = [(f"{sign} ", look)]
        if not self._is_open:
            return row + self._short(line.item, line.figures, look)
        taken = 2
        for column in columns:
            text = line.cells.get(column.title, "")
            if column.title == _MEMORY:
                row += self._memory(text, line.figures.usage, self.room - taken)
                continue
            taken += column.width + 2
            row.append((f"{column.cell(text)}  ", look))
        return row

    def _short(self, item: Item, figures: Figures, look: str) -> list[tuple[str, str]]:
        """Return the load of a replica, or else its memory, as a bar, and its figures with their units."""
        usage, texts = figures.usage, figures.texts
        share = usage.duty_percent / 100 if usage is not None and usage.duty_percent is not None else None
        if share is None and usage is not None and usage.used_bytes is not None and usage.limit_bytes:
            share = usage.used_bytes / usage.limit_bytes
        name = f"host {item.process}" if isinstance(item, Host) else f"replica {item.index}"
        written = {_RATE: "{}/s", _DUTY: "duty {}", _MEMORY: "{}"}
        said = [form.format(texts[name]) for name, form in written.items() if texts[name]]
        if not said and isinstance(item, Replica):
            said = [short_device(item.device)]
        text = "  ".join(said)
        if share is None or len(name) + _SHORTEST_BAR + len(text) + 2 > self.room - _SIGN:
            return [(f"{name} ", look), (text, look if share is None else heat(share))]
        full = bar_cells(share, _SHORTEST_BAR)
        bar = [(BAR * full, heat(share)), (BAR_LEFT * (_SHORTEST_BAR - full), "faint")]
        return [(f"{name} ", look), *bar, (f" {text}", look)]

    def _sign(self, host: Host, *, is_host_row: bool) -> tuple[str, str]:
        if host.lost is not None:
            return FAILED, "bad"
        if host.behind:
            return WARNING, "warn"
        if is_host_row:
            return (NOW, "now") if host.process == self._chosen else (" ", "")
        return " ", ""

    def _memory(self, text: str, usage: ReplicaMemory | None, width: int) -> Row:
        if usage is None or usage.used_bytes is None or not usage.limit_bytes:
            return [(text, "faint")]
        if (
            usage.peak_bytes is not None
            and len(peak := f" peak {memory(usage.peak_bytes, None)}") <= width - _PEAK_FROM
        ):
            text += peak
        room = min(_LONGEST_BAR, width - len(text) - 1)
        share = usage.used_bytes / usage.limit_bytes
        look = "bad" if share > _NEARLY_FULL else heat(share)
        if room < _SHORTEST_BAR:
            return [(text, look if look == "bad" else "")]
        full = bar_cells(share, room)
        return [(BAR * full, look), (BAR_LEFT * (room - full), "faint"), (f" {text}", "")]


def _seen(state: RunState) -> tuple[object, ...]:
    """Return the parts of a state that the panel shows; compared by identity, because they may be large."""
    return (state.accelerator, state.memory, state.fit, state.hosts, state.lost, state.epochs, state.end)


GROUPED_FROM = 32
"""From this many replicas on, several hosts get one row each."""

TOPOLOGY_FROM = 60
"""From this width in cells on, the topology is above the rows instead of below them."""

Item: TypeAlias = Replica | Host

_SIGN = 2  # cells before each row
_BAR = 9  # cells of the shortest bar beside a figure
_BATCH, _RATE, _DUTY, _MEMORY = _FIGURES = ("batch", "examples/s", "duty", "memory")
_COLUMNS = (  # with the most cells that a text may take; those without any text are left out
    Column("#", 100, right=True),
    Column("device", 62, width=14),
    Column("kind", 30, width=20),
    Column("coords", 60, width=16),
    Column("core", 55, right=True),
    Column("host", 35, width=20),
    Column(_BATCH, 40, right=True),
    Column(_RATE, 80, right=True),
    Column(_DUTY, 65, right=True),
    Column(_MEMORY, 90),
)
_HOST_IF_SEVERAL = 75  # importance of a host's name


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one replica, or of one host's replicas, and what is missing."""

    texts: Mapping[str, str]  # each figure as text, by its column; empty if it is unknown
    whys: Mapping[str, str]  # why it is missing or incomplete, by its column; empty if it is complete
    usage: ReplicaMemory | None  # the memory that the bar shows

    def cell(self, name: str, notes: Mapping[str, str]) -> str:
        """Return a figure with the number of the reason if it is missing or incomplete."""
        text, why = self.texts[name], self.whys[name]
        return f"{text or 'n/a'} {notes[why]}" if why else text


@dataclass(frozen=True, slots=True)
class ReplicaLine:
    """One row: a replica, or a host with all of its replicas."""

    item: Item
    host: Host
    figures: Figures
    cells: Mapping[str, str]  # the text of each column; beside a missing figure, the number of the reason


@dataclass(frozen=True, slots=True)
class ReplicaTable:
    """The panel's content for one width."""

    hosts: Sequence[Host]
    lines: Sequence[ReplicaLine]
    columns: Sequence[Column]  # the visible columns
    remarks: Sequence[str]  # the lines below the rows


def table_of(state: RunState, width: int, chosen: int) -> ReplicaTable:
    """Lay out the replicas of a run with its devices connected; if there are too many, those of the chosen host."""
    replicas = state.accelerator.replicas if state.accelerator is not None else ()
    hosts = hosts_of(state)
    is_grouped = len(replicas) >= GROUPED_FROM and len(hosts) > 1
    usage = [figures_of(state, hosts, replica) for replica in replicas]
    known = [name for name in _FIGURES if any(figures.texts[name] for figures in usage)]
    partly = _reasons(usage, known)
    wholly = _reasons(usage, [name for name in _FIGURES if name not in known])
    notes = {why: f"({number})" for number, why in enumerate(partly, 1)}
    remarks = [f"{notes[why]} {', '.join(names)}: {why}" for why, names in partly.items()]
    remarks += [f"{', '.join(names)}: {why}" for why, names in wholly.items()]
    lines = []
    for item in _grouped(hosts, chosen) if is_grouped else replicas:
        host, figures = hosts[item.process], figures_of(state, hosts, item)
        cells = {name: figures.cell(name, notes) for name in known}
        lines.append(ReplicaLine(item, host, figures, _names(item, host) | cells))
    columns = _fitting(lines, len(hosts) > 1, width - _SIGN, _BAR)
    if not {*known} - {_BATCH} <= {column.title for column in columns}:
        # A figure is more useful than the bar beside another one.
        columns = _fitting(lines, len(hosts) > 1, width - _SIGN, 0)
    unseen = _unseen(state, list(hosts.values()), columns, width, is_grouped)
    return ReplicaTable(list(hosts.values()), lines, columns, [*unseen, *remarks])


def _fitting(lines: Sequence[ReplicaLine], has_hosts: bool, room: int, bar: int) -> list[Column]:
    """Return the columns for which there is room, each as wide as its widest text, and the memory with its bar."""
    columns = []
    for column in _COLUMNS:
        texts = [line.cells.get(column.title, "") for line in lines]
        if not any(texts) or (column.title == "core" and len({*texts} - {""}) == 1):
            continue
        longest = widest(texts)
        cells = longest + bar if column.title == _MEMORY else min(column.width or longest, longest)
        importance = _HOST_IF_SEVERAL if column.title == "host" and has_hosts else column.importance
        columns.append(replace(column, importance=importance, width=max(len(column.title), cells)))
    return fitting(columns, room) if columns else []  # before the run has connected there is none


def _names(item: Item, host: Host) -> dict[str, str]:
    """Return what a row is called; the word for what is wrong with a host comes first, so that it is never cut off."""
    word = "lost " if host.lost is not None else "slow " if host.behind else ""
    if isinstance(item, Host):
        kind = item.replicas[0].kind if item.replicas else ""
        names = {"device": f"host {item.process}", "kind": f"{len(item.replicas)} × {kind}"}
    else:
        names = {"#": str(item.index), "device": short_device(item.device), "kind": item.kind}
        names |= {"coords": item.coordinates, "core": "" if item.core is None else str(item.core)}
    return names | {"host": word + host.name}


def _reasons(usage: Sequence[Figures], names: Sequence[str]) -> dict[str, list[str]]:
    """Return the reasons for missing figures, each with the names of its rows."""
    reasons: dict[str, list[str]] = {}
    for name in names:
        for why in dict.fromkeys(figures.whys[name] for figures in usage):
            if why:
                reasons.setdefault(why, []).append("duty cycle" if name == _DUTY else name)
    return reasons


def _grouped(hosts: Mapping[int, Host], chosen: int) -> list[Item]:
    items: list[Item] = []
    for host in hosts.values():
        if host.replicas:
            items.append(host)
        if host.process == chosen:
            items += host.replicas
    return items


def _unseen(
    state: RunState, hosts: Sequence[Host], columns: Sequence[Column], width: int, is_grouped: bool
) -> list[str]:
    """Return what has no column or no room above, and explain what a host's row contains."""
    ready = state.accelerator
    if ready is None or not ready.replicas:
        return []
    shown = {column.title for column in columns}
    remarks = [] if {"kind", "host"} <= shown else [kinds_text(ready)]
    if width < max(TOPOLOGY_FROM, len(topology := topology_text(ready))):
        remarks.append(topology)
    if is_grouped:
        remarks.append("host rows: total examples/s, mean duty cycle, fullest memory")
        remarks.append("h: next host")
    elif len(hosts) > 1 and "host" not in shown:
        remarks.append("hosts: " + ", ".join(f"{host.process} {host.name}" for host in hosts))
    return remarks


def figures_of(state: RunState, hosts: Mapping[int, Host], item: Item) -> Figures:
    """Return the figures of a replica, or of all replicas of a host."""
    replica_batch = state.fit.replica_batch if state.fit is not None else None
    batch = count(replica_batch) if replica_batch else ""
    if isinstance(item, Host):
        host, rate = item, item.examples_per_s
        usages = [usage for replica in item.replicas if (usage := _usage(state, host, replica)) is not None]
        one = next(iter(usages), None)
        usage, duty = fullest(usages) or one, mean_duty(usages)
        why_duty = no_duty(state, one) if duty is None else ""
    else:
        host = hosts[item.process]
        rate, usage = host.examples_a_replica, _usage(state, host, item)
        duty, why_duty = usage.duty_percent if usage is not None else None, no_duty(state, usage)
    why_memory = no_memory(state, usage)
    if host.lost is not None:
        why_duty = why_memory = LOST
    used, limit = (None, None) if usage is None else (usage.used_bytes, usage.limit_bytes)
    unknown = "?/" if used is None and limit is not None else ""
    texts = {_BATCH: batch, _RATE: count(rate), _DUTY: percent(duty), _MEMORY: unknown + memory(used, limit)}
    whys = {_BATCH: no_batch(state), _RATE: host.why_not, _DUTY: why_duty, _MEMORY: why_memory}
    return Figures(texts, whys, usage)


def _usage(state: RunState, host: Host, replica: Replica) -> ReplicaMemory | None:
    """Return the last memory figures of a replica; those of a lost host are out of date and not shown."""
    return state.memory.get(replica.index) if host.lost is None else None


def short_device(device: str) -> str:
    """Remove the prefix of every device's name: ``/device:GPU:0`` becomes ``GPU:0``."""
    return device.rpartition("device:")[2] or device
