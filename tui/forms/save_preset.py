"""The dialog that saves a configuration as a user preset, with a name and title."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.storage.paths import user_path, user_presets_folder
from tpu_console.presets import save_preset

from ..text.keys import bind

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from tpu_console.engine.config.run_config import RunConfig


class SavePreset(ModalScreen[Path | None]):
    """The dialog; returns the file that was written, or None.

    Args:
        config: The configuration to save.
        name: The suggested name.
    """

    DEFAULT_CSS = """
    SavePreset {
        align: center middle;
        & > Vertical {
            width: 72; max-width: 100%; height: auto; padding: 0 2;
            border: round $primary; background: $surface;
        }
        .label { color: $text-muted; padding: 1 0 0 0; }
        Input { background: $surface-lighten-1; }
        Input:focus { background: $primary 30%; }
        #save-problem { color: $text-error; height: auto; padding: 1 0 0 0; }
        Horizontal { height: auto; padding: 1 0 0 0; align-horizontal: right; }
        Button { margin: 0 0 0 2; min-width: 12; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("back", "dismiss(None)"),
        bind("help", "app.help"),
    ]

    def __init__(self, config: RunConfig, name: str) -> None:
        super().__init__()
        self._config = config
        self._proposed_name = name

    def compose(self) -> ComposeResult:
        """Lay out the two fields and the buttons."""
        with Vertical() as box:
            box.border_title = "Save as preset"
            yield Static("Name (letters, digits, dots, dashes, underscores)", classes="label")
            yield Input(self._proposed_name, id="save-name", compact=True)
            yield Static("Title (a few words)", classes="label")
            yield Input(id="save-title", compact=True)
            yield Static(f"Saved in {user_path(user_presets_folder())}", classes="label", markup=False)
            yield Static("", id="save-problem", markup=False)
            with Horizontal():
                yield Button("Save", variant="primary", id="save", compact=True)
                yield Button("Cancel", id="cancel", compact=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Move on to the title; from the title, save."""
        if event.input.id == "save-name":
            self.query_one("#save-title").focus()
        else:
            self._save()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Save or cancel."""
        if event.button.id == "save":
            self._save()
        else:
            self.dismiss(None)

    def _save(self) -> None:
        name = self.query_one("#save-name", Input).value.strip()
        title = self.query_one("#save-title", Input).value.strip()
        try:
            path = save_preset(self._config, name, title or name)
        except ConsoleError as error:
            self.query_one("#save-problem", Static).update(f"✗ {error}")
            self.query_one("#save-name").focus()
        else:
            self.dismiss(path)
