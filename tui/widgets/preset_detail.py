"""Describes the chosen preset: its data and model, what it reproduces, and the expected score and time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static

from tpu_console.engine.config.catalog import DATASETS
from tpu_console.engine.errors import ConfigError
from tpu_console.engine.storage.paths import user_path

from ..text.numbers import shape, size
from ..text.plan_text import Entry, laid_out, problem_entries
from .reading import Overflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from tpu_console.presets import Preset


class PresetDetail(Overflow):
    """The description beside the list of presets."""

    DEFAULT_CSS = """
    PresetDetail {
        Static { height: auto; width: 1fr; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  Textual's own name
        super().__init__(id=id)
        self.border_title = "About"
        self._entries: Sequence[Entry] = ()

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        yield Static("")

    def show(self, entry: Preset | ConfigError) -> None:
        """Show a preset, or the errors of a file that is not a valid preset."""
        if isinstance(entry, ConfigError):
            title, self._entries = "Errors", [Entry("", entry.source), *problem_entries(entry.problems)]
        else:
            title, self._entries = entry.name, _described(entry)
        self.border_title = Content(title).markup
        self.scroll_home(animate=False)
        self._draw()

    def on_resize(self) -> None:
        """Wrap the text again for the new width."""
        self._draw()

    def _draw(self) -> None:
        # One column is reserved for the scroll bar, so that the text does not wrap again when it appears.
        width = max(16, self.content_size.width - 1)
        self.query_one(Static).update(laid_out(self._entries, width))


def _described(preset: Preset) -> list[Entry]:
    """Describe a preset, one entry per fact."""
    facts = [
        ("Score", preset.about.expected_score),
        ("Time", preset.about.expected_time),
        *_data(preset),
        ("Model", _model(preset.config.model)),
        ("Based on", preset.about.reproduces),
    ]
    if not preset.is_builtin:
        facts.append(("File", user_path(preset.path)))
    title = Entry("", preset.about.title, text_style="bold")
    return [title, *(Entry(label.ljust(9), text) for label, text in facts)]


def _data(preset: Preset) -> list[tuple[str, str]]:
    info = DATASETS.get(preset.config.dataset)
    if info is None:
        return _files(preset)
    missing = info.missing_files()
    if missing:
        state = f"not on this machine yet; {size(sum(file.download_bytes for file in missing))} to download"
    else:
        state = f"downloaded ({size(info.download_bytes)})" if info.files else "no download needed"
    sizes = (
        f"{info.train_examples:,} training, {info.validation_examples:,} validation examples; "
        f"{shape(info.input_shape)}, {info.classes} classes"
    )
    return [("Data", info.title), ("", sizes), ("", state), ("Licence", info.licence)]


def _files(preset: Preset) -> list[tuple[str, str]]:
    """Describe a dataset of files: what they are, which of them exist, and where to get them."""
    from tpu_console.engine.data.kinds.table import KINDS
    from tpu_console.engine.data.survey.survey import survey

    config = preset.config
    found = survey(config)
    if found is None:
        return [("Data", config.dataset)]
    if found.problems:
        state = "not on this machine yet" if found.is_missing else found.problems[0].message
    elif (train := found.train(config.data.validation_fraction)) is None:
        state = found.unknown
    else:
        state = f"{train:,} training, {found.held_out(config.data.validation_fraction):,} validation examples"
        state += f", {len(found.classes):,} classes" if found.classes else ""
    path = str(config.data.options["path"])
    about = [("", text) for text in (path, state, preset.about.data) if text]
    return [("Data", f"{config.dataset}: {KINDS[config.dataset].title}"), *about]


def _model(model: str) -> str:
    from tpu_console.engine.models.table import MODELS  # with Pydantic, which the first frame does without

    return f"{model}: {MODELS[model].title}" if model in MODELS else model
