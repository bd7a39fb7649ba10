"""The setup screen: choose a preset, change what you like, see what it will do, start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from textual import on, work
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static
from textual.worker import get_current_worker

from tpu_console.engine.config.catalog import OFFLINE_PRESETS
from tpu_console.engine.errors import ConfigError, ConsoleError, Problem, Severity
from tpu_console.engine.machine.devices import Hardware, detect_hardware
from tpu_console.engine.storage.paths import user_path
from tpu_console.presets import preset_files

from ..forms.field_row import ControlKind, FieldRow, FieldSpec, field_of
from ..forms.run_form import FieldList, RunForm
from ..text.keys import bind
from ..widgets.basics import call_back
from ..widgets.setup_parts import PlanPanel, PresetDetail, PresetList, RunningLine, file_name
from .parts import HELP, QUIT, KeysFooter, SavePreset, Title, console_of, show_error

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.timer import Timer

    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.presets.catalog import Preset

    from ..forms.fields import Draft

_MESSAGES_OF_A_KEY = 3  # at most, that a widget sends to itself before its parent gets one
_SETTLED_S = 1.0
_FIND = "Find a preset, a setting, your files or a dataset by its name."
_SETTLED_AGAIN_S = 15.0  # a machine that was busy may be idle then


class SetupScreen(Screen[None]):
    """Chooses, checks and starts a run.

    The keys are control keys and function keys because a cursor in a text field takes the letters; those that
    a browser, tmux or a text field keeps for itself (ctrl+a, ctrl+b, ctrl+n, ctrl+t, ctrl+w) are left alone.
    `detect` looks for accelerators, once and in a thread.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-normal"), (150, "-wide"), (190, "-roomy")]
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (18, "-short"), (34, "-tall")]
    # Textual loads the CSS of a screen that is pushed, but not of the one an app opens with.
    DEFAULT_CSS = Path(__file__).with_name("setup.tcss").read_text(encoding="utf-8")
    AUTO_FOCUS = "PresetList"
    BINDINGS = [
        bind("start", priority=True),
        *map(bind, ("save", "copy")),
        bind("fields", "toggle_all"),
        bind("filter", "find", "Find", about=_FIND, priority=True),  # before fields of numbers, which do not need it
        HELP,
        *map(bind, ("reset", "watch", "runs", "preflight")),
        bind("doctor", "app.doctor"),
        bind("back", about="Go to the list of presets, and from there back.", show=False),
        bind("sweeps", "app.sweeps", show=False),
        QUIT,
    ]

    def __init__(self, preset_files: Sequence[Path] = (), detect: Callable[[], Hardware] = detect_hardware) -> None:
        super().__init__()
        self._preset_files = tuple(preset_files)
        self._detect = detect
        self._hardware = Hardware()
        self._for_data: list[Preset] = []  # those made for data
        self._drafts: dict[str, Draft] = {}
        self.draft: Draft | None = None  # of the chosen preset
        self._broken = ""  # the file that is highlighted in place of a preset
        self._chosen = OFFLINE_PRESETS[0]
        self.config: RunConfig | None = None  # what the form describes, if it is valid
        self._problems: tuple[Problem, ...] = ()
        self._settling: Timer | None = None
        self._waiting: list[Callable[[], object]] = []
        self._has_refused = False  # an error may still be shown

    def compose(self) -> ComposeResult:
        yield Title("set up a run")
        yield RunningLine()
        with Horizontal(id="body"):
            with Vertical(id="left"):
                yield PresetList()
                yield PresetDetail(id="detail")
            with Vertical(id="right"):
                yield (form := RunForm())
                yield PlanPanel(id="plan")
        yield Static("This terminal is too small.\nThe form needs 60×18.", id="too-small")
        yield KeysFooter()
        form.border_title = "Run"

    def on_mount(self) -> None:
        self.call_after_refresh(self._fill)

    def begin_like(self, config: RunConfig) -> None:
        """Fill the form in with a configuration, below its preset."""
        from tpu_console.presets.catalog import find_preset

        try:
            preset = find_preset(config.name, self._preset_files)
        except ConfigError as error:
            self.notify(str(error), title="Not filled in", severity="error", markup=False)
            return
        self._drafts.pop(config.name, None)
        self._draft_of(preset).take(config)
        self._chosen = config.name
        if self.is_mounted:
            self._fill(config.name)

    @work(thread=True, exclusive=True, group="presets", name="read presets")
    def _fill(self, chosen: str = "") -> None:
        """Read the presets in a thread, because the imports take longer than a key press may wait."""
        from tpu_console.engine import planning  # noqa: F401  for the plan that is made next
        from tpu_console.presets.catalog import all_presets

        presets, broken = all_presets(self._preset_files)

        def show() -> None:
            self.query_one(PresetList).show([*self._for_data, *presets], broken, chosen or self._chosen)
            self._look_for_hardware()

        if not get_current_worker().is_cancelled:
            call_back(self, show)

    def _draft_of(self, preset: Preset) -> Draft:
        """Return the draft of a preset, with what was typed into it."""
        from ..forms.fields import Draft

        if preset.name not in self._drafts:
            self._drafts[preset.name] = Draft(preset)
        return self._drafts[preset.name]

    @work(thread=True, exclusive=True, name="hardware")
    def _look_for_hardware(self) -> None:
        call_back(self, self._take_hardware, self._detect())

    def _take_hardware(self, hardware: Hardware) -> None:
        self._hardware = hardware
        gpus, tpu = hardware.gpus, hardware.tpu or "none found"
        gpu = "none found" if not gpus else gpus[0] if len(gpus) == 1 else f"{len(gpus)} × {gpus[0]}"
        kind = f"{hardware.tpu_kind}, {tpu}" if hardware.tpu_kind else tpu
        auto = "TPU here" if hardware.tpu else "GPU here" if gpus else "CPU here"
        labels = {"auto": f"auto ({auto})", "gpu": f"gpu ({gpu})", "tpu": f"tpu ({kind})"}
        self.query_one(RunForm).label_choices("accelerator", labels)
        self.query_one(Title).show(f"set up a run · GPU: {gpu} · TPU: {tpu}")
        self._replan()

    @on(OptionList.OptionHighlighted, "#presets")
    async def _show_highlighted(self) -> None:
        if (entry := self.query_one(PresetList).entry) is None:
            return
        self.query_one(PresetDetail).show(entry)
        form = self.query_one(RunForm)
        form.set_class(isinstance(entry, Exception), "-empty")
        if isinstance(entry, Exception):
            # Empty the form: with the preset before still in it, a run that nobody chose could be started.
            self.draft, self._broken = None, file_name(entry)
            self.config, self._problems = None, ()
            form.border_title = Content(f"Nothing chosen: {self._broken} has errors").markup
            self.query_one(PlanPanel).clear()
        else:
            self.draft, self._broken = self._draft_of(entry), ""
            form.border_title = Content(f"Run: {entry.name}").markup
            await self._load(self.draft)
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            self.call_later(action)

    def _has_chosen(self, action: Callable[[], object], title: str) -> bool:
        """Return whether a preset is chosen; say so if none is, or repeat the action once the presets are read."""
        if self._broken:
            self._refuse(title)
        elif self.draft is None:
            self._waiting.append(action)
        return self.draft is not None

    def _refuse(self, title: str) -> None:
        sentence = f"No preset is chosen, because the file {self._broken} has errors."
        if not self._broken:
            self._has_refused = True
            fields = self.draft.fields() if self.draft is not None else ()
            specs = [(problem, field_of(problem, fields)) for problem in self._problems]  # each says what is wrong
            wrong = dict.fromkeys(str(problem) if spec is None else spec.label for problem, spec in specs)
            sentence = f"To be fixed: {', '.join(wrong)}."
        self.notify(sentence, title=title, severity="error", markup=False)

    @on(OptionList.OptionSelected, "#presets")
    def _go_to_form(self) -> None:
        if self._broken:
            self._refuse("Not chosen")
        else:
            self.query_one(RunForm).focus_first()

    def on_run_form_edited(self, event: RunForm.Edited) -> None:
        """Update the plan; an error that was shown goes when it is corrected."""
        event.stop()
        self._replan()
        if self._has_refused and not self._problems:
            self._has_refused = False
            self.app.clear_notifications()

    def _replan(self) -> None:
        if (draft := self.draft) is None:
            return
        from tpu_console.engine.planning import make_plan

        panel, form, fields = self.query_one(PlanPanel), self.query_one(RunForm), draft.fields()
        self.query_one(PresetList).mark_edited(draft.preset.name, is_edited=draft.is_edited)
        try:
            config = draft.config()
        except ConfigError as error:
            self.config, self._problems = None, error.problems
            panel.show_problems([problem for problem in error.problems if field_of(problem, fields) is None])
        else:
            plan = make_plan(config, self._hardware)
            self.config = config
            self._problems = tuple(
                Problem(item.key, item.text) for item in plan.advice if item.severity is Severity.ERROR
            )
            unplaced = [problem for problem in self._problems if field_of(problem, fields) is None]
            panel.show_plan(plan, config, draft.command(config), unplaced)
        form.show_problems(self._problems)
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(_SETTLED_S, self._settle)

    def _settle(self) -> None:
        self._settling = self.set_timer(_SETTLED_AGAIN_S, self._settle)
        if self.is_current and self.config is not None and not self._problems:
            console_of(self).warm_up(self.config, self._hardware)

    @work(exclusive=True, name="start")
    async def action_start(self) -> None:
        """Start, or show the problems and focus the field of the first one; one that no field can fix gets a dialog."""
        await self._take_keys()
        if not self._has_chosen(self.action_start, "Not started"):
            return
        self._replan()
        if self.config is not None and not self._problems:
            console_of(self).start_run(self.config)
        elif self.config is not None and (lasting := [one.message for one in self._problems if not one.key]):
            remedy = "Install it, then quit and open tpu-console again."
            show_error(self.app, ConsoleError("The run cannot start.", why=lasting[0], remedy=remedy))
        elif self._problems:
            self._refuse("Not started")
            await self.query_one(RunForm).focus_problem(self._problems[0])

    async def _take_keys(self) -> None:
        """Wait until the keys typed so far are in the form.

        Textual handles the start key at once, while other keys wait for their widget. On a busy machine, the run would
        start without them.
        """
        for widget in (self.focused or self).ancestors_with_self:
            for _ in range(_MESSAGES_OF_A_KEY):
                handled = asyncio.Event()
                if widget is not self.app and widget.call_later(handled.set):
                    await handled.wait()

    def _described(self, action: Callable[[], object], title: str) -> RunConfig | None:
        """Return the run that the form describes; None, with a message, if there is none yet or it has problems."""
        if not self._has_chosen(action, title):
            return None
        self._replan()
        if self.config is None:  # the plan shows the last settings that were valid
            self._refuse(title)
        return self.config

    def action_save(self) -> None:
        if (config := self._described(self.action_save, "Not saved")) is not None:
            self.app.push_screen(SavePreset(config, f"my-{config.name}"), self._saved)

    def _saved(self, path: Path | None) -> None:
        if path is not None and self.draft is not None:
            self.draft.reset()
            self._fill(path.name.removesuffix(".toml"))
            self.notify(f"Saved to {user_path(path)}", markup=False)

    def action_find(self) -> None:
        from .find import Find

        fields = self.draft.fields() if self.draft is not None else ()
        fields_first = self.query_one(RunForm).has_focus_within
        self.app.push_screen(Find(self.query_one(PresetList).presets, fields, fields_first), self._take_found)

    async def _take_found(self, found: Preset | FieldSpec | None) -> None:
        if isinstance(found, FieldSpec):
            await self.query_one(RunForm).focus_field(found)
        elif found in (presets := self.query_one(PresetList)).presets:
            presets.choose(found)
        elif found is not None:
            self._take_data(found)

    def _take_data(self, preset: Preset) -> None:
        """List a preset made for data and choose it; one with the name of another preset gets another name."""
        from tpu_console.engine.config.reading import with_changes

        if preset.name in preset_files(self._preset_files):
            name = f"my-{preset.name}"
            config, given = with_changes(preset.config, [("name", name)]), (*preset.given, ("name", name))
            preset = replace(preset, name=name, config=config, given=given)
        self._for_data = [preset, *(each for each in self._for_data if each.name != preset.name)]
        self._drafts.pop(preset.name, None)
        self._fill(preset.name)

    def action_copy(self) -> None:
        if self._described(self.action_copy, "Not copied") is not None:
            self.app.copy_to_clipboard(self.query_one(PlanPanel).command)
            self.notify("Copied. If pasting does not work, select the command in the plan instead.")

    async def action_toggle_all(self) -> None:
        form = self.query_one(RunForm)
        await form.show_all(not form.shows_all)
        form.set_class(form.shows_all, "-all", update=False)
        # Not the fields in it, whose style stays as it is.
        self.app.stylesheet.update_nodes([form, *form.query_children(FieldList)])
        self._replan()

    async def action_reset(self) -> None:
        if self._has_chosen(self.action_reset, "Not reset") and self.draft is not None:
            self.draft.reset()
            await self._load(self.draft)

    def action_preflight(self) -> None:
        config = self._described(self.action_preflight, "No preflight")
        if config is not None and self.draft is not None:
            from .checks import PreflightScreen

            self.app.push_screen(PreflightScreen(config, self.draft.preset.name), self._take_choice)

    async def _take_choice(self, choice: tuple[int, str] | None) -> None:
        if choice is None or self.draft is None:
            return
        chosen = dict(zip(("batch_size", "precision"), map(str, choice), strict=True))
        for spec in self.draft.fields():
            self.draft.set(spec, chosen.get(spec.key, self.draft.text(spec)))
        await self._load(self.draft)

    async def _load(self, draft: Draft) -> None:
        await self.query_one(RunForm).load(draft)
        self._replan()

    def action_back(self) -> None:
        presets = self.query_one(PresetList)
        if presets.has_focus and self.is_current and len(self.app.screen_stack) > 1:
            self.app.pop_screen()
        else:
            presets.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer watching only while a run trains; in a text field, the find key types its character."""
        if action == "find":
            row = self.focused.parent if isinstance(self.focused, Input) else None
            return row is None or (isinstance(row, FieldRow) and row.spec.kind is ControlKind.NUMBER)
        return action != "watch" or any(line.runs or line.sweeps for line in self.query(RunningLine))

    def action_watch(self) -> None:
        from .sweep import SweepScreen

        running = self.query_one(RunningLine)
        if len(running.sweeps) == 1:
            self.app.push_screen(SweepScreen(running.sweeps[0]))
        elif len(running.runs) == 1 and not running.sweeps:
            console_of(self).open_run(running.runs[0])
        else:
            self.action_runs()

    def action_runs(self) -> None:
        from .runs import RunsScreen

        self.app.push_screen(RunsScreen())
