"""A run that is frozen: every view says so, shows a stop that waits, and sees it come back."""

import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import LIMIT_S, BeatingProcess, has, wait_until
from tests.tui.calling import Call
from tests.tui.live_fakes import FakeEngine, live, screen_text, until
from tests.tui.screens.test_runs import Host
from tests.tui.terminal_driver import PROGRAM
from tests.tui.widgets.test_run_header import TRAINING, state_of
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import RunFinished, Steering
from tpu_console.engine.runs.heartbeat import Life, Liveness
from tpu_console.engine.runs.run_directory import create_run
from tpu_console.engine.storage.files import write_whole
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.following.follow import PlainPrinter

DAYS_S = 2 * 86_400.0


@pytest.fixture
def beating(private_home: Path) -> Iterator[BeatingProcess]:
    run = create_run("beating")
    write_whole(run.config, "")
    process = BeatingProcess(run)
    yield process
    process.kill()


def test_lists_and_commands_say_it_and_see_it_come_back(call: Call, beating: BeatingProcess) -> None:
    assert call.json("runs")[0]["state"] == "running"
    beating.freeze(DAYS_S)
    (found,) = call.json("runs")
    assert (found["state"], found["stop_waits"]) == ("not responding", False)
    assert found["silent_s"] >= DAYS_S
    assert "not responding for 2d 00h" in call("runs")[1]
    assert " 2d 00h\n" in call("show")[1]
    out = call.out("stop")
    assert " 2d 00h; stop requested; " in out
    assert " 2d 00h; stop requested; " in call("show")[1]
    assert call.json("runs")[0]["stop_waits"]
    beating.thaw()
    wait_until(lambda: has(beating.run, RunFinished), "the pending stop is heard")
    assert call.json("runs")[0]["state"] == "stopped"


def test_plain_lines_say_it_and_see_it_come_back(beating: BeatingProcess) -> None:
    beating.freeze(25)
    lines: list[str] = []
    with subprocess.Popen([PROGRAM, "attach"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as attached:
        reader = threading.Thread(target=lambda: lines.extend(attached.stdout or ()))
        reader.start()
        try:
            wait_until(lambda: any("not responding for" in line for line in lines), "that it does not respond")
            ask(beating.run, Steering.STOP, "asked by a test")
            wait_until(lambda: any("waiting for the run to respond" in line for line in lines), "the pending stop")
            beating.thaw()
            assert attached.wait(LIMIT_S) == 0
        finally:
            attached.kill()
            reader.join()
    words = [line.split()[0] for line in lines]
    assert words.index("silent") < words.index("stopping") < words.index("responding") < words.index("stopped")


def silent(seconds: int, **changes: Any) -> Life:
    return Life(Liveness.SILENT, silent_s=seconds, **changes)


def test_plain_lines_come_less_and_less_often_and_say_that_training_does_not_move(private_home: Path) -> None:
    now = 1000.0
    printer = PlainPrinter(create_run("a"), lambda: now)
    said = []
    for second in range(10, 130):
        now += 1
        said += [second for line in printer.idle(silent(second)) if line.startswith("silent")]
    assert said == [10, 15, 25, 45, 75, 105]
    assert printer.idle(Life(Liveness.ALIVE)) == ["responding   again, after 2m 09s"]
    assert printer.idle(Life(Liveness.ALIVE)) == []
    printer.state = state_of(*TRAINING)
    now += 30
    beat_at = printer.state.progress_at + 65
    (line,) = printer.idle(Life(Liveness.ALIVE, beat_at=beat_at))
    assert line.startswith("stalled ")
    assert line.endswith(" 1m 05s (usually 0.10 s)")
    now += 30
    waits_for_disk = Life(Liveness.ALIVE, beat_at=beat_at, waiting=3)
    assert "epoch" in printer.idle(waits_for_disk)[0], "a run that says why it waits has not stalled"


async def test_the_live_screen_says_it_and_sees_it_come_back(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path / "runs")
    engine.begin()
    engine.train(1)
    engine.train(2, ends=False)
    engine.freeze(25)
    async with ConsoleApp(run=engine.run).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: re.search(r"▲ not responding for \d\d s", screen_text(pilot)))
        await until(pilot, lambda: "The process may be suspended" in screen_text(pilot))
        assert engine.run.run_id in screen_text(pilot).splitlines()[0]
        live(pilot).controls.stop_if("stop")
        await until(pilot, lambda: "Stop requested; waiting for the run to respond." in screen_text(pilot))
        assert "not responding for" in screen_text(pilot)
        engine.thaw()
        await until(pilot, lambda: "stopping" in screen_text(pilot).splitlines()[0])
        await until(pilot, lambda: "waiting for the run to respond" not in screen_text(pilot))


async def test_the_runs_screen_says_it_and_sees_it_come_back(private_home: Path) -> None:
    engine = FakeEngine(private_home / "runs")
    engine.begin()
    engine.freeze(DAYS_S)
    ask(engine.run, Steering.STOP, "asked")
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: [row[1] for row in app.cells()] == ["▲ not responding"])
        await until(pilot, lambda: "Not responding for 2d 00h; stop requested; waiting for" in screen_text(pilot))
        engine.thaw()
        await until(pilot, lambda: [row[1] for row in app.cells()] == ["▶ running"])
        assert "ot responding" not in screen_text(pilot)


async def test_training_that_hangs_in_a_process_that_responds(call: Call, private_home: Path) -> None:
    engine = FakeEngine(private_home / "runs")
    engine.clock -= 3600
    engine.begin()
    for epoch in (1, 2):
        engine.train(epoch)
    engine.train(3, ends=False)
    expected = r"no step for 1h 0\dm \(usually 40 ms\)"
    async with ConsoleApp(run=engine.run).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: re.search(f"▲ {expected}", screen_text(pilot).splitlines()[0]))
    (found,) = call.json("runs")
    assert (found["state"], found["silent_s"]) == ("running", None)
    assert found["no_step_s"] > 3600
    assert re.search(rf"\n  state +running, {expected}\n", call("show")[1])
