"""The commands on runs, in this process: runs and what it has, show, attach, stop."""

import json
import math
import os
import re
import shutil
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.made_verdicts import FITS
from tests.tui.calling import Call
from tests.tui.made_runs import made_run
from tests.tui.terminal_driver import Terminal
from tpu_console.engine.config.reading import load_config
from tpu_console.engine.preflight.choice import save_verdict
from tpu_console.engine.runs.events import RunFinished
from tpu_console.engine.runs.facts import conclude
from tpu_console.engine.runs.heartbeat import write_heartbeat
from tpu_console.engine.runs.run_directory import Annotations, create_run, read_annotations
from tpu_console.engine.storage.paths import user_path
from tpu_console.tui.following.follow import follow
from tpu_console.tui.following.overview import read_settings

STOPPED = RunFinished("stopped", "asked", {})


def test_show_prints_only_the_host_of_a_webhook(call: Call) -> None:
    for label in ("digits-cnn", "no-such-preset"):
        run = made_run(label=label, alerts={"webhook": "https://hooks.example.com/T123/secret"})
        for out in (call.out("show", run.run_id), call.out("show", run.run_id, "--json"), str(read_settings(run))):
            assert "//hooks.example.com/…" in out
            assert "secret" not in out


def test_an_unknown_run_suggests_the_nearest_name(call: Call) -> None:
    run = made_run()
    assert f"did you mean '{run.run_id}'?" in call.refused("show", run.run_id[:-1] + "x")


def test_attach_says_what_became_of_a_run_without_a_process_and_of_lines_that_it_cannot_read(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made_run(end=None)
    code, out, err = call("attach")
    assert (code, out.count("\nepoch "), run.run_id in err) == (1, 2, True)
    with run.journal.open("ab") as journal:
        journal.write(b'{"v":7,"t":1800000000.0,"type":"Teleported"}\nnot json\n')
        journal.write(b'{"v":1,"t":1800000001.0,"type":"RunFinished","outcome":"completed","reason":"","summary":{}}\n')
    code, _, err = call("attach")
    assert (code, "a newer tpu-console" in err, "1 line of" in err) == (0, True, True)
    run = create_run("left")
    run.journal.touch()
    os.utime(run.path, (0, 0))
    assert "never started" in call.refused("attach", run.run_id, code=1)
    shutil.rmtree(run.path)
    assert follow(run, as_json=False) == 1
    assert "removed" in capsys.readouterr().err


def test_plain_lines_wait_for_the_summary_before_they_list_what_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    run = made_run()
    write_heartbeat(run, os.getpid())
    run.summary.unlink(missing_ok=True)
    assert follow(run, pause=lambda _: conclude(run)) == 0
    assert user_path(run.summary) in capsys.readouterr().out


@pytest.mark.usefixtures("unheard")
def test_stop_asks_the_only_run_that_trains(call: Call) -> None:
    made_run(label="old")
    call.refused("stop")
    assert "not training: finished" in call.out("stop", "old")
    live = made_run(label="live", end=None)
    write_heartbeat(live, os.getpid())
    assert call.out("stop").startswith(f"Stopping {live.run_id}")
    asked = json.loads((live.control / "stop.json").read_text())
    assert asked["action"] == "stop"
    assert asked["by"].endswith("tpu-console stop")
    write_heartbeat(made_run(end=None), os.getpid())
    assert "Name one" in call.refused("stop")


def test_show_sets_a_run_on_a_tpu_beside_its_best_case(call: Call) -> None:
    run = made_run(accelerator="tpu", replicas=8, device="TPU v5 lite")
    save_verdict(load_config(run.config), FITS)
    text = "232% of the best case for v5e-8: 1.00 ms/step, 2.32 at best"
    assert re.search(rf"\n  efficiency +{text}\n", call("show")[1])
    assert f"efficiency   {text}" in call("attach")[1]
    efficiency = call.json("show")["efficiency"]
    assert efficiency == {"tpu": "v5e-8", "best_step_ms": 2.32, "measured_step_ms": 1.0}


def test_times_are_local(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    made_run()
    hours = [call.json("show")["started"]]
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        hours.append(call.json("show")["started"])
    finally:
        monkeypatch.undo()
        time.tzset()
    assert hours[0] != hours[1]


def test_curves_are_printed_as_plain_text_except_those_without_a_number(call: Call) -> None:
    made_run([{"loss": math.nan, "val_loss": 1.0, "val_accuracy": 0.5}] * 2)
    out = call.out("show", "--plot")
    assert "val" in out
    assert "┤" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80


def listed(call: Call, *args: str) -> list[str]:
    return [run["preset"] for run in call.json("runs", *args)]


def test_a_title_is_shown_in_place_of_the_name_and_found(call: Call) -> None:
    run = made_run()
    assert "'the best one'" in call("rename", run.run_id, " the best one ")[1]
    assert "title " in call("show")[1]
    assert call.json("show", "the best")["run"] == run.run_id
    assert call("rename", run.run_id, "")[1] == f"{run.run_id} has no title.\n"
    assert not run.annotations.exists()


def test_tags_a_note_and_the_archive(call: Call) -> None:
    one, two = made_run(label="one"), made_run(label="two")
    call("annotate", "one", "two", "--tag", "base line", "--tag", "x")
    call("annotate", "one", "--untag", "x", "--note", "slow", "--archive")
    assert read_annotations(one.path) == Annotations("", ("base-line",), "slow", archived=True)
    assert listed(call, "--tag", "base-line") == ["two"]
    assert listed(call, "--tag", "base-line", "--archived") == ["two", "one"]
    assert listed(call, "--tag", "base-line", "--tag", "x") == ["two"]
    assert "#base-line · slow · archived" in call.out("annotate", "one")
    assert call.out("show", "one").startswith(f"{one.run_id} (archived)\n  state    finished: ")
    call("annotate", "one", "--unarchive", "--note", "")
    assert read_annotations(one.path) == Annotations("", ("base-line",))
    assert two.annotations.exists()


def test_runs_are_sorted(call: Call) -> None:
    assert (call("runs")[:2], listed(call)) == ((0, ""), [])
    made_run([{"val_accuracy": 0.5}] * 3, label="slow", speed=10.0)
    made_run([{"val_accuracy": 0.9}], label="good")
    made_run([], label="empty")
    assert listed(call) == ["empty", "good", "slow"]
    assert listed(call, "--sort", "best") == ["good", "slow", "empty"]
    assert listed(call, "--sort", "speed") == ["good", "slow", "empty"]
    assert listed(call, "--sort", "time") == ["empty", "good", "slow"]
    assert listed(call, "--sort", "preset") == ["empty", "good", "slow"]


def test_runs_are_deleted_restored_and_deleted_for_good(call: Call) -> None:
    run = made_run(label="one")
    made_run(label="two")
    assert run.run_id in call.out("delete", "one").splitlines()[0]
    assert (listed(call), listed(call, "--deleted")) == (["two"], ["one"])
    assert call("delete", "--restore", "one")[1] == f"Restored: {run.run_id}\n"
    call("delete", "one", "two")
    assert call("delete", "--empty-trash", "--yes")[1] == "Deleted for good: 2\n"
    assert (listed(call), listed(call, "--deleted")) == ([], [])


def test_what_cannot_be_deleted_is_refused(call: Call) -> None:
    live = made_run(end=None)
    write_heartbeat(live, os.getpid())
    assert f"{live.run_id} is still training." in call("delete", live.run_id)[2]
    assert listed(call) == ["digits-cnn"]
    call.refused("delete")
    call.refused("delete", "--empty-trash", "one")
    assert "'x'" in call.refused("delete", "--restore", "x")


def test_a_notebook_cell_gets_plain_lines_although_it_has_a_terminal(private_home: Path) -> None:
    made_run()
    cell = {"JPY_PARENT_PID": "1", "TERM": "xterm-color"}
    with closing(Terminal("attach", home=private_home, size=(120, 40), environment=cell)) as terminal:
        assert terminal.wait() == 0
        assert "finished" in terminal.text
        assert b"\x1b[?1049h" not in terminal.raw
