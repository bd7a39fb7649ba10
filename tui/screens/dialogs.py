"""Small screens over another one: a question, an error, a text to read."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from ..text.keys import bind
from ..widgets.reading import Reading
from .parts import HELP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from tpu_console.engine.errors import ConsoleError, UntrustedCodeError

Answer = TypeVar("Answer")

_WIDEST = 112
_BESIDE = 8  # the border, the padding, and the scroll bar


class Asking(ModalScreen[Answer]):
    """Asks something in a box."""

    HINT: ClassVar[str] = ""
    """What the box's border says about its keys."""

    DEFAULT_CSS = """
    Asking {
        align: center middle;
        & > Vertical {
            width: 64; max-width: 95%; height: auto; max-height: 95%; overflow-y: auto; padding: 1 2;
            border: round $warning; border-subtitle-color: $text-muted; background: $surface;
        }
        .question { text-style: bold; }
        .explanation { color: $text-muted; margin: 1 0; }
        Button { text-align: left; content-align: left middle; }
    }
    """

    def __init__(self, question: str, explanation: str) -> None:
        super().__init__()
        self._question, self._explanation = question, explanation

    def compose(self) -> ComposeResult:
        """Show the question and the ways to answer it."""
        with Vertical() as box:
            box.border_subtitle = self.HINT
            yield Static(Content(self._question), classes="question")
            yield Static(Content(self._explanation), classes="explanation")
            yield from self.answers()

    @abstractmethod
    def answers(self) -> ComposeResult:
        """Make the widgets under the question."""


class Question(Asking[str]):
    """Asks whether to do something; returns the way to do it, and an empty text for no.

    Args:
        question: The question.
        explanation: What happens then.
        yes: The label of the button, or those of several ways by name; y takes the first one.
        no: The label of the other button.
        is_careful: Whether enter, at first, means no, because yes cannot be undone.
    """

    HINT = "enter, y: yes · esc, n: no"
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("yes", "answer"),
        bind("no", "answer('no')"),
        bind("back", "answer('no')"),
        bind("up", "app.focus_previous"),
        bind("left", "app.focus_previous"),
        bind("down", "app.focus_next"),
        bind("right", "app.focus_next"),
        HELP,
    ]

    def __init__(
        self, question: str, explanation: str, *, yes: str | Mapping[str, str], no: str, is_careful: bool = False
    ) -> None:
        super().__init__(question, explanation)
        self._ways = {"yes": yes} if isinstance(yes, str) else yes
        self._no, self._is_careful = no, is_careful

    def answers(self) -> ComposeResult:
        """Make the buttons."""
        for name, label in {**self._ways, "no": self._no}.items():
            yield Button(label, id=name, compact=True)

    def on_mount(self) -> None:
        """Mark the answer that enter gives."""
        self.query_one("#no" if self._is_careful else "Button").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer with the button."""
        self.action_answer(str(event.button.id))

    def action_answer(self, name: str = "") -> None:
        """Answer with a key."""
        name = name or next(iter(self._ways), "no")
        self.dismiss("" if name == "no" else name)


class TextDialog(ModalScreen[None]):
    """Shows a text of the kind ``info``, ``error`` or ``help`` that may be longer than the screen; escape leaves it.

    `lay_out` returns the text for so many columns.
    """

    AUTO_FOCUS = "Reading"  # so that the arrow keys scroll at once
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("back", "dismiss"),
        bind("enter", "dismiss"),
        bind("ask to quit", "app.ask_to_leave"),
        bind("help", "help"),
    ]
    CSS = """
    TextDialog { align: center middle; background: $background; }
    TextDialog > Reading {
        width: 112; max-width: 95%; height: auto; max-height: 90%; padding: 1 2;
        border: round $primary; background: $surface;
        border-subtitle-color: $text-muted;
        scrollbar-background: $surface;
    }
    TextDialog.-error { background: $background 60%; }
    TextDialog.-error > Reading { border: round $error; border-title-color: $text-error; }
    """

    def __init__(self, title: str, lay_out: Callable[[int], Content], kind: str = "info") -> None:
        super().__init__(classes=f"-{kind}")
        self._title = title
        self._lay_out = lay_out

    @property
    def text(self) -> Content:
        """The text, laid out for the terminal as it is."""
        return self._lay_out(max(20, min(_WIDEST, self.app.size.width * 95 // 100) - _BESIDE))

    def compose(self) -> ComposeResult:
        """Lay the text out."""
        with Reading() as box:
            box.border_title = Content(self._title).markup
            box.border_subtitle = "escape: close"
            yield Static(self.text)

    def on_resize(self) -> None:
        """Lay the text out again."""
        self.query_one(Static).update(self.text)

    async def action_help(self) -> None:
        """Explain the keys; in the help itself, close it."""
        if self.has_class("-help"):
            self.dismiss()
        else:
            await self.run_action("app.help")


def trust_question(error: UntrustedCodeError) -> Question:
    """Make the question whether something may be used that the user did not start."""
    explanation = f"{error.what}\n\n{error.why}".strip()
    return Question("Allow it to run?", explanation, yes="Allow", no="Leave it", is_careful=True)


def error_dialog(error: ConsoleError) -> TextDialog:
    """Make the dialog that says what happened, why, and what to do next."""
    lines = [Content.styled(error.what, "bold")]
    if error.why:
        lines.append(Content.assemble(("Why: ", "dim"), error.why))
    if error.remedy:
        lines.append(Content.assemble(("What to do: ", "dim"), error.remedy))
    text = Content("\n\n").join(lines)
    return TextDialog("Error", lambda _columns: text, kind="error")
