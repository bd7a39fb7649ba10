"""Hostile run folders, presets and texts: every command copes with them, and none of them controls the terminal."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import to_builtins

from tests import hostile_runs
from tests.hostile_runs import MARK, NAMES, RUNS, UNSAFE, is_safe, long_ago, make_run
from tests.tui.calling import Call
from tests.tui.commands.test_cli import as_bash_asks
from tests.tui.live_fakes import screen_text, send, until
from tests.tui.terminal_driver import Terminal
from tpu_console.engine.config.reading import load_config
from tpu_console.engine.errors import ConfigError
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.journal import JournalReader, printable_line
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.runs.timing import pace
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.cli import cli
from tpu_console.tui.following.overview import read_details
from tpu_console.tui.following.run_page import page, plain_values
from tpu_console.tui.screens.live import LiveScreen
from tpu_console.tui.widgets.setup_parts import PresetList

UNREADABLE = {
    name for name in RUNS if re.fullmatch("journal is (a folder|a pipe|a device|a link to itself|forbidden)", name)
}
ALL_KEYS = ("l", "x", "x", "s", "asterisk", "p", "p", "p", "z", "escape", "h", "i", "escape", "m")
PANES = ("x", "p", "p", "p")
DRAWN = {
    "every text is hostile": ALL_KEYS,
    "as large as can be": PANES,
    "metrics of every name": PANES,
    "numbers are huge": ("l", *PANES),
    "backwards": PANES,
    "epochs with metrics of every name": PANES,
    "replicas of huge numbers": PANES,
    "journal is a pipe": ("p", "p"),
}
"""Runs that the live screen draws in a test, with keys that draw what they hold; all others differ before that."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("hostile")
    for run in hostile_runs.make_all(home):
        long_ago(run)
    return home


@pytest.fixture
def home(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(corpus))
    return corpus


def test_lists_have_every_run_and_preset_and_say_which_cannot_be_read(home: Path, call: Call) -> None:
    said = {line: call(*line.split()) for line in ("runs", "runs --json", "presets", "presets --json")}
    assert all((code, is_safe(out, err), MARK in out) == (0, True, True) for code, out, err in said.values())
    listed = json.loads(said["runs --json"][1])
    assert len(listed) == len(RUNS) + len(NAMES)
    assert sum(run["state"] == "unreadable" and bool(run["problem"]) for run in listed) == len(UNREADABLE)
    for name in ("pipe", "device", "folder", "large", "loop", "nested", "settings", "keys"):
        assert all(f"/{name}.toml: " in said[line][2] for line in ("presets", "presets --json"))


def test_runs_with_hostile_names_are_found_by_the_name_that_is_shown_and_completed(home: Path, call: Call) -> None:
    for name in NAMES:
        assert is_safe(call.out("show", "--", RunDirectory(home / "runs" / name).run_id))
    offered = CliRunner().invoke(cli, prog_name="tpu-console", env=as_bash_asks("runs", "show", "")).output
    assert len(offered.splitlines()) == len(RUNS) + len(NAMES)
    assert is_safe(offered)


@pytest.mark.parametrize("cls", hostile_runs.EVENT_CLASSES, ids=lambda cls: str(cls.__name__))
@pytest.mark.parametrize("is_escaped", [True, False])
def test_no_text_of_an_event_keeps_anything_unsafe(tmp_path: Path, cls: type[object], is_escaped: bool) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps(hostile_runs.hostile_event(cls), ensure_ascii=is_escaped) + "\n", "utf-8")
    (record,) = JournalReader(path).read()
    assert isinstance(record.event, cls)
    values = to_builtins(record.event)
    assert MARK in str(values) or cls.__name__ in {"MemorySampled"} or MARK not in str(hostile_runs.hostile_event(cls))
    assert not UNSAFE & set(text_of(values) + text_of(json.loads(printable_line(record.line))))


def text_of(values: object) -> str:
    if isinstance(values, dict):
        return "".join(f"{key}{text_of(value)}" for key, value in values.items())
    return "".join(map(text_of, values)) if isinstance(values, list | tuple) else str(values)


def test_the_state_of_every_hostile_run_can_be_worked_with(home: Path) -> None:
    for name, folder in zip(RUNS, sorted((home / "runs").glob("20270101-*-hostile")), strict=True):
        if name in UNREADABLE:
            continue
        snapshot = RunFollower(RunDirectory(folder)).catch_up()
        pace(snapshot.state)
        assert len(snapshot.log) <= 2000
        details = read_details(RunDirectory(folder))
        assert is_safe(json.dumps(plain_values(details), ensure_ascii=False), "\n".join(page(details, 80))), name


def test_a_line_that_is_too_long_is_skipped_without_being_held(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "no line feed")
    reader = JournalReader(RunDirectory(folder).journal)
    assert reader.read() == []
    assert reader.skipped == 1
    with (folder / "events.jsonl").open("ab") as file:
        file.write(b"\n" + json.dumps(hostile_runs.hostile_event(hostile_runs.EVENT_CLASSES[0])).encode() + b"\n")
    assert [type(record.event) for record in reader.read()] == [hostile_runs.EVENT_CLASSES[0]]
    assert reader.skipped == 1


@pytest.mark.parametrize(
    "name", [name for name in RUNS if name.startswith("config is") and name != "config is for another run"]
)
def test_a_broken_config_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    folder = make_run(tmp_path, name)
    with pytest.raises(ConfigError) as caught:
        load_config(folder / "config.toml")
    assert is_safe(str(caught.value))
    assert len(str(caught.value)) < 1000


async def test_the_live_screen_draws_hostile_runs(tmp_path: Path) -> None:
    app = ConsoleApp()
    async with app.run_test(size=(100, 32)) as pilot:
        await until(pilot, lambda: app.focused is not None)
        base = app.screen
        for name, keys in DRAWN.items():
            folder = make_run(tmp_path / name, name)
            long_ago(folder)
            await app.push_screen(screen := LiveScreen(RunDirectory(folder)))
            await until(pilot, lambda: screen.is_over or screen.snapshot.trouble)
            for key in keys:
                send(app, key)
                await pilot.pause()
                assert not UNSAFE & set(screen_text(pilot)), (name, key)
            while app.screen is not base:
                await app.pop_screen()


def raw_of(home: Path, *arguments: str, shown: str, keys: tuple[str, ...] = ()) -> bytes:
    """Every byte that the program writes to a terminal until it has shown a text and was left."""
    terminal = Terminal(*arguments, home=home, size=(120, 40))
    try:
        terminal.wait_for(shown)
        for key in keys:
            terminal.press(key)
        terminal.press("ctrl+q")
        terminal.wait()
        return terminal.raw
    finally:
        terminal.close()


def payload_sequences(raw: bytes) -> list[bytes]:
    """Find control sequences of the payload in what a terminal got.

    The console's own sequences hold no mark; what the mark follows at once in the payload is none of its own either.
    """
    text = raw.decode("utf-8", "surrogateescape")
    found = re.findall(
        rf"\x1b[\]PX^_][^\x1b\x07]*{MARK}|[\x80-\x9f]|[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c\u200b]", text
    )
    found += re.findall(rf"\x1b\[2J\x1b\[31m{MARK}|[\x07\x08\x7f\r]{MARK}", text)
    return [one.encode("utf-8", "surrogateescape") for one in found]


@pytest.mark.slow
def test_no_sequence_of_a_payload_reaches_a_terminal(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = make_run(home / "runs", "every text is hostile")
    hostile_name = folder.rename(folder.with_name(f"20270101-{hostile_runs.HOSTILE.replace('/', '')[:60]}"))
    hostile_runs.make_presets(home)
    long_ago(hostile_name)
    raw = raw_of(home, "attach", shown="failed", keys=("p", "p", "p", "i", "escape"))
    raw += raw_of(home, shown="Presets", keys=("end", "up", "up"))
    assert MARK.encode() in raw
    assert payload_sequences(raw) == []


def test_no_control_character_is_printed(private_home: Path, call: Call) -> None:
    run = make_run(private_home / "runs", "every text is hostile")
    long_ago(run)
    for arguments in (("show",), ("attach",), ("attach", "--json")):
        _, out, err = call(*arguments, str(run))
        assert (MARK in out + err, is_safe(out, err)) == (True, True), arguments


async def test_markup_in_a_preset_s_name_is_shown_and_not_obeyed(private_home: Path) -> None:
    hostile_runs.make_presets(private_home)
    async with ConsoleApp().run_test(size=(120, 40)) as pilot:
        presets = pilot.app.screen.query_one(PresetList)
        await until(pilot, lambda: presets.option_count)
        names = [str(presets.get_option_at_index(index).prompt) for index in range(presets.option_count)]
        presets.highlighted = next(index for index, name in enumerate(names) if "[red]markup[bold]" in name)
        await until(pilot, lambda: "Run: [red]markup[bold]" in screen_text(pilot))
        assert "╭─ [red]markup[bold] " in screen_text(pilot)
        assert "[@click=app.quit]x[/]" in screen_text(pilot)
