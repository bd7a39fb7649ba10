"""Parts that screens share: the title line, the footer, common keys, dialogs, and what screens ask of the app."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from rich.cells import cell_len
from textual import on
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Button, Footer, Input, Static

from tpu_console.engine.errors import ConsoleError, UntrustedCodeError
from tpu_console.engine.storage.paths import refusal_of, user_path, user_presets_folder

from ..text.keys import bind
from ..text.plan_text import PlanLine, laid_out
from ..widgets.basics import ScrollingText, is_closing

if TYPE_CHECKING:
    from textual.app import App, ComposeResult
    from textual.suggester import Suggester
    from textual.widget import Widget

    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.machine.devices import Hardware
    from tpu_console.engine.runs.run_directory import RunDirectory

    from ..charts.scene import Marker
    from ..widgets.live_panes import LivePane

T = TypeVar("T")

HELP = bind("help", "app.help")
QUIT = bind("quit", "app.quit", priority=True)
BACK = bind("back", "dismiss", about="Go back.")

_ROOMY = 130  # columns; 120 are too few for the keys of the live screen and that of the palette


class KeysFooter(Footer):
    """The keys of a screen, as many as there is room for; on a wide terminal also that of the palette."""

    def __init__(self) -> None:
        super().__init__(compact=True)
        self._composed: object = None  # what decides which keys are shown

    def compose(self) -> ComposeResult:
        """Yield the keys for which there is room, so that none is cut."""
        room, keys = self.app.size.width + 1, cast("Iterable[Any]", super().compose())  # Textual names no type for them
        for key in keys:
            room -= cell_len(f"{key.key_display} {key.description} ")
            if room >= 0:
                yield key

    async def recompose(self) -> None:
        """Compose again if there are other keys or another width: Textual asks for it whenever the focus moves."""
        if is_closing(self):
            return  # the screen is being left, and some of its widgets may be gone
        active = self.screen.active_bindings.values()
        keys = {(one.binding.key, one.binding.description, one.enabled) for one in active if one.binding.show}
        if (wanted := (keys, self.app.size.width)) != self._composed:
            self._composed = wanted
            self.show_command_palette = self.app.size.width >= _ROOMY
            await super().recompose()

    def on_resize(self) -> None:
        self.call_after_refresh(self.recompose)


class Title(Static):
    """The first line of a screen: the program's name and what the screen shows."""

    DEFAULT_CSS = """
    Title { height: 1; background: $panel; padding: 0 1; color: $text-muted; }
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(id="title")
        self.show(text)

    def show(self, text: str) -> None:
        self.update(Content.assemble(("tpu-console", "bold $text-primary"), f"  {text}"))


class Console(Protocol):
    """What screens ask of the app."""

    def open_run(self, run: RunDirectory) -> None: ...
    def resume_run(self, run: RunDirectory, *, is_finished: bool) -> None: ...  # finished: it did what it was asked to
    def new_run_like(self, run: RunDirectory, changes: Sequence[str] = ()) -> None: ...  # ``precision=float32``
    def compare_runs(self, runs: Sequence[RunDirectory]) -> None: ...  # at least two, or it says so
    def start_run(self, config: RunConfig) -> None: ...
    def warm_up(self, config: RunConfig, hardware: Hardware) -> None: ...  # imports what a likely run needs
    def draw_with(self, marker: Marker) -> None: ...


def console_of(screen: Screen[Any]) -> Console:
    """Return the app of a screen."""
    return cast("Console", screen.app)


def after(values: tuple[T, ...], value: T) -> T:
    """Return the value after this one, the first after the last."""
    return values[(values.index(value) + 1) % len(values)]


_WIDEST = 112
_BESIDE = 8  # the border, the padding, and the scroll bar


def close(dialog: Screen[T], answer: T) -> None:
    """Close a dialog with its answer, once: Textual 8 would close the screen below on the second of two answers."""
    if dialog.is_active:
        dialog.dismiss(answer)


class QuestionBox(Vertical):
    """The box of a dialog that asks something: a question, what it means, the answers, and what the keys do."""

    DEFAULT_CSS = """
    QuestionBox {
        width: 64; max-width: 95%; height: auto; max-height: 95%; overflow-y: auto; padding: 1 2;
        border: round $warning; border-subtitle-color: $text-muted; background: $surface;
        .question { text-style: bold; }
        .explanation { color: $text-muted; margin: 1 0; }
        .problem { color: $text-error; height: auto; margin-top: 1; }
        Input { background: $boost; }
        Button { min-width: 0; text-align: left; content-align: left middle; }
    }
    """

    def __init__(self, question: str, explanation: str, *answers: Widget, keys: str) -> None:
        what = Static(question, classes="question", markup=False)
        super().__init__(what, Static(explanation, classes="explanation", markup=False), *answers)
        self.border_subtitle = keys


class Confirmation(ModalScreen[str]):
    """Asks whether to do something; returns the way to do it, and an empty text for no.

    `yes` is the label of the button, or those of several ways by name, of which y chooses the first. With
    `is_careful`, enter means no at first, because yes cannot be undone.
    """

    DEFAULT_CSS = "Confirmation { align: center middle; }"
    BINDINGS = [
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
        super().__init__()
        self._question, self._explanation, self._is_careful = question, explanation, is_careful
        self._ways = {**({"yes": yes} if isinstance(yes, str) else yes), "no": no}

    def compose(self) -> ComposeResult:
        buttons = [Button(label, id=name, compact=True) for name, label in self._ways.items()]
        keys = "enter, y: yes · esc, n: no" if len(buttons) <= 2 else "↑↓ enter: choose · esc, n: no"
        yield QuestionBox(self._question, self._explanation, *buttons, keys=keys)

    def on_mount(self) -> None:
        self.query_one("#no" if self._is_careful else "Button").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.action_answer(str(event.button.id))

    def action_answer(self, name: str = "") -> None:
        name = name or next(iter(self._ways))
        close(self, "" if name == "no" else name)


class ValueDialog(ModalScreen[str | None]):
    """Asks for a value, which is a text at first; returns it, or None to change nothing.

    The example is shown until a value is typed; `check` returns what is wrong with one, or an empty text. A suggester
    completes what is typed.
    """

    DEFAULT_CSS = "ValueDialog { align: center middle; }"
    BINDINGS = [bind("back", "dismiss(None)"), HELP]

    def __init__(
        self,
        title: str,
        explanation: str,
        example: str = "",
        check: Callable[[str], str] = lambda _: "",
        suggester: Suggester | None = None,
        text: str = "",
    ) -> None:
        super().__init__()
        self._title, self._explanation, self._check = title, explanation, check
        self._input = Input(text, placeholder=example, suggester=suggester, select_on_focus=False, compact=True)

    def compose(self) -> ComposeResult:
        problem, keys = Static(classes="problem"), "enter: do it · escape: cancel"
        yield QuestionBox(self._title, self._explanation, self._input, problem, keys=keys)

    @on(Input.Changed)
    def _clear(self) -> None:
        self.query_one(".problem", Static).update("")

    @on(Input.Submitted)
    def _submit(self, message: Input.Submitted) -> None:
        value = message.value.strip()
        if problem := self._check(value):
            self.query_one(".problem", Static).update(Content(problem))
        else:
            close(self, value)


def ask_user(app: App[Any], dialog: Confirmation | ValueDialog, then: Callable[[str], object]) -> None:
    """Open a dialog, and do something with its answer unless that is no or empty."""

    def use(answer: str | None) -> None:
        if answer:
            then(answer)

    app.push_screen(dialog, use)


class TextDialog(ModalScreen[None]):
    """Shows a text of the kind ``info``, ``error`` or ``help`` that may be longer than the screen; escape leaves it.

    `lay_out` returns the text for so many columns.
    """

    AUTO_FOCUS = "ScrollingText"  # so that the arrow keys scroll at once
    BINDINGS = [
        bind("back", "dismiss"),
        bind("enter", "dismiss"),
        bind("ask to quit", "app.ask_to_leave"),
        bind("help"),
    ]
    CSS = """
    TextDialog { align: center middle; background: $background; }
    TextDialog > ScrollingText {
        width: 112; max-width: 95%; height: auto; max-height: 90%; padding: 1 2;
        border: round $primary; background: $surface;
        border-subtitle-color: $text-muted;
        scrollbar-background: $surface;
    }
    TextDialog.-error { background: $background 60%; }
    TextDialog.-error > ScrollingText { border: round $error; border-title-color: $text-error; }
    """

    def __init__(self, title: str, lay_out: Callable[[int], Content], kind: str = "info") -> None:
        super().__init__(classes=f"-{kind}")
        self._title, self._lay_out = title, lay_out

    @property
    def text(self) -> Content:
        return self._lay_out(max(20, min(_WIDEST, self.app.size.width * 95 // 100) - _BESIDE))

    def compose(self) -> ComposeResult:
        with ScrollingText() as box:
            box.border_title = Content(self._title).markup
            box.border_subtitle = "escape: close"
            yield Static(self.text)

    def on_resize(self) -> None:
        self.query_one(Static).update(self.text)

    async def action_help(self) -> None:
        if self.has_class("-help"):
            self.dismiss()
        else:
            await self.run_action("app.help")


def show_error(
    app: App[Any], error: ConsoleError | OSError, when_trusted: Callable[[], object] | None = None, *, what: str = ""
) -> None:
    """Show an error; for code that the user did not start, ask whether to allow it, and call `when_trusted`.

    `what` says what an `OSError` prevented.
    """
    if isinstance(error, OSError):
        error = ConsoleError(what, why=f"{refusal_of(error)}.")
    if when_trusted is not None and isinstance(error, UntrustedCodeError):
        explanation = f"{error.what}\n\n{error.why}".strip()
        question = Confirmation("Allow it to run?", explanation, yes="Allow", no="Leave it", is_careful=True)
        ask_user(app, question, lambda _: when_trusted())
    else:
        app.push_screen(error_dialog(error))


def error_dialog(error: ConsoleError) -> TextDialog:
    """Make the dialog that says what happened, why, and what to do next."""
    more = (("Why: ", error.why), ("What to do: ", error.remedy))
    parts = [Content.styled(error.what, "bold")]
    parts += [Content.assemble((label, "dim"), text) for label, text in more if text]
    return TextDialog("Error", lambda _columns: Content("\n\n").join(parts), kind="error")


_FIGURES = (
    ("epoch", "One pass over the training data, or the configured number of steps."),
    ("step", "One weight update from one global batch."),
    ("replica", "A copy of the model on one device (a TPU core, a GPU). All replicas train together."),
    ("global batch", "Examples per step: the batch per replica times the number of replicas."),
    ("loss", "What training minimizes. It falls quickly at first, then slowly."),
    ("val_…", "The same metric on validation data. If only it gets worse, the model is overfitting."),
    ("ms/step", "Milliseconds per step, without compilation and validation."),
    ("examples/s", "Examples per second on all replicas. Use it to compare machines and batch sizes."),
    ("lr", "Learning rate: how far each step moves the weights."),
    ("compile", "Time of the first execution, which includes compilation. Not part of the time left."),
    ("time left", "Estimated from recent steps and, for the run, from past validations."),
    ("★", "The best epoch so far, by the monitored metric."),
    ("smooth", "A moving average of the curves; the samples stay visible, dimmed."),
    ("dim band", "From the lowest to the highest sample of each column; the bright line is their mean."),
    ("!, !×3", "Below a chart, an alert or NaN; three that are close together."),
    ("memory", "Memory in use, as the device's runtime reports it. Below the rows: why a figure is missing."),
    ("duty", "Share of recent time the device was busy, as the TPU runtime reports it."),
    ("slow", "A host whose replicas ran more than 10% slower than the median host in the last ten seconds."),
    ("waits", "Share of time spent waiting for input data. A faster device would not help."),
    ("detach", "Leaves this screen. Training continues in its own process; `tpu-console attach` comes back."),
)

_NAME = 15  # cells for a key or the name of a figure
_LEAST_TEXT = 18  # cells beside a label
_TAB = "Go to the next part of the screen."


def help_dialog(
    keys: Sequence[tuple[str, str]], panes: Sequence[LivePane] = (), figures: Sequence[tuple[str, str]] = ()
) -> TextDialog:
    """Make the help screen, from keys as they are shown and what they do, and the panes and figures of the screen."""
    texts = dict.fromkeys(text for _, text in keys if text)
    parts = {
        "Keys": [*((" ".join(key for key, does in keys if does == text), text) for text in texts), ("tab", _TAB)],
        "Panes": [(pane.label, pane.help) for pane in panes],
        "Figures": figures or _FIGURES,
    }
    return TextDialog("Help", lambda room: in_blocks(parts, room, _NAME, "bold"), kind="help")


def in_blocks(parts: Mapping[str, Sequence[tuple[str, str]]], room: int, cells: int, look: str) -> Content:
    """Lay out labels and texts under titles; the labels have at least so many cells, and a look."""
    blocks = []
    for title, facts in parts.items():
        longest = max((len(label) for label, _ in facts), default=0)
        wide = max(cells, longest + 2) if longest else 0
        if room - wide < _LEAST_TEXT:  # no room beside the labels
            facts, wide = [pair for label, text in facts for pair in ((label, ""), ("", text))], 2  # noqa: PLW2901
        entries = [PlanLine(f"{label:<{wide}}", text, look) for label, text in facts]
        blocks += [Content.assemble((title, "bold $text-accent"), "\n", laid_out(entries, room))] if facts else []
    return Content("\n\n").join(blocks)


class SavePreset(ModalScreen[Path | None]):
    """Asks for a name and a title, and saves a configuration as a preset; returns the file, or None."""

    DEFAULT_CSS = "SavePreset { align: center middle; }"
    BINDINGS = [bind("back", "dismiss(None)"), HELP]

    def __init__(self, config: RunConfig, name: str) -> None:
        super().__init__()
        self._config, self._proposed_name = config, name

    def compose(self) -> ComposeResult:
        yield QuestionBox(
            "Save as preset",
            f"Will be saved in {user_path(user_presets_folder())}",
            Static("Name (letters, digits, dots, dashes, underscores)"),
            Input(self._proposed_name, id="save-name", compact=True),
            Static("Title (a few words; may stay empty)"),
            Input(id="save-title", compact=True),
            Static(classes="problem", markup=False),
            keys="enter: save · escape: cancel",
        )

    @on(Input.Submitted)
    def _save(self, message: Input.Submitted) -> None:
        message.stop()
        name, title = (field.value.strip() for field in self.query(Input))
        from tpu_console.presets.catalog import save_preset

        try:
            path = save_preset(self._config, name, title or name)
        except ConsoleError as error:
            self.query_one(".problem", Static).update(f"✗ {error}")
            self.query_one("#save-name").focus()
        else:
            close(self, path)
