"""Shows the replicas: their devices, speed and memory, or why a figure is missing."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len

from tpu_console.engine.runs.events import Replica, ReplicaMemory
from tpu_console.engine.runs.state import RunState

from ..text import hosts as host_text
from ..text.numbers import NONE, bar_cells, count, memory, percent
from ..text.tables import BAR, BAR_LEFT, FAILED, NOW, WARNING, Column, clipped, fitting, widest
from .basics import HostPane, Row, heat

GROUPED_FROM = 32  # replicas, from which on several hosts get one row each
_SHORTEST_BAR, _LONGEST_BAR = 8, 24
_ALERTS = 2  # that are shown above the rows
_NEARLY_FULL = 0.95
_SIGN = 2  # cells before each row
_BATCH, _RATE, _DUTY, _MEMORY = _FIGURES = ("batch", "examples/s", "duty", "memory")
_COLUMNS = (  # with the most cells that a text may take; columns without any text are dropped
    Column("#", 100, right=True),
    Column("device", 62, width=14),
    Column("kind", 30, width=20),
    Column("coords", 60, width=16),
    Column("core", 55, right=True),
    Column("host", 75, width=20),
    Column(_BATCH, 40, right=True),
    Column(_RATE, 80, right=True),
    Column(_DUTY, 65, right=True),
    Column("peak", 20),
    Column(_MEMORY, 90),
)
_BAR_COLUMN = Column("", 35, width=_SHORTEST_BAR)  # room for the bar of the memory


class ReplicaLine(Struct, frozen=True):
    """One row: a replica, or a host with all of its replicas."""

    host: host_text.Host
    cells: Mapping[str, str]  # the text of each column
    whys: Mapping[str, str]  # why a figure is missing, by its column; empty if it is not
    usage: ReplicaMemory | None  # what the bar shows
    is_host: bool = False


class ReplicaTable(NamedTuple):
    """The panel's content for one width."""

    lines: Sequence[ReplicaLine] = ()
    columns: Sequence[Column] = ()  # those for which there is room
    remarks: Sequence[str] = ()  # what stands below the rows


class ReplicaPanel(HostPane["RunState"]):
    """One row per replica, or per host if there are many, followed by what is missing and why."""

    is_as_high_as_rows = True

    _head: Sequence[Row] = ()

    def notify_style_update(self) -> None:
        """Lay out again: the pane may have been entered or left."""
        super().notify_style_update()
        if self.shown is not None:
            self.rows_changed()

    def head(self) -> Sequence[Row]:
        """Return the lost and slow hosts, and the column names."""
        return self._head

    def laid_out(self, shown: RunState) -> list[Row]:
        """Return the replicas or hosts, and, if there is room for more than a line per replica, the remarks."""
        width, self._head = self.room, ()
        if shown.accelerator is None:
            return [[("not connected yet", "faint")]]
        table = table_of(shown, width, self.chosen)
        hosts = {line.host.process: line.host for line in table.lines}.values()
        alerts = [(f"{FAILED} {host_text.lost_text(host.lost)}", "bad") for host in hosts if host.lost is not None]
        alerts += [(f"{WARNING} {host_text.slow_text(host)}", "warn") for host in hosts if host.behind]
        self._head = [[(clipped(text, width), look)] for text, look in alerts[:_ALERTS]]
        if self.styles.height and self.styles.height.is_auto:
            return [self._short(line) for line in table.lines]
        titles = "  ".join(column.cell(column.title) for column in table.columns)
        self._head = [*self._head, [(" " * _SIGN + titles, "head")]]
        unsaid = [text for index, (text, _) in enumerate(alerts) if index >= _ALERTS or cell_len(text) > width]
        remarks = [line for text in [*unsaid, *table.remarks] for line in textwrap.wrap(text, max(16, width))]
        return [self._whole(line, table.columns) for line in table.lines] + [[(line, "faint")] for line in remarks]

    def _sign(self, line: ReplicaLine) -> tuple[str, str]:
        if line.host.lost is not None:
            return f"{FAILED} ", "bad"
        if line.host.behind:
            return f"{WARNING} ", "warn"
        return (f"{NOW} ", "now") if line.is_host and line.host.process == self.chosen else ("  ", "")

    def _whole(self, line: ReplicaLine, columns: Sequence[Column]) -> Row:
        """Return all columns, and a bar of the memory in the room beside them."""
        sign, look = self._sign(line)
        row = [(sign, look), *((f"{column.cell(line.cells[column.title])}  ", look) for column in columns)]
        room = min(_LONGEST_BAR, self.room - sum(len(text) for text, _ in row))
        share = _used_share(line.usage)
        return row if share is None or room < _SHORTEST_BAR else row + _bar(share, room)

    def _short(self, line: ReplicaLine) -> Row:
        """Return the load of a replica, or else its memory, as a bar, and its figures with their units."""
        sign, look = self._sign(line)
        name = line.cells["device"] if line.is_host else f"replica {line.cells['#']}"
        forms = {_RATE: "{}/s", _DUTY: "duty {}", _MEMORY: "{}"}
        said = [form.format(line.cells[figure]) for figure, form in forms.items() if not line.whys[figure]]
        text = "  ".join(said) or line.cells["device"]
        duty = line.usage.duty_percent if line.usage is not None else None
        share = _used_share(line.usage) if duty is None else duty / 100
        if share is None or len(name) + _SHORTEST_BAR + len(text) + 2 > self.room - _SIGN:
            return [(sign, look), (f"{name} ", look), (text, look if share is None else heat(share))]
        return [(sign, look), (f"{name} ", look), *_bar(share, _SHORTEST_BAR), (f" {text}", look)]


def _used_share(usage: ReplicaMemory | None) -> float | None:
    if usage is None or usage.used_bytes is None or not usage.limit_bytes:
        return None
    return usage.used_bytes / usage.limit_bytes


def _bar(share: float, cells: int) -> list[tuple[str, str]]:
    full = bar_cells(share, cells)
    return [(BAR * full, "bad" if share > _NEARLY_FULL else heat(share)), (BAR_LEFT * (cells - full), "faint")]


def table_of(state: RunState, width: int, chosen: int) -> ReplicaTable:
    """Lay out the replicas of a run; if there are too many, one row per host and the replicas of the chosen one."""
    ready, hosts = state.accelerator, host_text.hosts_of(state)
    if ready is None:
        return ReplicaTable()
    every = [_line(state, hosts[replica.process], replica) for replica in ready.replicas]
    lines, has_hosts = every, len(hosts) > 1
    is_grouped = len(every) >= GROUPED_FROM and has_hosts
    if is_grouped:
        lines = []
        for host in hosts.values():
            lines += [_line(state, host)] if host.replicas else []
            lines += [line for line in every if line.host is host] if host.process == chosen else []
    columns = []
    for column in _COLUMNS:
        texts = [line.cells[column.title] for line in lines]
        known = {*texts} - {"", NONE}
        if not known or (column.title == "core" and len(known) == 1) or (column.title == "host" and not has_hosts):
            continue
        longest = widest(texts)
        columns.append(replace(column, width=max(len(column.title), min(column.width or longest, longest))))
    columns = [one for one in fitting([*columns, _BAR_COLUMN], width - _SIGN) if one is not _BAR_COLUMN]
    shown = {column.title for column in columns}
    remarks = [host_text.topology_text(ready)]
    remarks += [host_text.kinds_text(ready)] if not {"kind", "host"} <= shown else []
    if is_grouped:
        remarks += ["host rows: total examples/s, mean duty cycle, fullest memory", "h: next host"]
    for figure in _FIGURES:
        remarks += [f"{figure}: {why}" for why in dict.fromkeys(line.whys[figure] for line in every) if why]
    return ReplicaTable(lines, columns, [remark for remark in remarks if remark])


def _line(state: RunState, host: host_text.Host, replica: Replica | None = None) -> ReplicaLine:
    """Make the row of a replica, or that of its host."""
    known = state.memory if host.lost is None else {}  # the last figures of a lost host are out of date
    replicas = host.replicas if replica is None else (replica,)
    usages = [known[one.index] for one in replicas if one.index in known]
    usage, duty = host_text.fullest(usages) or next(iter(usages), None), host_text.mean_duty(usages)
    if replica is None:
        rate, names = host.examples_per_s, {"#": "", "device": f"host {host.process}", "coords": "", "core": ""}
        names["kind"] = f"{len(replicas)} × {replicas[0].kind}"
    else:
        rate, device = host.examples_a_replica, replica.device.rpartition("device:")[2] or replica.device
        names = {"#": str(replica.index), "device": device, "kind": replica.kind, "coords": replica.coordinates}
        names["core"] = "" if replica.core is None else str(replica.core)
    batch = state.fit.replica_batch if state.fit is not None else None
    used = memory(usage.used_bytes, usage.limit_bytes) if usage is not None and usage.used_bytes is not None else ""
    lost = "" if host.lost is None else host_text.LOST
    word = "lost " if lost else "slow " if host.behind else ""  # first, so that it is never cut off
    names |= {"host": word + host.name, "peak": "" if usage is None else memory(usage.peak_bytes, None)}
    figures = {  # each with the reason if it is missing
        _BATCH: (count(batch) if batch else "", host_text.no_batch(state)),
        _RATE: (count(rate), host.why_not),
        _DUTY: (percent(duty), lost or host_text.no_duty(state, usage)),
        _MEMORY: (used, lost or host_text.no_memory(state, usage)),
    }
    cells = {**names, **{figure: text or NONE for figure, (text, _) in figures.items()}}
    whys = {figure: "" if text else reason for figure, (text, reason) in figures.items()}
    return ReplicaLine(host, cells, whys, usage, is_host=replica is None)
