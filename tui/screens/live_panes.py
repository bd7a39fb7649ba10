"""The panes below the charts of the live screen: the key, the data and the help of each."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tpu_console.engine.runs.state import RunState

from ..widgets.basics import RowsPane
from ..widgets.epoch_table import EpochTable
from ..widgets.replica_panel import ReplicaPanel
from ..widgets.run_header import HeaderView
from ..widgets.side_panes import LogPane, ProfilePane, SamplesPane
from ..widgets.system_pane import SystemPane


class LivePane(Struct, frozen=True):
    """One pane, which is made when the screen is composed."""

    key: int  # the number key that zooms it
    name: str  # its id, and its name on the screen
    help: str  # what it shows
    make: Callable[[str], RowsPane]  # from its id
    has_data: Callable[[RunState], bool] = lambda _: True  # until then, it is not there
    show: Callable[[Any, HeaderView], None] = lambda pane, view: pane.show(view.state)  # its part of a snapshot

    @property
    def label(self) -> str:
        return f"{self.key} {self.name}"


LEFT: tuple[LivePane, ...] = (
    LivePane(
        3,
        "epochs",
        "Times, speed, learning rate and metrics of each epoch; the best one is marked.",
        EpochTable,
        show=lambda pane, view: pane.show(view.state, view.pace),
    ),
)
"""Under the left charts."""

RIGHT: tuple[LivePane, ...] = (  # from top to bottom
    LivePane(
        4,
        "replicas",
        "The devices with their speed and memory, lost and slow hosts, and why a figure is missing.",
        ReplicaPanel,
    ),
    LivePane(
        6,
        "system",
        "What the input, the processor, the memory and the disk of a host do, along the axis of the charts.",
        SystemPane,
        lambda state: bool(state.hosts) or state.input is not None,
    ),
    LivePane(
        7,
        "samples",
        "Translations of a few sentences after the last epoch.",
        SamplesPane,
        lambda state: state.translated is not None,
        lambda pane, view: pane.show(view.state.translated),
    ),
    LivePane(
        8,
        "profile",
        "Where the time of traced steps went, what compiled a step again, and what to do; S traces steps.",
        ProfilePane,
        lambda state: bool(state.profiled) or any(one.part for one in state.compiled),
    ),
    LivePane(
        5,
        "log",
        "What the training process and your code print; errors are marked.",
        LogPane,
        show=lambda pane, view: pane.show(view.snapshot.log),
    ),
)

PANES = sorted((*LEFT, *RIGHT), key=lambda pane: pane.key)
