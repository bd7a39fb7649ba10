"""The plan panel: what the run will do, advice before starting, and the same run as a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import Static

from tpu_console.engine.findings import Severity

from ..text.numbers import plural
from ..text.plan_text import Entry, advice_entries, counts, figures, laid_out, problem_entries
from .reading import Overflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.errors import Problem
    from tpu_console.engine.planning.plan import Plan


class PlanPanel(Overflow):
    """Shows the plan. While the form has problems, it lists them above the last good plan, dimmed."""

    DEFAULT_CSS = """
    PlanPanel {
        Static { height: auto; width: 1fr; }
        #plan-trouble { padding: 0 0 1 0; }
        #plan-command-title { color: $text-muted; padding: 1 0 0 0; }
        #plan-command { color: $text-success; background: $surface-lighten-1; padding: 0 1; }
        #plan-advice { padding: 1 0 0 0; }
        .-empty { display: none; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  Textual's own name
        super().__init__(id=id)
        self.border_title = "Plan"
        self.command = ""
        self._figures: Sequence[Entry] = ()
        self._trouble: Sequence[Entry] = ()
        self._advice: Sequence[Entry] = ()
        self._width = 0

    def compose(self) -> ComposeResult:
        """Lay out what is wrong, the figures, the command and the advice."""
        yield Static("", id="plan-trouble", classes="-empty")
        yield Static("", id="plan-figures")
        yield Static("Equivalent command (ctrl+y copies it)", id="plan-command-title", markup=False)
        yield Static("", id="plan-command", markup=False)
        yield Static("", id="plan-advice")

    def show_plan(self, plan: Plan, config: RunConfig, command: str) -> None:
        """Show a plan."""
        self.command = command
        self._figures = figures(plan, config)
        self._advice = advice_entries(item for item in plan.advice if item.severity is not Severity.ERROR)
        self._trouble = advice_entries(item for item in plan.advice if item.severity is Severity.ERROR)
        self.border_subtitle = counts(plan.advice)
        self._draw()

    def clear(self) -> None:
        """Show nothing."""
        self.command = ""
        self._figures = self._trouble = self._advice = ()
        self.border_subtitle = ""
        self._draw()

    def show_problems(self, problems: Sequence[Problem]) -> None:
        """Show what is wrong with the form, at least one problem; the plan stays as it was."""
        below = " Below: the last valid plan." if self.command else ""
        title = f"{plural(len(problems), 'problem')}.{below}"
        self._trouble = [Entry("", title, text_style="bold"), *problem_entries(problems)]
        self.border_subtitle = f"✗ {len(problems)}"
        self._draw()

    def on_resize(self) -> None:
        """Wrap the text again for the new width."""
        if self.content_size.width != self._width:
            self._draw()

    def _draw(self) -> None:
        # One column is reserved for the scroll bar, so that the text does not wrap again when it appears.
        self._width = self.content_size.width
        width = max(20, self._width - 1)
        is_stale = any(not entry.lead for entry in self._trouble)
        for name, entries in (("trouble", self._trouble), ("figures", self._figures), ("advice", self._advice)):
            part = self.query_one(f"#plan-{name}", Static)
            part.update(laid_out(entries, width))
            part.set_class(not entries, "-empty")
            part.set_class(is_stale and name != "trouble", "-stale")
        command = self.query_one("#plan-command", Static)
        command.update(self.command)
        command.set_class(is_stale, "-stale")
        self.query("#plan-command-title, #plan-command").set_class(not self.command, "-empty")
