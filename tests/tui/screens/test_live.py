"""The live screen; that of a run that has ended well is recorded."""

import math
import signal
import subprocess
import sys
import time

import pytest

from tests.helpers import replace
from tests.tui.live_fakes import (
    FakeEngine,
    asked_of,
    each_size,
    live,
    opens,
    resize,
    says,
    screen_text,
    send,
    shows,
    until,
)
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.config.run_config import to_toml
from tpu_console.engine.runs.control import STOP, is_waiting, take_requests
from tpu_console.engine.runs.events import (
    Alerted,
    CheckpointSaved,
    EpochEnded,
    Noticed,
    PhaseStarted,
    Profiled,
    RunFailed,
    RunResumed,
    RunStarted,
    Spent,
    Steered,
    StopRequested,
)
from tpu_console.engine.runs.heartbeat import write_heartbeat
from tpu_console.presets.catalog import find_preset
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.charts.curve import Axis
from tpu_console.tui.screens.live import LiveScreen
from tpu_console.tui.screens.parts import TextDialog
from tpu_console.tui.screens.setup import SetupScreen
from tpu_console.tui.text.keys import KEYS
from tpu_console.tui.widgets.basics import PaneTabs
from tpu_console.tui.widgets.epoch_table import EpochTable
from tpu_console.tui.widgets.run_header import OutcomeBox

SIZES = [(80, 24), (120, 40), (200, 50)]
SHORT = [(80, 20), (120, 18), (200, 18), (200, 23)]


def app_on(engine: FakeEngine, **options: str) -> ConsoleApp:
    return ConsoleApp(run=engine.run, **options)  # type: ignore[arg-type]  # marker and theme only


async def test_a_run_that_trains(engine: FakeEngine) -> None:
    engine.begin(4)
    engine.train(5, ends=False)
    engine.run.log.write_text("loaded [bold]plugin[/bold]\n")
    async with app_on(engine).run_test(size=SIZES[0]) as pilot:
        async for width, _ in each_size(pilot, *SIZES):
            facts = ("digits 1,437 + 360 images", "52,234 parameters", "batch 32") if width > 120 else ()
            await shows(pilot, engine.run.run_id, *facts)
            await shows(pilot, "CPU, 1 replica", "5/10", "44%", "10.0 ms/step", "3,200 examples/s")
            await shows(pilot, "★     3 0.6667", "▸     5", "Stop", "Detach", "Help")
            if width >= 120:
                await shows(pilot, "1.25 s", "3,200/s", "loaded [bold]plugin[/bold]", "Filter")


async def test_without_room_one_lower_pane_at_a_time(engine: FakeEngine) -> None:
    engine.begin(1)
    engine.run.log.write_text("a line of the log\n")
    async with app_on(engine).run_test(size=(80, 24)) as pilot:
        await shows(pilot, "val_", "0.20 s")
        assert "CPU:0" not in screen_text(pilot)
        await shows(pilot, "CPU:0", "tpu-vm-0", after="p")
        await shows(pilot, "a line of the log", after="p")
        await shows(pilot, "0.20 s", after="p")
        await pilot.click("#tabs", offset=(14, 0))
        await shows(pilot, "CPU:0")
        tabs = live(pilot).query_one(PaneTabs)
        for size, is_marked in (((80, 50), False), ((80, 24), True), ((120, 40), False)):
            await resize(pilot, size)
            await until(pilot, lambda: ("reverse" in str(tabs.render().spans)) == is_marked)  # noqa: B023  called at once


async def test_new_events_appear_while_the_screen_is_open(engine: FakeEngine) -> None:
    async with app_on(engine).run_test(size=(120, 40)) as pilot:
        await shows(pilot, "starting", "connecting")
        engine.begin()
        await shows(pilot, "✓ importing      3.00 s", "· loading data", "Compiling for the", "one row per epoch")
        await shows(pilot, "Nothing has been trained yet", "It is compiling", after="K")
        await pilot.press("n")
        engine.train(1)
        await shows(pilot, "1/10", "★     1")
        engine.train(2)
        await shows(pilot, "★     2")
        assert live(pilot).query_one(EpochTable).row_count() == 2


async def test_keys_change_the_look_of_all_charts_and_zoom_every_pane(engine: FakeEngine) -> None:
    engine.begin(1)
    async with app_on(engine).run_test(size=(120, 40)) as pilot:
        await shows(pilot, "★     1")
        charts = live(pilot).grid.on_page
        for keys, look in (
            (("s", "l", "x", "asterisk"), (0.5, True, Axis.EPOCH, "block")),
            (("s", "s", "s", "s", "l", "x", "x", "asterisk", "asterisk"), (0.0, False, Axis.STEP, "braille")),
        ):
            await pilot.press(*keys)
            assert {(chart.smoothing, chart.log_scale, chart.axis, chart.marker) for chart in charts} == {look}
        panes = {pane.id: pane for pane in live(pilot).query("#epochs, #replicas, #log")}
        panes |= {chart.title: chart for chart in charts}

        async def is_zoomed(name: str) -> None:
            await until(pilot, lambda: panes[name].region.width >= 118)
            assert [key for key, pane in panes.items() if pane.region.area and pane.is_on_screen] == [name]

        for number, name in enumerate(("loss", "accuracy", "epochs", "replicas", "log"), 1):
            send(pilot.app, str(number))
            await is_zoomed(name)
        await until(pilot, lambda: panes["loss"].region.area, after="5")
        await pilot.press("z")  # the pane that was zoomed has the focus
        await is_zoomed("log")
        await until(pilot, lambda: 0 < panes["loss"].region.width < 118, after="escape")
        panes["accuracy"].focus()
        await pilot.press("z")
        await is_zoomed("accuracy")
        await until(pilot, lambda: 0 < panes["accuracy"].region.width < 118, after="escape")


async def test_a_chart_is_whole_in_the_smallest_terminals(engine: FakeEngine) -> None:
    engine.begin(1)
    async with app_on(engine).run_test(size=(40, 12)) as pilot:
        async for _ in each_size(pilot, (60, 18), (40, 12)):
            await shows(pilot, "loss", "└", "Cursor")
        engine.finish(reason="Many words that wrap. " * 8)
        async for size in each_size(pilot, (60, 18), (40, 12)):
            await shows(pilot, "Finished", "└", "Cursor")
            await shows(pilot, "└", " ep ", "Cursor", after="right")
            assert live(pilot).grid.on_page[0].region.bottom < size[1]
            await pilot.press("escape")
        await until(pilot, lambda: live(pilot).query_one(EpochTable).is_on_screen, after="3")


async def test_a_stop_is_requested_after_a_question_that_says_what_killing_loses(engine: FakeEngine) -> None:
    engine.begin(1)
    control = engine.run.control
    async with app_on(engine).run_test(size=(80, 24), notifications=True) as pilot:
        await shows(pilot, "1/10")
        for no, lost in (("n", "all of its work"), ("escape", "last checkpoint,")):
            await shows(pilot, "Stop training?", "tpu-console resume", lost, after="K")
            await opens(pilot, LiveScreen, after=no)
            engine.run.checkpoints.mkdir(exist_ok=True)
            (engine.run.checkpoints / "state-000001.ckpt").touch()
        assert not any(control.iterdir())

        control.rmdir()
        control.write_text("a file where a folder belongs")
        await until(pilot, says(pilot, "Cannot write the request"), after=("K", "y"))
        assert "stopping" not in screen_text(pilot)

        control.unlink()
        control.mkdir()
        await pilot.press("K", "down", "enter")
        assert (await asked_of(pilot, engine.run)).action == "stop_after_epoch"
        engine.write(StopRequested("asked from the console", "epoch"))
        await shows(pilot, "stopping after this epoch")
        await until(pilot, lambda: is_waiting(engine.run, STOP), after=("K", "enter"))
        assert "in the console" in (control / "stop.json").read_text()
        engine.write(StopRequested("asked from the console"))
        engine.finish("stopped", "asked from the console")
        await shows(pilot, "Stopped on request after 1 epoch")
        await pilot.press("K")
        assert pilot.app.screen is live(pilot), "there is nothing left to stop"
        live(pilot).follow_again()
        live(pilot).controls.stop_if("stop")  # while a run is resumed, its journal still says that it is over
        await until(pilot, lambda: live(pilot).is_over and is_waiting(engine.run, STOP))


ASKED = [  # the phase, the key, the question, what is typed, and the request
    ("training", "P", "Pause training?", ("enter",), ("pause", "")),
    ("paused", "P", "Continue training?", ("enter",), ("continue", "")),
    ("[/nonsense]", "W", "Write a checkpoint now?", ("y",), ("checkpoint", "")),
    ("training", "E", "The run has 10 epochs.", ("x", "enter", "backspace", *"+5", "enter"), ("epochs", "+5")),
    ("training", "T", "A new one takes effect", (*"1e-4", "enter"), ("learning_rate", "1e-4")),
]


async def test_keys_ask_the_run_after_a_question_and_its_answers_are_shown(engine: FakeEngine) -> None:
    engine.begin(1)
    numbers = {}
    async with app_on(engine).run_test(size=(80, 24), notifications=True) as pilot:
        for phase, key, question, typed, asked in ASKED:
            engine.write(PhaseStarted(phase))
            await shows(pilot, "1/10", phase, {"pause": "P Pause", "continue": "P Continue"}.get(asked[0], ""))
            await shows(pilot, question, after=key)
            await pilot.press(*typed)
            request = await asked_of(pilot, engine.run)
            assert (request.action, request.value) == asked
            numbers[asked[0]] = request.number
        several = "several hosts train this run together, and they can only be stopped"
        for event, answer in (
            (Steered("checkpoint", "me", 1, 20, 1.0), "Checkpoint saved."),
            (Steered("epochs", "me", 1, 20, 1.0, 10.0, 15.0), "Epochs 10 → 15."),
            (Steered("learning_rate", "me", 1, 20, 1.0, refused=several), "Learning rate refused"),
        ):
            engine.write(replace(event, request=numbers[event.action]))
            await until(pilot, says(pilot, answer))
        await shows(pilot, "A new one takes effect", after="T")
        engine.finish()
        await until(pilot, lambda: live(pilot).is_over)
        await pilot.press(*"1e-4", "enter")
        await until(pilot, says(pilot, "The run has ended;"))
        assert not take_requests(engine.run)


async def test_traced_steps_are_asked_for_and_shown_beside_those_of_the_run_before(engine: FakeEngine) -> None:
    config = find_preset("digits-cnn").config
    engine.run.config.write_text(to_toml(config))
    before = FakeEngine()
    before.begin()
    before.write(Profiled(1, 20, 1.0, 5, 0.016, {Spent.COMPUTING.value: 0.016}, {}, {}, {}, "adam", {}, ""))
    engine.begin()
    settings = {"profile": {"before": before.run.run_id}, "optimizer": {"schedule": "cosine"}}
    engine.write(RunStarted("digits-cnn", "host", 1, "here", settings))
    engine.train(1)
    async with app_on(engine).run_test(size=(120, 40), notifications=True) as pilot:
        await shows(pilot, "1/10")
        assert "profile" not in live(pilot).panes
        await shows(pilot, "follows a schedule", after="T")
        await pilot.press("S", "y")
        request = await asked_of(pilot, engine.run)
        assert request.action == "profile"
        figures = {"dense_7": 0.002}
        for part, said in ((Spent.INPUT, "Training waits for its input"), (Spent.HOST, "form with batch_size=64")):
            spent = {Spent.COMPUTING.value: 0.002, part.value: 0.006}
            traced = Profiled(1, 20, 1.0, 5, 0.008, spent, figures, figures, {}, "adam", {}, "")
            engine.write(replace(traced, request=request.number))
            await shows(pilot, said)
            if part is Spent.INPUT:
                await shows(pilot, "dense_7", "75%", "50% less", "16.0", after="8")
        form = await opens(pilot, SetupScreen, after="enter")
        changes = [("batch_size", 64), ("profile.before", engine.run.run_id)]
        await until(pilot, lambda: form.config == with_changes(config, changes))


async def test_a_run_that_goes_back_to_a_checkpoint_is_drawn_from_there(engine: FakeEngine) -> None:
    engine.begin(4)
    async with app_on(engine).run_test(size=(120, 40)) as pilot:
        await shows(pilot, "4/10")
        why = "the loss became NaN or infinite in epoch 4; learning rate 0.002 → 0.0005"
        engine.write(
            RunResumed(2, 0, 40, 0.4, 1, "here", {"alerts": {"nan": "rollback"}}, why), PhaseStarted("training")
        )
        engine.train(3, ends=False, loss=0.5)
        # The mark shows where it went back.
        await shows(pilot, "3/10", "step 8/20", "★ 1.100 (2)", "★ 0.8300 (2)", "►")


async def test_a_stop_of_the_users_code_promises_neither_a_model_nor_a_resume(engine: FakeEngine) -> None:
    engine.write(RunStarted("mine", "notebook", 1, "here", {}))
    engine.train(1)
    async with app_on(engine).run_test(size=(80, 24)) as pilot:
        await shows(pilot, "from your code")
        await shows(pilot, "your code goes on", after="K")
        assert not any(word in screen_text(pilot) for word in ("resume", "Kill"))


async def test_a_stop_that_waits_for_compilation_says_so_and_offers_to_kill(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpu_console.engine.process.launch._PATIENCE_S", 0.2)
    engine.begin()
    engine.clock = time.time() - 80
    engine.write(PhaseStarted("validating"), PhaseStarted("compiling"), StopRequested("asked from the console"))
    code = "import sys; journal = open(sys.argv[1]); print(flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code, engine.run.journal], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()  # it has opened the journal
    engine.freeze(0)
    write_heartbeat(engine.run, process.pid)  # a process that cannot end itself now
    async with app_on(engine).run_test(size=(80, 24)) as pilot:
        await shows(pilot, "stopping after compiling", "To kill it instead, press K.")
        await shows(pilot, "Kill training?", "it is compiling (1m 2", "Kill now", after="K")
        await pilot.press("enter")  # on the harmless answer
        await until(pilot, lambda: pilot.app.screen is live(pilot))
        assert process.poll() is None
        await until(pilot, lambda: process.poll() is not None, after=("K", "y"))
    assert process.returncode == -signal.SIGKILL
    process.communicate()


async def test_a_failed_run_without_a_config(engine: FakeEngine) -> None:
    engine.begin(1)
    engine.run.log.write_text("Traceback (most recent call last):\n")
    engine.run.config.unlink()  # like a script's run, which cannot be resumed
    engine.write(RunFailed("The GPU ran out of memory.", "It has 16 GiB.", "Use a smaller batch.", "console.log"))
    async with app_on(engine).run_test(size=SIZES[0]) as pilot:
        async for _ in each_size(pilot, *SIZES):
            await shows(pilot, "✗ failed", "The GPU ran out of memory.", "why: It has 16 GiB.", "d Detach")
            await shows(pilot, "what to do: Use a smaller batch.", "console.log", "Traceback (most recent")
            assert "R Resume" not in screen_text(pilot)


async def test_crashed(engine: FakeEngine) -> None:
    engine.begin(1)
    engine.write(CheckpointSaved(1, "checkpoints/best.keras", "val_accuracy", 0.8))
    engine.run.log.write_text("libtpu: Killed\n")
    engine.die()
    async with app_on(engine).run_test(size=SIZES[0]) as pilot:
        async for size in each_size(pilot, *SIZES):
            await shows(pilot, "✗ crashed", "ended without reporting an error", "console.log", "libtpu: Killed")
            await shows(pilot, "checkpoints/best.keras")
            assert live(pilot).query_one(OutcomeBox).region.bottom < size[1] // 2, "the curves keep most of the screen"


async def test_charts_have_room_below_a_notice_on_a_short_terminal(engine: FakeEngine) -> None:
    engine.begin(1)
    engine.write(Alerted("disk", "The disk is nearly full. " * 10, 1, 4))
    async with app_on(engine).run_test(size=SHORT[0]) as pilot:
        async for _ in each_size(pilot, *SHORT):
            await shows(pilot, "The disk is nearly full.", "train 2.0")
            await until(pilot, lambda: any("⠀" < cell <= "⣿" for cell in screen_text(pilot)))  # braille


async def test_newer_version_damage_and_notices(engine: FakeEngine) -> None:
    engine.begin()
    engine.write(Noticed("Each epoch leaves out 29 examples."), Alerted("disk", "The disk is nearly full.", 1, 4))
    engine.append('{"v": 7, "t": 1.0, "type": "Teleported", "where": "Mars"}', "}{")
    engine.train(1)
    async with app_on(engine).run_test(size=(120, 40)) as pilot:
        await shows(pilot, "newer tpu-console", "i: 3 more", "★     1")
        text = (await opens(pilot, TextDialog, after="i")).text.plain
        parts = ("journal version 7", "2 records of", "The disk is", "29 examples", "keras 3.12.0")
        order = [text.index(part) for part in parts]  # an alert comes before the notices
        assert order == sorted(order)


async def test_a_thousand_epochs_stay_quick_and_follow_the_newest(engine: FakeEngine) -> None:
    engine.begin(1000)
    async with app_on(engine).run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(live(pilot).snapshot.state.epochs) == 1000)
        table = live(pilot).query_one(EpochTable)
        await shows(pilot, "  1000 ", "★     3")
        await until(pilot, lambda: 0 < table.scroll_y == table.max_scroll_y == table.vertical_scrollbar.position)
        drawn: list[int] = []
        original = table.row

        def counted(index: int) -> object:
            drawn.append(index)
            return original(index)

        table.row = counted  # type: ignore[method-assign, assignment]  # counts the rows that are drawn
        engine.train(1001)
        await shows(pilot, "  1001 ")
        assert 0 < len(drawn) < 200, "only rows that are seen are drawn"
        table.focus()
        await shows(pilot, "     1 2.0000", after="home")
        engine.train(1002)
        await until(pilot, lambda: len(live(pilot).snapshot.state.epochs) == 1002)
        assert "     1 2.0000" in screen_text(pilot), "it does not run away from whoever reads"
        await shows(pilot, "  1002 ", after="end")


async def test_help_palette_and_footer_have_the_keys_of_the_screen(engine: FakeEngine) -> None:
    engine.begin()
    async with app_on(engine).run_test(size=(120, 60)) as pilot:
        await shows(pilot, "compiling")
        titles = [command.title for command in pilot.app.get_system_commands(live(pilot))]
        assert {"Smooth", "Log", "Axis", "Dots", "Zoom", "Pane", "Stop", "Detach", "New", "Info", "Help"} <= {*titles}
        tooltips = [entry.binding.tooltip for entry in live(pilot).active_bindings.values() if entry.binding.show]
        dialog = await opens(pilot, TextDialog, after="question_mark")
        flat = " ".join(dialog.text.plain.split())
        assert [tip for tip in tooltips if tip and " ".join(tip.split()) not in flat] == []
        assert "global batch" in flat
        widths = []
        for columns in (80, 120, 200):
            await pilot.resize_terminal(columns, 60)
            lines = [line.rstrip() for line in dialog.text.plain.splitlines()]
            widths.append(max(map(len, lines)))
            await shows(pilot, *lines[:30])
        assert widths[0] <= 69 < widths[1] <= widths[2]
        await pilot.press("escape")
        async for _ in each_size(pilot, (60, 24), (120, 24)):
            await shows(pilot, "f1 Help")
            await until(pilot, lambda: screen_text(pilot).split()[-1] in {key.label for key in KEYS.values()})


async def test_no_number_of_the_table_is_cut(engine: FakeEngine) -> None:
    engine.begin()
    names = ("loss", "accuracy", "precision", "recall", "auc", "top_5_accuracy", "specificity", "val_loss", "val_auc")
    logs = dict.fromkeys((*names, "val_accuracy", "val_precision"), 0.9876) | {"val_f1": -1.2e-15, "val_mse": math.nan}
    engine.write(PhaseStarted("training"), EpochEnded(1, 20, 20, 1.0, 0.2, 0.0, 0.0, 10.0, 3200.0, 7.53e29, logs))
    async with app_on(engine).run_test(size=(80, 24)) as pilot:
        await shows(pilot, "0.9876")
        table = live(pilot).query_one(EpochTable)
        for _ in range(30):
            numbers = "".join(text for text, _ in table.row(0)).split()[1:]
            assert set(numbers) <= {"★", "1", "0.9876", "-1.2e-15", "NaN", "1.00", "s", "10.0", "3,200", "7.53e+29"}
            table.scroll_to(x=table.scroll_x + 1, animate=False, immediate=True, force=True)
        assert table.scroll_x > 0


async def test_settings_details_and_a_new_run_with_the_same(engine: FakeEngine) -> None:
    config = with_changes(find_preset("digits-cnn").config, [("epochs", 7), ("optimizer.learning_rate", 0.01)])
    engine.run.config.write_text(to_toml(config))
    engine.begin(1)
    async with app_on(engine).run_test(size=(200, 50)) as pilot:
        await shows(pilot, "changed from the preset", "epochs 7 (preset: 60)", "as in the preset", "★     1", "Stop")
        await resize(pilot, (120, 60))
        await until(pilot, lambda: "as in the preset" not in screen_text(pilot))
        assert "Again" not in screen_text(pilot)
        await shows(pilot, "Changed from the preset", "epochs", "7 (preset: 60)", "cpu (No GPU was found)", after="i")
        details = await opens(pilot, TextDialog)
        order = ["Changed from the preset", "optimizer.learning_rate", "Run", "Files", "As in the preset", "batch_size"]
        at = [details.text.plain.index(part) for part in order]
        assert at == sorted(at)
        await resize(pilot, (30, 20))  # the values stand below their labels
        assert "\nepochs\n  7 (preset: 60)\n" in details.text.plain
        await resize(pilot, (120, 40))
        await pilot.press("escape")
        engine.finish()
        await shows(pilot, "Finished", "Again")
        assert "Stop" not in screen_text(pilot)
        form = await opens(pilot, SetupScreen, after="r")
        await until(pilot, lambda: form.config == config)
