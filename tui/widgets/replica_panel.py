"""Shows the replicas: their devices, speed and memory, or why a figure is unknown."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len

from ..text.cells import clipped
from ..text.hosts import Host, lost_text, slow_text, topology_text
from ..text.marks import BAR, BAR_LEFT, FAILED, NOW, WARNING
from ..text.numbers import bar_cells, memory
from .replica_table import TOPOLOGY_FROM, ReplicaTable, table_of
from .rows_pane import Row, RowsPane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.engine.runs.events import ReplicaMemory
    from tpu_console.engine.runs.state import RunState

_LONGEST_BAR = 24
_SHORTEST_BAR = 8
_PEAK_FROM = 38  # cells for a bar and its figures, from which the peak memory is shown too
_ALERTS = 2
_NEARLY_FULL = 0.95


class ReplicaPanel(RowsPane):
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
        self._table: ReplicaTable | None = None
        self._head: list[Row] = []
        self._remarks: list[Row] = []

    def show(self, state: RunState) -> None:
        """Show the replicas of a state; redraws only if something about them changed."""
        old, self._state = self._state, state
        if old is None or any(one is not other for one, other in zip(_seen(old), _seen(state), strict=True)):
            self.rows_changed()

    def choose(self, process: int) -> None:
        """Show the replicas of another host, if rows are hosts."""
        self._chosen = process
        self.rows_changed()

    def rows_changed(self) -> None:
        """Lay out the rows for the pane's width."""
        self._lay_out()
        super().rows_changed()

    def head(self) -> list[Row]:
        """Return the topology, the lost and slow hosts, and the column names."""
        return self._head

    def row_count(self) -> int:
        """Return the number of replicas, hosts and remarks."""
        return (len(self._table.items) if self._table is not None else 0) + len(self._remarks)

    def row(self, index: int) -> Row:
        """Return one replica, host or remark."""
        items = self._table.items if self._table is not None else ()
        return self._item_row(index) if index < len(items) else self._remarks[index - len(items)]

    def _lay_out(self) -> None:
        state, width = self._state, self.room
        if state is None or state.accelerator is None:
            self._table, self._head, self._remarks = None, [], [[("not connected yet", "faint")]]
            return
        table = self._table = table_of(state, width, self._chosen)
        titles = "  ".join(column.cell(column.title) for column in table.columns)
        alerts = self._alerts(list(table.hosts.values()))
        self._head = [*self._alert_rows(alerts), [(f"  {titles}", "head")]]
        if width >= TOPOLOGY_FROM:
            self._head.insert(0, [(clipped(topology_text(state.accelerator), self.room), "faint")])
        self._remarks = [
            [(line, "faint")]
            for remark in [*self._unsaid(alerts), *table.remarks]
            for line in textwrap.wrap(remark, max(16, width))
        ]

    def _alerts(self, hosts: Sequence[Host]) -> list[tuple[str, str]]:
        """Return a text and a look for each host that is lost or slow."""
        said = [(f"{FAILED} {lost_text(host.lost)}", "bad") for host in hosts if host.lost is not None]
        return said + [(f"{WARNING} {slow_text(host)}", "warn") for host in hosts if host.behind]

    def _unsaid(self, alerts: Sequence[tuple[str, str]]) -> list[str]:
        """Return the texts that do not fit into the head."""
        return [text for index, (text, _) in enumerate(alerts) if index >= _ALERTS or cell_len(text) > self.room]

    def _alert_rows(self, said: Sequence[tuple[str, str]]) -> list[Row]:
        """Return two of them for the head, one per line; the others are counted there and listed below the rows."""
        rows: list[Row] = [[(clipped(text, self.room), look)] for text, look in said[:_ALERTS]]
        if len(said) > _ALERTS:
            last, look = said[_ALERTS - 1]
            more = f" (and {len(said) - _ALERTS} more)"
            rows[-1] = [(clipped(last, self.room - len(more)) + more, look)]
        return rows

    def _item_row(self, index: int) -> Row:
        table = self._table
        if table is None:
            return []
        item = table.items[index]
        host = item if isinstance(item, Host) else table.hosts[item.process]
        sign, look = self._sign(host, is_host_row=isinstance(item, Host))
        row: list[tuple[str, str]] = [(f"{sign} ", look)]
        taken = 2
        for column in table.columns:
            text = table.cell(column, index)
            if column.title == "memory":
                row += self._memory(text, table.figures[index].usage, self.room - taken)
                continue
            taken += column.width + 2
            row.append((f"{column.cell(text)}  ", look))
        return row

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
        look = "bad" if share > _NEARLY_FULL else "now"
        if room < _SHORTEST_BAR:
            return [(text, look if look == "bad" else "")]
        full = bar_cells(share, room)
        return [(BAR * full, look), (BAR_LEFT * (room - full), "faint"), (f" {text}", "")]


def _seen(state: RunState) -> tuple[object, ...]:
    """Return the parts of a state that the panel shows; compared by identity, because they may be large."""
    return (state.accelerator, state.memory, state.fit, state.hosts, state.lost, state.epochs, state.end)
