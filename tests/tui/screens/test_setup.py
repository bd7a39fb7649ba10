import shlex
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Checkbox, Input, OptionList, Static

from tests.images import write_image_folder
from tests.tui.live_fakes import FakeEngine, each_size, opens, screen_text, send, shows, toasts, until
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.storage.keyed_store import KeyedStore
from tpu_console.engine.storage.paths import runs_folder
from tpu_console.presets.catalog import all_presets, find_preset, load_preset
from tpu_console.tui.forms.field_row import Choice, FieldRow
from tpu_console.tui.forms.run_form import FieldList, RunForm
from tpu_console.tui.screens.find import Find, PathSuggester
from tpu_console.tui.screens.parts import SavePreset
from tpu_console.tui.screens.setup import SetupScreen
from tpu_console.tui.widgets.setup_parts import PlanPanel, PresetList

DIGITS = find_preset("digits-cnn").config


class Host(App[None]):
    def __init__(self, preset_files: Sequence[Path] = (), hardware: Hardware | None = None) -> None:
        super().__init__()
        self.setup = SetupScreen(preset_files, detect=lambda: hardware or Hardware())
        self.started: list[RunConfig] = []
        self.opened: list[RunDirectory] = []
        self.start_run, self.open_run = self.started.append, self.opened.append

    def get_default_screen(self) -> SetupScreen:
        return self.setup

    def warm_up(self, config: RunConfig, hardware: Hardware) -> None:
        pass

    @property
    def panel(self) -> PlanPanel:
        return self.setup.query_one(PlanPanel)

    @property
    def options(self) -> list[str]:
        """What the command in the plan runs."""
        return shlex.split(self.panel.command)[2:]

    def row(self, key: str) -> FieldRow:
        return next(row for row in self.setup.query(FieldRow) if row.spec.key == key)

    @property
    def keys(self) -> set[str]:
        return {row.spec.key for row in self.setup.query(FieldRow)}

    def figures(self) -> str:
        parts = self.panel.query("#plan-what, #plan-time").results(Static)
        return " ".join(" ".join(str(part.render()) for part in parts).split())


@pytest.fixture(autouse=True)
def _no_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))


@asynccontextmanager
async def opened(
    size: tuple[int, int], *, notifications: bool = False, **options: Any
) -> AsyncIterator[tuple[Pilot[None], Host]]:
    """The form, with its plan and what it knows of this machine."""
    app = Host(**options)
    async with app.run_test(size=size, notifications=notifications) as pilot:
        await until(pilot, lambda: app.panel.command != "" and "accelerator" in app.keys)
        await until(pilot, lambda: any("auto (" in one.labels["auto"] for one in app.row("accelerator").query(Choice)))
        yield pilot, app


async def type_into(pilot: Pilot[None], app: Host, key: str, text: str) -> None:
    field = app.row(key).query_one(Input)
    field.focus()
    field.action_select_all()
    send(app, *(text or ["backspace"]))
    await until(pilot, lambda: app.row(key).text == text)
    await pilot.pause()


ESSENTIAL = {"dataset", "model", "batch_size", "epochs", "optimizer.learning_rate", "accelerator"}


async def test_every_size_shows_the_essential_fields_and_the_plan_and_keeps_what_was_typed() -> None:
    async with opened((80, 24)) as (pilot, app):
        assert app.keys == ESSENTIAL
        assert app.options == ["digits-cnn"]
        assert f"global batch of {DIGITS.batch_size} images" in app.figures()
        await until(pilot, lambda: essential_fields_are_seen(app))
        await type_into(pilot, app, "batch_size", "64")
        assert "batch of 64 images" in app.figures()
        assert "22 steps × 64" in app.figures()
        assert app.options == ["digits-cnn", "--batch-size", "64"]
        assert "Batch size •" in screen_text(pilot)
        async for _ in each_size(pilot, (40, 10), (59, 24), (80, 17)):
            await shows(pilot, "too small")
        hint = app.row("epochs").spec.help
        async for width, _ in each_size(pilot, (60, 18), (200, 50)):
            await until(pilot, lambda: app.setup.region.contains_region(app.setup.query_one(RunForm).region))
            assert app.row("batch_size").text == "64"
            await until(pilot, lambda has_room=width >= 100: (hint in screen_text(pilot)) == has_room)  # type: ignore[misc]  # lambda
        await until(pilot, lambda: essential_fields_are_seen(app))


def essential_fields_are_seen(app: Host) -> bool:
    widgets = [*(app.row(key).query_one(".control") for key in ESSENTIAL), app.panel.query_one("#plan-command")]
    screen = app.setup.region
    return all(screen.contains_region(widget.region) and widget.region.width >= 20 for widget in widgets)


async def test_an_invalid_value_is_marked_and_kept_and_starts_nothing() -> None:
    async with opened((80, 24), notifications=True) as (pilot, app):
        await type_into(pilot, app, "epochs", "3")
        await type_into(pilot, app, "batch_size", "-1")
        row = app.row("batch_size")
        assert row.has_class("-invalid")
        assert "at least 1 (got" in row.problem
        assert "at least 1" not in str(app.panel.query_one("#plan-trouble", Static).render())
        assert "last valid plan" in str(app.panel.query_one("#plan-trouble", Static).render())
        assert f"3 epochs × {1437 // DIGITS.batch_size}" in app.figures()

        await until(pilot, lambda: app.focused is row.query_one(Input), after=("tab", "ctrl+r"))
        assert app.started == []
        assert "Batch size" in toasts(app)[0]
        await until(pilot, lambda: any(text.startswith("Not copied") for text in toasts(app)), after="f3")
        assert app.clipboard == ""

        await type_into(pilot, app, "batch_size", "24")
        assert not row.has_class("-invalid")
        assert app.row("epochs").text == "3"
        assert not toasts(app), "an error toast goes when the value is corrected"

        await type_into(pilot, app, "batch_size", "99999")
        assert "larger than the" in row.problem
        await until(pilot, lambda: app.focused is row.query_one(Input), after=("tab", "ctrl+r"))
        assert app.started == []


async def test_a_run_starts_with_all_that_was_typed_before() -> None:
    async with opened((120, 40)) as (pilot, app):
        await until(pilot, lambda: app.clipboard == "tpu-console run digits-cnn", after="ctrl+y")
        await until(pilot, lambda: app.focused is app.row("dataset").query_one(Choice), after="tab")
        await pilot.press("shift+tab")
        send(app, "down", "ctrl+r")
        await until(pilot, lambda: len(app.started) == 1)
        epochs = app.row("epochs").query_one(Input).focus()
        await until(pilot, lambda: epochs.selected_text == "5")
        send(app, "1", "2", "ctrl+r")
        await until(pilot, lambda: len(app.started) == 2)
    first, second = app.started
    assert first == find_preset("fashion-mnist-cnn").config
    assert second == first.model_copy(update={"epochs": 12})


async def test_keys_move_between_presets_and_fields() -> None:
    names = [preset.name for preset in all_presets()[0]]
    last = find_preset(names[names.index("digits-cnn") + 2])
    async with opened((80, 24)) as (pilot, app):
        await pilot.press("down", "down", "up", "down", "up", "up", "down", "down")
        await until(pilot, lambda: app.panel.command == f"tpu-console run {last.name}")
        assert app.row("batch_size").text == str(last.config.batch_size)
        await until(pilot, lambda: app.panel.command == "tpu-console run digits-cnn", after=("up", "up"))
        for keys, key in (("enter",), "dataset"), (("down", "down"), "batch_size"), (("up",) * 3, "dataset"):
            await pilot.press(*keys)
            await until(pilot, lambda key=key: app.row(key).has_focus_within)  # type: ignore[misc]  # lambda


async def test_keys_that_are_pressed_before_the_presets_are_read_wait_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    is_free = threading.Event()

    def wait(files: Sequence[Path]) -> object:
        is_free.wait()
        return all_presets(files)

    monkeypatch.setattr("tpu_console.presets.catalog.all_presets", wait)
    app = Host()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("ctrl+y", "ctrl+r")
        assert (app.clipboard, app.started) == ("", [])
        is_free.set()
        await until(pilot, lambda: app.started == [DIGITS])
        assert app.clipboard == app.panel.command


async def test_a_field_with_a_problem_is_shown_and_stays_when_the_others_are_hidden_again() -> None:
    async with opened((80, 24)) as (pilot, app):
        draft = app.setup.draft
        assert draft is not None
        draft.set(next(spec for spec in draft.fields() if spec.key == "checkpoint.monitor"), "speed")
        await until(pilot, lambda: "checkpoint.monitor" in app.keys, after="ctrl+r")
        await until(pilot, lambda: app.focused is app.row("checkpoint.monitor").query_one(Input))
        await type_into(pilot, app, "checkpoint.monitor", "val_loss")
        await until(pilot, lambda: "name" in app.keys, after="ctrl+o")
        app.row("loss").focus_control()
        await shows(pilot, *app.row("loss").spec.help.split())
        fields = app.setup.query_one(FieldList)
        await until(pilot, lambda: fields.region.contains_region(app.row("loss").region))
        app.row("model").query_one(Choice).value = "mlp"  # another model shows its options
        await until(pilot, lambda: "model_options.filters" not in app.keys and "model_options.hidden" in app.keys)
        await until(pilot, lambda: "model=mlp" in app.panel.command)
        app.row("model").query_one(Choice).value = "cnn"
        await until(pilot, lambda: "model_options.filters" in app.keys and "model" not in app.panel.command)
        app.row("dataset").query_one(Choice).value = "image-folder"  # files ask for their path
        await until(
            pilot, lambda: "data.options.path" in app.keys and "is required" in app.row("data.options.path").problem
        )
        app.row("dataset").query_one(Choice).value = "digits"
        await until(pilot, lambda: "data.options.path" not in app.keys)
        box = app.row("optimizer.scale_with_replicas").query_one(Checkbox)
        box.focus()
        await until(pilot, lambda: "optimizer.scale_with_replicas=true" in app.panel.command, after="space")
        assert str(box.label) == "on"

        await type_into(pilot, app, "seed", "x")
        app.row("name").query_one(Input).focus()
        await until(pilot, lambda: not app.row("name").display, after="ctrl+o")
        assert app.row("seed").display
        assert app.row("epochs").display
        await until(pilot, lambda: any(row.has_focus_within and row.display for row in app.setup.query(FieldRow)))
        await pilot.press("escape")
        assert app.setup.query_one(PresetList).has_focus
        await until(pilot, lambda: app.row("dataset").has_focus_within, after=("j", "right"))


async def test_simulated_replicas_are_counted_and_devices_are_named() -> None:
    async with opened((120, 40), hardware=Hardware(gpus=("NVIDIA H200", "NVIDIA H200"))) as (pilot, app):
        row = app.row("accelerator")
        choice = row.query_one(Choice)
        assert (choice.labels["gpu"], choice.labels["tpu"]) == ("gpu (2 × NVIDIA H200)", "tpu (none found)")
        await shows(pilot, "auto (GPU here)")
        assert "2 × NVIDIA H200 (auto)" in app.figures()
        choice.focus()
        await until(pilot, lambda: app.focused is row.query_one("Input.own"), after=("enter", "end", "enter"))
        await until(pilot, lambda: app.panel.command == "tpu-console run digits-cnn --accelerator sim:2")
        await until(pilot, lambda: row.problem == "needs a number, such as 2", after="backspace")
        await pilot.press("8")
        batch = DIGITS.batch_size
        await until(pilot, lambda: f"{batch} per replica × 8 = global batch of {8 * batch} images" in app.figures())
        assert app.options == ["digits-cnn", "--accelerator", "sim:8"]


async def test_a_running_run_is_named_and_one_key_opens_it() -> None:
    done, going = (FakeEngine(runs_folder(), label) for label in ("done", "going"))
    for engine in (done, going):
        engine.begin(1)
    done.finish()
    done.die()
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, f"{going.run.run_id} running, epoch 1/10", "Watch")
        assert done.run.run_id not in screen_text(pilot)
        await until(pilot, lambda: app.opened == [going.run], after="ctrl+g")


async def test_each_preset_keeps_its_edits_and_while_a_broken_file_is_highlighted_nothing_is_chosen(
    tmp_path: Path,
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('dataset = "digit"\n')
    other = find_preset("fashion-mnist-cnn").config
    async with opened((80, 24), preset_files=[path]) as (pilot, app):
        presets = app.setup.query_one(PresetList)
        await type_into(pilot, app, "batch_size", "24")
        presets.focus()
        await until(pilot, lambda: app.row("batch_size").text == str(other.batch_size), after="down")
        await pilot.press("end")
        form = app.setup.query_one(RunForm)
        await until(pilot, lambda: form.border_title == "Nothing chosen: bad.toml has errors")
        detail = app.setup.query_one("#detail Static", Static)
        assert "mean 'digits'?" in " ".join(str(detail.render()).split())
        for key in ("ctrl+r", "ctrl+s", "ctrl+y", "f9", "enter"):
            app.clear_notifications()
            await until(pilot, lambda: ["bad.toml" in text for text in toasts(app)] == [True], after=key)
            assert app.screen is app.setup
        assert app.focused is presets
        assert (app.started, app.clipboard, app.figures()) == ([], "", "")
        await until(
            pilot, lambda: "Batch size" not in screen_text(pilot) and "tpu-console run" not in screen_text(pilot)
        )

        presets.choose(next(preset for preset in presets.presets if preset.name == "digits-cnn"))
        await until(pilot, lambda: app.panel.command == "tpu-console run digits-cnn --batch-size 24")
        await shows(pilot, "Batch size")
        await until(pilot, lambda: [config.batch_size for config in app.started] == [24], after="ctrl+r")
        await until(pilot, lambda: app.panel.command == "", after="end")
        app.setup.begin_like(DIGITS.model_copy(update={"batch_size": 32}))
        await until(pilot, lambda: app.panel.command == "tpu-console run digits-cnn --batch-size 32")
        await until(pilot, lambda: app.panel.command == "tpu-console run digits-cnn", after="f6")


async def find(pilot: Pilot[None], app: Host, words: str, offered: str) -> None:
    listed = (await opens(pilot, Find, after="slash")).query_one(OptionList)
    send(app, *words)
    await until(pilot, lambda: listed.display and str(listed.options[0].prompt).startswith(offered))
    await until(pilot, lambda: app.screen is app.setup, after="enter")


@pytest.mark.usefixtures("known_names")
async def test_presets_and_fields_are_found_by_words_and_stay() -> None:
    async with opened((80, 24)) as (pilot, app):
        await find(pilot, app, "cifar aug", "cifar10-vgg-augmented  ")
        await until(pilot, lambda: "tpu-console run cifar10-vgg-augmented" in app.panel.command)
        assert app.setup.query_one(PresetList).has_focus
        form = app.setup.query_one(RunForm)

        def shown() -> list[str]:
            return [row.spec.key for row in form.query(FieldRow) if row.display]

        before = shown()
        app.row("batch_size").focus_control()  # numbers leave the key to the dialog
        await until(pilot, lambda: app.row("batch_size").has_focus_within)
        await find(pilot, app, "early patience", "Early stopping: Patience")
        await until(pilot, lambda: app.row("early_stopping.patience").has_focus_within)
        assert {*shown()} == {*before, "early_stopping.patience"}
        await until(pilot, lambda: "early_stopping.patience=7" in app.panel.command, after=("ctrl+u", *"7"))


@pytest.fixture
def known_names() -> None:
    """Keep what TensorFlow Datasets would list, which a process of its own asks for otherwise."""
    names = {"imdb_reviews": "84 MB to download, 2 classes: Large Movie Review Dataset", "mnist": "12 MB to download"}
    KeyedStore[dict[str, str]]("names.json", dict[str, str]).put(version("tensorflow-datasets"), names)


@pytest.mark.usefixtures("known_names")
async def test_what_lies_here_and_names_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reviews.csv").write_text("text,label\n" + "a good film,yes\na bad film,no\n" * 9)
    (tmp_path / "notes.txt").write_text("nothing to train on")
    write_image_folder(tmp_path / "photos", per_class=2)
    monkeypatch.chdir(tmp_path)
    async with opened((80, 24)) as (pilot, _app):
        dialog = await opens(pilot, Find, after="slash")
        line, listed = dialog.query_one(Input), dialog.query_one(OptionList)

        async def offers(*names: str) -> None:
            await until(pilot, lambda: [str(one.prompt).split("  ")[0] for one in listed.options] == [*names])
            assert listed.display

        await offers("photos", "reviews.csv")
        await shows(pilot, "18 examples in 2 classes")
        await pilot.press(*"review 84")
        await offers("tfds:imdb_reviews")
        await shows(pilot, "84 MB to download")
        await pilot.press("ctrl+u")
        await offers("photos", "reviews.csv")
        await pilot.press("down", "enter")
        await until(pilot, lambda: line.value == "reviews.csv" and "label=label" in screen_text(pilot))
        assert not listed.display


@pytest.mark.usefixtures("known_names")
async def test_your_data_is_inspected_asked_about_listed_and_saved_as_a_preset(tmp_path: Path) -> None:
    table = tmp_path / "digits-cnn.csv"  # the name of a preset, too
    table.write_text("rooms,price\n" + "".join(f"{n % 7},{n * 1.5}\n" for n in range(60)))
    async with opened((80, 24)) as (pilot, app):
        dialog = await opens(pilot, Find, after="slash")
        line, found, answers = dialog.query_one(Input), dialog.query_one("#found", Static), dialog.query_one(OptionList)
        line.value = str(tmp_path / "nothing")
        await until(pilot, lambda: found.has_class("-failed"), after="enter")
        line.value = str(table)
        await until(pilot, lambda: answers.display and answers.has_focus, after="enter")
        assert [str(option.prompt) for option in answers.options] == ["price", "rooms"]
        await until(pilot, lambda: line.has_focus and "label=price" in str(found.render()), after="enter")
        assert "rooms 3, price 88.5" in str(found.render())  # the last row
        await pilot.press("enter")
        answer = "--set data.options.label=price --set name=my-digits-cnn"
        await until(pilot, lambda: app.panel.command == f"tpu-console run {table} {answer}")
        assert [row.spec.key for row in app.setup.query(FieldRow)][:2] == ["dataset", "data.options.path"]
        path = app.row("data.options.path")
        assert path.text == str(table)
        path.query_one(Input).value = str(tmp_path / "nowhere")
        await until(pilot, lambda: "nowhere" in path.problem)
        path.query_one(Input).value = str(table)
        await type_into(pilot, app, "batch_size", "16")
        await until(pilot, lambda: "= 48 " in app.figures())

        save = await opens(pilot, SavePreset, after="ctrl+s")
        name, problem = save.query_one("#save-name", Input), save.query_one(".problem", Static)
        name.value = "mnist-mlp"
        await until(pilot, lambda: "already" in str(problem.render()), after=("tab", *"Prices", "enter"))
        name.value = "prices"
        await until(pilot, lambda: app.panel.command == "tpu-console run prices", after="enter")
        saved = load_preset(tmp_path / "home" / "presets" / "prices.toml")
        assert (saved.about.title, saved.config.dataset) == ("Prices", "table-csv")
        assert (saved.config.batch_size, saved.config.data.options["path"]) == (16, str(table))
        await until(pilot, lambda: app.started == [saved.config], after="ctrl+r")


async def test_a_path_is_completed(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    complete = PathSuggester().get_suggestion
    assert await complete(f"{tmp_path}/ph") == f"{tmp_path}/photos"
    for other in (f"{tmp_path}/photos", f"{tmp_path}/none/ph", "tfds:mn"):
        assert await complete(other) is None
