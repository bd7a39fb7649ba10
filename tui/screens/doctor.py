"""The doctor screen: the environment, the checks, and the commands to run next."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from tpu_console.engine.doctor.check import word_of

from ..text.keys import bind
from ..widgets.basics import Reading, is_closing
from .parts import BACK, HELP, QUIT, KeysFooter, Title

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from tpu_console.engine.doctor.doctor import Report
    from tpu_console.engine.findings import Finding
    from tpu_console.engine.machine.environment import Environment

_STYLES = {
    "ok": ("✓", "$text-success"),
    "note": ("•", "$text-accent"),
    "warning": ("▲", "$text-warning"),
    "problem": ("✗", "$text-error"),
    "could not tell": ("?", "$foreground 60%"),
}


class DoctorScreen(Screen[None]):
    """Checks the machine in a thread with what `look` gathers, and shows the same report as `tpu-console doctor`."""

    CSS = """
    DoctorScreen {
        #report { padding: 1 1 0 1; background: $background; }
        .group { margin-top: 1; }
        .row { height: auto; }
        .row > .label { width: 13; }
        .row > .mark { width: 2; }
        .row > .body { width: 1fr; height: auto; }
    }
    """
    AUTO_FOCUS = "#report"
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("reload", "look_again", "Check again"),
        BACK,
        HELP,
        QUIT,
    ]

    def __init__(self, look: Callable[[], Environment] | None = None) -> None:
        super().__init__()
        self._look = look

    def compose(self) -> ComposeResult:
        """Lay out the title and the room for the report."""
        yield Title()
        yield Reading(id="report")
        yield KeysFooter()

    def on_mount(self) -> None:
        """Start checking the machine."""
        self.action_look_again()

    def action_look_again(self) -> None:
        """Look at the machine again."""
        self._say("checking …")
        self._examine()

    @work(thread=True, exclusive=True, name="doctor")
    def _examine(self) -> None:
        from tpu_console.engine.doctor.doctor import examine
        from tpu_console.engine.machine.environment import look_around

        report = examine((self._look or look_around)())
        self.app.call_from_thread(self._show, report)

    def _show(self, report: Report) -> None:
        if is_closing(self):
            return  # the screen was closed during the check
        box = self.query_one("#report", Reading)
        box.remove_children()
        rows: list[Static | Horizontal] = [_header_row(name, value) for name, value in report.header]
        for group in report.groups:
            rows.append(Static(Content.styled(group.name, "bold $text-accent"), classes="group"))
            rows += [_row(result) for result in group.results]
        box.mount_all(rows)
        self.call_after_refresh(self._say, report.summary)

    def _say(self, text: str) -> None:
        self.query_one(Title).show(f"doctor: {text}")


def _header_row(name: str, value: str) -> Horizontal:
    label = Static(Content.styled(name, "dim"), classes="label")
    return Horizontal(label, Static(Content(value), classes="body"), classes="row")


def _row(result: Finding) -> Horizontal:
    mark, style = _STYLES[word_of(result)]
    read, is_ok = "; ".join(result.evidence), result.severity == "ok"
    aside = (f" ({read})" if is_ok and read else "", "$foreground 60%")
    lines = [Content.assemble((result.title, f"bold {style}"), f": {result.text}", aside)]
    if read and not is_ok:
        lines.append(Content.styled(f"found: {read}", "$foreground 60%"))
    if result.remedy:
        lines.append(Content.assemble(("run: ", "$foreground 60%"), (result.remedy, "bold")))
    return Horizontal(
        Static(Content.styled(mark, style), classes="mark"),
        Static(Content("\n").join(lines), classes="body"),
        classes=f"row finding -{word_of(result).replace(' ', '-')}",
    )
