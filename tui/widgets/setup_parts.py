"""What stands around the form of a run: the presets, the chosen one, the plan, and a line on what trains now."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from textual import work
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import get_current_worker

from tpu_console.engine.config.catalog import DATASETS, is_user_reference
from tpu_console.engine.errors import ConfigError, Problem, Severity
from tpu_console.engine.runs.heartbeat import Liveness, liveness_of
from tpu_console.engine.runs.run_directory import RunDirectory, list_runs
from tpu_console.engine.storage.paths import sweeps_folder, user_path

from ..following.run_list import epochs_text
from ..text.keys import bind
from ..text.names import data_state, short_name
from ..text.numbers import shape, size
from ..text.plan_text import PlanLine, advice_entries, counts, figures, problem_entries
from .basics import FactLines, Overflow, call_back

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.planning import Plan
    from tpu_console.engine.sweeps.folder import Sweep
    from tpu_console.presets.catalog import Preset

    from ..following.overview import Overview, RunReader


class PresetList(OptionList):
    """The list of presets. The highlighted entry is the chosen one."""

    BORDER_TITLE = "Presets · [@click=screen.find]your data… (/)[/]"
    BINDINGS = [bind("down", "cursor_down"), bind("up", "cursor_up"), bind("right", "select")]

    def __init__(self) -> None:
        super().__init__(id="presets", markup=False)
        self._entries: list[Preset | ConfigError] = []
        self._edited: set[str] = set()

    def show(self, presets: Sequence[Preset], broken: Sequence[ConfigError], chosen: str) -> None:
        """Show the valid presets and the errors of the other files; highlight the chosen one, or else the first one."""
        self._entries = [*presets, *broken]
        self.set_options([Option(self._prompt(entry)) for entry in self._entries])
        names = [preset.name for preset in presets]
        self.highlighted = names.index(chosen) if chosen in names else 0

    @property
    def entry(self) -> Preset | ConfigError | None:
        """The highlighted preset, or the errors of a file that is not a valid preset."""
        return None if self.highlighted is None else self._entries[self.highlighted]

    @property
    def presets(self) -> list[Preset]:
        """The valid presets."""
        return [entry for entry in self._entries if not isinstance(entry, Exception)]

    def choose(self, preset: Preset) -> None:
        """Highlight a preset."""
        self.highlighted = self._entries.index(preset)
        self.focus()

    def action_page_up(self) -> None:
        """Move up by a page; in a terminal too low to show a line, Textual finds none and fails."""
        with suppress(KeyError):
            super().action_page_up()  # type: ignore[no-untyped-call]  # untyped in Textual

    def action_page_down(self) -> None:
        with suppress(KeyError):
            super().action_page_down()  # type: ignore[no-untyped-call]

    def mark_edited(self, name: str, *, is_edited: bool) -> None:
        """Mark a preset as edited in the form, or remove the mark."""
        (self._edited.add if is_edited else self._edited.discard)(name)
        for index, entry in enumerate(self._entries):
            if not isinstance(entry, Exception) and entry.name == name:
                self.replace_option_prompt_at_index(index, self._prompt(entry))

    def _prompt(self, entry: Preset | ConfigError) -> Content:
        if isinstance(entry, Exception):
            return Content.assemble((f"✗ {file_name(entry)}", "bold"), "\nhas errors; see below")
        mark = " •" if entry.name in self._edited else ""
        state = data_state(entry.config).replace(" ", "\N{NO-BREAK SPACE}")
        return Content.assemble((f"{entry.name}{mark}", "bold"), ("  " + state, "dim"), f"\n{entry.about.title}")


def file_name(error: ConfigError) -> str:
    """Return the name of a file that is not a valid preset."""
    return error.source.replace("\\", "/").rpartition("/")[2] or "a preset file"


class PresetDetail(VerticalScroll, can_focus=False):
    """The description beside the list of presets."""

    DEFAULT_CSS = "PresetDetail { scrollbar-gutter: stable; }"
    BORDER_TITLE = "About"

    def compose(self) -> ComposeResult:
        yield FactLines()

    def show(self, entry: Preset | ConfigError) -> None:
        """Show a preset, or the errors of a file that is not a valid preset."""
        if isinstance(entry, ConfigError):
            title, facts = "Errors", [PlanLine("", entry.source), *problem_entries(entry.problems)]
        else:
            title, facts = entry.name, _described(entry)
        self.border_title = Content(title).markup
        self.scroll_home(animate=False)
        self.query_one(FactLines).show(facts)


def _described(preset: Preset) -> list[PlanLine]:
    """Describe a preset, one entry per fact."""
    # These import Pydantic, which the first frame does without.
    from tpu_console.engine.data.kinds.table import kind_of
    from tpu_console.engine.models.table import MODELS

    if preset.notes:
        return [PlanLine(label.ljust(9), text) for label, text in preset.notes]
    model, info = preset.config.model, DATASETS.get(preset.config.dataset)
    if info is None:
        data = _files(preset)
    else:
        state = f"downloaded ({size(info.download_bytes)})" if info.files else "no download needed"
        if (download := kind_of(preset.config.dataset).missing_download(preset.config)) is not None:
            state = f"not on this machine yet; {size(download.size)} to download"
        sizes = f"{info.train_examples:,} training, {info.validation_examples:,} validation examples"
        data = [info.title, f"{sizes}; {shape(info.input_shape)}, {info.classes} classes", state]
    facts = [
        ("Score", preset.about.expected_score),
        ("Time", preset.about.expected_time),
        *zip(["Data", *([""] * len(data))], data, strict=False),
        *([] if info is None else [("Licence", info.licence)]),
        ("Model", f"{model}: {MODELS[model].title}" if model in MODELS else model),
        ("Based on", preset.about.reproduces),
        *([] if preset.is_builtin else [("File", user_path(preset.path))]),
    ]
    title = PlanLine("", preset.about.title, text_style="bold")
    return [title, *(PlanLine(label.ljust(9), text) for label, text in facts)]


def _files(preset: Preset) -> list[str]:
    """Describe a dataset of files: what they are, which of them exist, and where to get them."""
    from tpu_console.engine.data.kinds.table import kind_of

    config = preset.config
    if is_user_reference(config.dataset):
        return [config.dataset]
    kind = kind_of(config.dataset)
    found, download = kind.survey(config), kind.missing_download(config)
    if found.problems:
        state = "not on this machine yet" if found.is_missing else found.problems[0].message
    elif (train := found.train(config.data.validation_fraction)) is None:
        state = found.unknown
    else:
        state = f"{train:,} training, {found.held_out(config.data.validation_fraction):,} validation examples"
        classes = len(found.class_names or found.classes)
        state += f", {classes:,} classes" if classes else ""
    about = (str(config.data.options[kind.source]), state, download.sentence if download else "", preset.about.data)
    return [f"{kind.name}: {kind.title}", *filter(None, about)]


_PLAN = {  # the parts of the plan, each with its title
    "trouble": "",
    "what": "What runs",
    "time": "How long",
    "command": "Equivalent command (ctrl+y copies it)",
    "advice": "What to watch out for",
}


class PlanPanel(Overflow):
    """Shows the plan. While the form has problems, it lists them above the last good plan, dimmed."""

    DEFAULT_CSS = """
    PlanPanel {
        scrollbar-gutter: stable;
        Static { height: auto; width: 1fr; }
        &.-stale > Static { opacity: 50%; }
        &.-stale > #plan-trouble { opacity: 100%; }
        #plan-trouble { padding: 0 0 1 0; }
        .title { color: $text-muted; text-style: bold; }
        #plan-time-title, #plan-advice-title { padding: 1 0 0 0; }
        #plan-command-title { color: $text-muted; padding: 1 0 0 0; }
        #plan-command { color: $text-success; background: $surface-lighten-1; padding: 0 1; }
        .-empty { display: none; }
    }
    """
    BORDER_TITLE = "Plan"
    command = ""

    def compose(self) -> ComposeResult:
        for name, title in _PLAN.items():
            if title:
                yield Static(title, id=f"plan-{name}-title", classes="title -empty", markup=False)
            kind = Static if name == "command" else FactLines
            yield kind(id=f"plan-{name}", classes="-empty")

    def show_plan(self, plan: Plan, config: RunConfig, command: str, problems: Sequence[Problem]) -> None:
        """Show a plan, and the problems that no field shows."""
        what, time = figures(plan, config)
        advice = advice_entries(item for item in plan.advice if item.severity is not Severity.ERROR)
        self._show(command, problem_entries(problems), counts(plan.advice), what=what, time=time, advice=advice)

    def clear(self) -> None:
        """Show nothing."""
        self._show("", [], "", what=[], time=[], advice=[])

    def show_problems(self, problems: Sequence[Problem]) -> None:
        """Show that the form has problems, and those that no field shows; the plan stays as it was."""
        below = " Below: the last valid plan." if self.command else ""
        title = PlanLine("", f"Fix the marked fields.{below}", text_style="bold")
        self._show(self.command, [title, *problem_entries(problems)], "✗")
        self.add_class("-stale")

    def _show(self, command: str, trouble: list[PlanLine], subtitle: str, **parts: list[PlanLine]) -> None:
        self.command, self.border_subtitle = command, subtitle
        self.remove_class("-stale")
        self.query_one("#plan-command", Static).update(Content(command))
        parts["trouble"] = trouble
        for name, entries in parts.items():
            self.query_one(f"#plan-{name}", FactLines).show(entries)
        for name, part in {"command": command, **parts}.items():
            self.query(f"#plan-{name}, #plan-{name}-title").set_class(not part, "-empty")


_LOOK_S = 5.0
_MOST_RUNS = 50  # the newest ones; each look reads their heartbeats


class RunningLine(Static):
    """Names the running sweeps and runs and how far they are; takes no room if there are none."""

    DEFAULT_CSS = """
    RunningLine {
        display: none; height: 1; padding: 0 1; color: $text-accent; background: $primary 12%;
        text-wrap: nowrap; text-overflow: ellipsis;
        &.-shown { display: block; }
    }
    """

    def __init__(self) -> None:
        super().__init__(id="running", markup=False)
        self._readers: dict[str, RunReader] = {}
        self.runs: list[RunDirectory] = []  # the running ones, the newest first
        self.sweeps: list[Sweep] = []  # likewise

    def on_mount(self) -> None:
        self.call_after_refresh(self._look)
        self.set_interval(_LOOK_S, lambda: self._look() if self.screen.is_current else None, name="running runs")

    @work(thread=True, exclusive=True, group="running runs", name="look for running runs")
    def _look(self) -> None:
        alive = [run for run in list_runs()[:_MOST_RUNS] if liveness_of(run) is not Liveness.DEAD]
        sweeps: list[Sweep] = []
        overviews: list[Overview] = []
        if sweeps_folder().is_dir():
            from tpu_console.engine.sweeps.folder import running_sweeps

            sweeps = running_sweeps()
        if alive:
            # The journal reader imports NumPy: only for runs that need it.
            from ..following.overview import RunReader

            self._readers = {run.run_id: self._readers.get(run.run_id) or RunReader(run) for run in alive}
            overviews = [seen for reader in self._readers.values() if (seen := reader.overview()).status.is_live]
        if not get_current_worker().is_cancelled:
            call_back(self, self._show, overviews, sweeps)

    def _show(self, overviews: Sequence[Overview], sweeps: list[Sweep]) -> None:
        self.runs, self.sweeps = [one.run for one in overviews], sweeps
        texts = [f"▶ sweep {short_name(sweep.name)}" for sweep in sweeps]
        for one in overviews:
            epochs = f", epoch {epochs_text(one)}" if one.facts.epochs is not None else ""
            texts.append(f"▶ {one.run.run_id} {one.status_text}{epochs}")
        self.update("   ".join(texts))
        if bool(texts) != self.has_class("-shown"):
            self.toggle_class("-shown")
            self.screen.refresh_bindings()
