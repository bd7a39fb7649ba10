"""The doctor screen: the environment, the checks, and the commands to run next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import work
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from ..text.doctor_report import GROUP, report_lines
from ..text.keys import bind
from ..widgets.basics import ScrollingText, call_back
from .parts import BACK, HELP, QUIT, KeysFooter, Title

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult

    from tpu_console.engine.doctor.doctor import Report
    from tpu_console.engine.machine.environment import Environment


_STYLES = {
    "ok": "$text-success",
    "note": "$text-accent",
    "warning": "bold $text-warning",
    "problem": "bold $text-error",
    "could not tell": "$foreground 60%",
    GROUP: "bold $text-accent",
}


class DoctorScreen(Screen[None]):
    """Checks the machine in a thread with what `look` gathers, and shows the same report as `tpu-console doctor`."""

    CSS = """
    DoctorScreen {
        #report { padding: 1 1 0 1; background: $background; }
        #report > Static { height: auto; }
    }
    """
    AUTO_FOCUS = "#report"
    BINDINGS = [bind("reload", "look_again", "Check again"), BACK, HELP, QUIT]

    def __init__(self, look: Callable[[], Environment] | None = None) -> None:
        super().__init__()
        self._look = look
        self._report: Report | None = None

    def compose(self) -> ComposeResult:
        yield Title()
        with ScrollingText(id="report"):
            yield Static()
        yield KeysFooter()

    def on_mount(self) -> None:
        self.action_look_again()

    @work(thread=True, exclusive=True, name="doctor")
    def action_look_again(self) -> None:
        from tpu_console.engine.doctor.doctor import examine
        from tpu_console.engine.machine.environment import look_around

        call_back(self, self._say, "checking …")
        self._report = examine((self._look or look_around)())
        call_back(self, self._draw)

    def _say(self, text: str) -> None:
        self.query_one(Title).show(f"doctor: {text}")

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        if self._report is None:
            return
        self._say(self._report.summary)
        box = self.query_one("#report", ScrollingText)
        lines = report_lines(self._report, max(40, box.content_size.width - 1))[:-2]  # the title has the summary
        colored = []
        for line in lines:
            look = _STYLES.get(line.look, "")
            colored.append(Content.assemble((line.label, look), (line.text, "" if line.label else look)))
        box.query_one(Static).update(Content("\n").join(colored))
