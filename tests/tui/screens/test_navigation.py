"""The same keys do the same on every screen and in every dialog."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.binding import Binding
from textual.command import CommandPalette
from textual.dom import DOMNode
from textual.pilot import Pilot
from textual.screen import ModalScreen, Screen
from textual.widgets import Button, Input, OptionList
from textual.widgets._toast import Toast

import tpu_console.tui
from tests.engine.machine.recorded import lay_out
from tests.made_verdicts import telling
from tests.tui.live_fakes import FakeEngine, opens, resize, screen_text, send, shows, until
from tests.tui.made_runs import even_report, made_run, made_sweep
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.machine.environment import look_around
from tpu_console.engine.runs.control import take_requests
from tpu_console.presets.catalog import find_preset
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.compat import command_palette
from tpu_console.tui.screens.checks import DoctorScreen, PreflightScreen
from tpu_console.tui.screens.find import Find
from tpu_console.tui.screens.live import LiveScreen, details_dialog
from tpu_console.tui.screens.parts import (
    Confirmation,
    KeysFooter,
    QuestionBox,
    SavePreset,
    TextDialog,
    ValueDialog,
    error_dialog,
)
from tpu_console.tui.screens.results import CompareScreen, ReportScreen
from tpu_console.tui.screens.runs import RunsScreen
from tpu_console.tui.screens.setup import SetupScreen
from tpu_console.tui.screens.sweep import SweepScreen, SweepsScreen
from tpu_console.tui.text.keys import KEYS
from tpu_console.tui.text.run_lines import epochs_problem
from tpu_console.tui.widgets.basics import RowsPane
from tpu_console.tui.widgets.record_table import RecordTable


def screens(tmp_path: Path) -> dict[str, Callable[[], Screen[Any]]]:
    run = made_run()
    config = find_preset("digits-cnn").config
    machine = lay_out("laptop", tmp_path).sources
    engine = FakeEngine()
    engine.begin()
    return {
        "runs": RunsScreen,
        "live": lambda: LiveScreen(engine.run),
        "compare": lambda: CompareScreen([run], "", "braille"),
        "sweep": lambda: SweepScreen(made_sweep()),
        "sweeps": SweepsScreen,
        "doctor": lambda: DoctorScreen(lambda: look_around(machine)),
        "preflight": lambda: PreflightScreen(config, "digits-cnn", telling([])),
        "classes": lambda: ReportScreen("a run", even_report(["a", "b"])),
        "details": lambda: details_dialog(run, LiveScreen(run).snapshot, (), ()),
        "error": lambda: error_dialog(ConsoleError("It failed.", why="So.", remedy="Do this.")),
        "question": lambda: Confirmation("Really?", "It matters.", yes="Yes", no="No"),
        "save": lambda: SavePreset(config, "mine"),
        "value": lambda: ValueDialog("Epochs", "Type a number.", "20", epochs_problem),
    }


async def arrive(pilot: Pilot[Any], screen: Screen[Any]) -> None:
    """Wait until a screen is the one that is shown, and the widget that takes its keys has the focus, if one does."""

    def is_ready() -> bool:
        has_focus = screen.focused is not None or screen.AUTO_FOCUS == "" or not screen.focus_chain
        return pilot.app.screen is screen and screen.is_mounted and has_focus

    await until(pilot, is_ready)


FILTERS = {"runs": "runs that contain some words", "live": "charts whose names match", "compare": "charts whose names"}


@pytest.mark.usefixtures("compiler")
async def test_help_quit_and_escape_work_everywhere(tmp_path: Path) -> None:
    app = ConsoleApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.focused is not None)
        assert "Find a preset" in await help_of(pilot, "f1", "escape")
        titles = [command.title for command in app.get_system_commands(app.screen)]
        assert "Check this machine: accelerators, packages, disks" in titles
        for name, make in screens(tmp_path).items():
            base, screen = app.screen, make()
            app.push_screen(screen)
            await arrive(pilot, screen)
            for key, active in (*base.active_bindings.items(), *screen.active_bindings.items()):
                meaning = active.binding.id  # what is Textual's own has none
                assert key in KEYS[meaning].keys.split(",") if meaning else len(key) > 1, (name, key)
            entries = [(command.title, command.help) for command in app.get_system_commands(screen)]
            assert len(entries) == len({*entries}), "the palette has each entry once"
            assert not [title for title, _ in entries if title == "Palette"], "it is open already"
            takes_letters = isinstance(app.focused, Input)
            said = await help_of(pilot, *(("f1", "escape") if takes_letters else ("question_mark", "f1")))
            assert (FILTERS.get(name, "charts whose names") in said) == (name in FILTERS)
            if not takes_letters and not screen.query(QuestionBox):  # that is to be answered first
                send(app, "q")
                await shows(pilot, "Quit tpu-console?")
                send(app, "n")
                await arrive(pilot, screen)
            assert isinstance(screen, ModalScreen) or len(screen.query(KeysFooter)) == 1, name
            send(app, "escape")
            await arrive(pilot, base)


async def help_of(pilot: Pilot[int], opening: str, closing: str) -> str:
    """Open the help with a key and close it with another; return its words."""
    screen = pilot.app.screen
    send(pilot.app, opening)
    await until(pilot, lambda: pilot.app.screen.has_class("-help") and "escape: close" in screen_text(pilot))
    dialog = await opens(pilot, TextDialog)
    send(pilot.app, closing)
    await arrive(pilot, screen)
    return " ".join(dialog.text.plain.split())


def test_every_key_has_one_meaning_and_every_binding_is_in_the_table() -> None:
    keys = [key for one in KEYS.values() for key in one.keys.split(",")]
    assert len(keys) == len({*keys})
    for module in pkgutil.walk_packages(tpu_console.tui.__path__, "tpu_console.tui."):
        importlib.import_module(module.name)
    bound = 0
    for kind in kinds_of(DOMNode):
        for binding in kind.__dict__.get("BINDINGS", ()) if kind.__module__.startswith("tpu_console.") else ():
            assert isinstance(binding, Binding)
            assert binding.key == KEYS[binding.id].keys, kind  # type: ignore[index]
            bound += 1
    assert bound > len(KEYS)


def kinds_of(kind: type[DOMNode]) -> Iterator[type[DOMNode]]:
    for one in kind.__subclasses__():
        yield from (one, *kinds_of(one))


STEERING = {"stop", "pause", "checkpoint", "epochs", "rate", "profile"}


async def test_no_key_of_the_live_screen_asks_the_run_for_something_without_a_question(engine: FakeEngine) -> None:
    engine.begin(1)
    app = ConsoleApp(run=engine.run)
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "1/10")
        live = app.screen
        acting = [one.binding.key for one in live.active_bindings.values() if one.binding.action.startswith("steer")]
        assert len(acting) >= len(STEERING)
        assert all(key.isupper() for key in acting)
        for name, key in KEYS.items():
            if not key.keys[0].isupper():  # the others look and move
                continue
            send(app, key.keys[0])
            await pilot.pause()
            assert app.screen.query(QuestionBox) or name not in STEERING
            while app.screen is not live:
                await app.pop_screen()
        assert not take_requests(engine.run)


@pytest.mark.usefixtures("compiler")
async def test_a_key_waits_for_the_screen_that_the_key_before_it_opened_also_in_a_tiny_terminal(tmp_path: Path) -> None:
    app = ConsoleApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.focused is not None)
        base = app.screen
        await resize(pilot, (20, 5))
        for make in screens(tmp_path).values():
            app.push_screen(make())
            send(app, "tab", "pagedown", "escape")
            await arrive(pilot, base)
        await resize(pilot, (80, 24))
        for keys in (("q", "n"), ("f1", "escape"), ("ctrl+l", "q", "n", "escape"), ("ctrl+p", "pagedown", "escape")):
            send(app, *keys)
            await pilot.pause()
            await arrive(pilot, base)


async def test_the_palette_opens_again_while_it_closes() -> None:
    app = ConsoleApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.focused is not None)
        app.action_command_palette()
        await until(pilot, lambda: isinstance(app.screen, CommandPalette) and isinstance(app.focused, Input))
        await app.run_action("escape", app.screen)
        app.action_command_palette()
        await until(pilot, lambda: isinstance(app.screen, CommandPalette) and isinstance(app.focused, Input))


async def test_two_answers_close_a_dialog_once() -> None:
    palette, value = command_palette(), ValueDialog("New sweep", "Which?")
    question = Confirmation("Really?", "It matters.", yes="Yes", no="No")
    find = Find([find_preset("digits-cnn")], (), fields_first=False)
    answers: dict[Screen[Any], Callable[[], object]] = {
        palette: palette.dismiss,
        value: lambda: value.post_message(Input.Submitted(Input(), "1")),
        question: lambda: question.post_message(Button.Pressed(Button(id="yes"))),
        find: lambda: find.post_message(Input.Submitted(Input(), "")),
    }
    app = ConsoleApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.focused is not None)
        base = app.screen
        for dialog, answer in answers.items():
            await app.push_screen(dialog)
            if dialog is find:
                find.query_one(Input).value = "digits-cnn"
                await until(pilot, lambda: find.query_one(OptionList).highlighted == 0)
            answer()
            answer()
            await arrive(pilot, base)


async def test_letters_move_in_lists_and_in_the_panes_of_the_live_screen(engine: FakeEngine) -> None:
    made_run()
    engine.begin(30)
    app = ConsoleApp()
    async with app.run_test(size=(80, 24)) as pilot:
        runs = RunsScreen()
        app.push_screen(runs)
        await until(pilot, lambda: isinstance(app.focused, RecordTable) and app.focused.row_count == 2)
        for key, row in (("j", 1), ("k", 0)):
            await pilot.press(key)
            assert runs.query_one(RecordTable).cursor_row == row
        app.push_screen(LiveScreen(engine.run))
        await until(pilot, lambda: "epoch 30" in screen_text(pilot) or "30/" in screen_text(pilot))
        await pilot.press("3")
        pane = app.focused
        assert isinstance(pane, RowsPane)
        await until(pilot, lambda: pane.scroll_y > 0)
        newest = pane.scroll_y
        await until(pilot, lambda: pane.scroll_y < newest, after="k")
        await until(pilot, lambda: pane.scroll_y == newest, after="j")


async def test_escape_goes_from_an_attached_run_to_the_runs_and_from_there_to_the_form() -> None:
    async with ConsoleApp(run=made_run()).run_test(size=(100, 30)) as pilot:
        await opens(pilot, LiveScreen)
        for kind in (RunsScreen, SetupScreen, RunsScreen):
            await opens(pilot, kind, after="escape")


async def test_ctrl_z_suspends_and_ctrl_c_says_in_the_footer_how_to_quit() -> None:
    class Suspended(ConsoleApp):
        times = 0

        def action_suspend_process(self) -> None:
            self.times += 1

    app = Suspended(run=made_run())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await opens(pilot, LiveScreen)
        await pilot.press("ctrl+z", "ctrl+c")
        await until(pilot, lambda: any(toast.region.height for toast in app.screen.query(Toast)))
        toast = app.screen.query_one(Toast)
        assert "Ctrl+Q" in toast.render().plain
        assert toast.region.y == 23
        assert app.times == 1


async def test_a_long_message_below_another_one_keeps_its_last_words() -> None:
    app = ConsoleApp(run=made_run())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await opens(pilot, LiveScreen)
        app.notify("Epochs 60 → 400.")
        app.notify(f"{'The learning rate follows a schedule. ' * 3}Only a constant one can be changed.")
        await until(pilot, lambda: [toast.region.height for toast in app.screen.query(Toast)] == [1, 2])
        assert [toast.region.bottom for toast in app.screen.query(Toast)] == [22, 24]


async def test_the_footer_of_a_closed_screen_asks_for_no_keys() -> None:
    app = ConsoleApp()
    async with app.run_test() as pilot:
        await app.push_screen(screen := RunsScreen())
        await arrive(pilot, screen)
        footer = screen.query_one(KeysFooter)
        await app.pop_screen()
        await footer.recompose()
