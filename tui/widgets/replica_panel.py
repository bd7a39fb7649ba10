"""The replicas: which devices train, on which machine, with how much memory, or why that is not known."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from tui.widgets.figures import bar_cells, memory, plain
from tui.widgets.rows_pane import Row, RowsPane

if TYPE_CHECKING:
    from engine.events import Replica, ReplicaMemory
    from engine.state import RunState

_BAR_FROM = 26  # cells that memory needs before a bar is worth drawing beside its figures
_HOST_FROM = 64
_KIND_FROM = 44  # below, a kind that all replicas share is said once


class ReplicaPanel(RowsPane):
    """One row a replica, and below them what is missing and why."""

    follows_newest = False

    def __init__(self) -> None:
        super().__init__("4 replicas", "replicas")
        self._state: RunState | None = None
        self._rows: list[Row] = []
        self._head: list[Row] = []

    def show(self, state: RunState) -> None:
        """Show the replicas of a state; draws only when something about them changed."""
        old, self._state = self._state, state
        if old is None or (old.accelerator, old.memory, old.fit) != (state.accelerator, state.memory, state.fit):
            self.rows_changed()

    def rows_changed(self) -> None:
        """Lay the rows out for the width there is."""
        self._head, self._rows = self._laid_out()
        lines = len(self._head) + len(self._rows)
        is_other_height = lines != self.virtual_size.height
        super().rows_changed()
        if is_other_height:
            self.refresh(layout=True)  # its height is that of its rows

    def head(self) -> list[Row]:
        """The names of the columns."""
        return self._head

    def row_count(self) -> int:
        """Replicas and remarks."""
        return len(self._rows)

    def row(self, index: int) -> Row:
        """One replica or remark."""
        return self._rows[index]

    def _laid_out(self) -> tuple[list[Row], list[Row]]:
        state, width = self._state, self.size.width
        if state is None or state.accelerator is None:
            return [], [[("not connected yet", "faint")]]
        replicas = state.accelerator.replicas
        batch = f"{state.fit.replica_batch:,}" if state.fit is not None and state.fit.replica_batch else ""
        widths = _widths(replicas, width, len(batch))
        head = _line(("#", "device", "kind", "host", "batch"), widths) + "  memory"
        remarks = []
        rows: list[Row] = []
        for replica in replicas:
            told = state.memory.get(replica.index)
            cells = (str(replica.index), _short(replica.device), replica.kind, replica.host, batch)
            line = plain(_line(cells, widths), self.glyphs)
            rows.append([(line + "  ", ""), *self._memory(told, width - len(line) - 2)])
            if told is not None and told.why_not and told.why_not not in remarks:
                remarks.append(told.why_not)
        if not widths[3] and replicas:
            hosts = ", ".join(dict.fromkeys(replica.host for replica in replicas))
            remarks.insert(0, f"on {hosts}" if widths[2] else f"{replicas[0].kind}, on {hosts}")
        if not state.memory:
            remarks.append("memory: the runtime has told nothing yet")
        for remark in remarks:
            lines = textwrap.wrap(plain(remark, self.glyphs), max(16, width))
            rows += [[(line, "faint")] for line in lines]
        return [[(head, "head")]], rows

    def _memory(self, told: ReplicaMemory | None, width: int) -> Row:
        if told is None or (told.used_bytes is None and told.limit_bytes is None):
            return [("not told" if told is not None else "", "faint")]
        text = memory(told.used_bytes, told.limit_bytes)
        if told.peak_bytes is not None and width >= _BAR_FROM + 12:
            text += f" peak {memory(told.peak_bytes, None)}"
        room = min(24, width - len(text) - 1)
        if told.used_bytes is None or not told.limit_bytes or room < 8:
            return [(text, "")]
        share = told.used_bytes / told.limit_bytes
        full = bar_cells(share, room)
        look = "bad" if share > 0.95 else "now"
        return [(self.glyphs.full * full, look), (self.glyphs.empty * (room - full), "faint"), (f" {text}", "")]


def _short(device: str) -> str:
    """Leave out what every device's name begins with: ``/device:GPU:0`` is ``GPU:0``."""
    return device.rpartition("device:")[2] or device


def _widths(replicas: tuple[Replica, ...], width: int, batch: int) -> tuple[int, ...]:
    def longest(texts: list[str], least: int, most: int) -> int:
        return min(most, max(least, *(len(text) for text in texts))) if texts else least

    kind = longest([replica.kind for replica in replicas], 4, 24 if width >= _HOST_FROM else 14)
    host = longest([replica.host for replica in replicas], 4, 18) if width >= _HOST_FROM else 0
    if width < _KIND_FROM and len({replica.kind for replica in replicas}) == 1:
        kind = 0
    device = longest([_short(replica.device) for replica in replicas], 6, 10)
    return (len(str(len(replicas))), device, kind, host, max(5, batch))


def _line(cells: tuple[str, ...], widths: tuple[int, ...]) -> str:
    """Numbers to the right, names to the left, columns without room left out."""
    parts = []
    for index, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        if width:
            parts.append(f"{cell[:width]:>{width}}" if index in {0, 4} else f"{cell[:width]:<{width}}")
    return "  ".join(parts)
