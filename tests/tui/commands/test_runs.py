"""The commands on runs, in this process: runs and what it has, show, attach, stop."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from tests.helpers import leave_dead, small_config
from tests.made_verdicts import FITS
from tests.tui.made_runs import made_run
from tests.tui.terminal_driver import Terminal
from tpu_console.engine.config.options import Alerts
from tpu_console.engine.config.run_config import RunConfig, to_toml
from tpu_console.engine.preflight.cache import save_verdict
from tpu_console.engine.runs.annotations import Annotations, read_annotations, write_annotations
from tpu_console.engine.runs.events import (
    AcceleratorReady,
    EpochEnded,
    Event,
    FitStarted,
    PhaseStarted,
    Progress,
    Replica,
    RunFailed,
    RunFinished,
    RunStarted,
)
from tpu_console.engine.runs.heartbeat import write_heartbeat
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory, create_run
from tpu_console.engine.storage.files import write_whole
from tpu_console.tui.following.follow import follow
from tpu_console.tui.following.run_settings import read_settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tui.calling import Call
    from tpu_console.engine.runs.run_directory import RunDirectory


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(tmp_path))
    return tmp_path


def epoch(number: int, accuracy: float) -> EpochEnded:
    logs = {"loss": 0.5, "val_accuracy": accuracy}
    return EpochEnded(number, number * 4, 4, float(number), 1.0, 0.0, 0.0, 2.0, 500.0, 1e-3, logs)


def make_run(*events: Event, label: str = "digits-cnn", epochs: int = 2) -> RunDirectory:
    """Write a run as the engine would, ten seconds between two events."""
    times = iter(range(1_790_000_000, 1_800_000_000, 10))
    run = create_run(label)
    config = RunConfig(name=label, dataset="digits", model="cnn", batch_size=32, epochs=epochs)
    write_whole(run.config, to_toml(config))
    writer = JournalWriter(run.journal, clock=lambda: float(next(times)))
    begin = () if any(isinstance(event, RunStarted) for event in events) else (RunStarted(label, "host", 1, "here"),)
    for event in (*begin, *events):
        writer.write(event)
    writer.close()
    return run


FIT = FitStarted(2, 4, 32, 32, 4, monitor="val_accuracy")


FINISHED = (FIT, Progress(1, 4, 4, 0.5, {"loss": 1.0}), epoch(1, 0.9), epoch(2, 0.8))


DONE = RunFinished("completed", "all epochs are done", {})


def test_runs_without_any(call: Call) -> None:
    assert call("runs")[:2] == (0, "")
    assert call("runs", "--json")[:2] == (0, "[]\n")


def test_runs_are_printed_with_their_state(call: Call) -> None:
    make_run(*FINISHED, DONE, label="one")
    make_run(FIT, RunFinished("stopped", "asked", {}), label="two")
    make_run(RunFailed("broke", "", "", ""), label="three")
    gone = make_run(FIT, label="four")
    leave_dead(gone)
    write_heartbeat(make_run(FIT, label="five"), os.getpid())
    prepared = create_run("six")
    prepared.journal.touch()
    found = {run["preset"]: run for run in call.json("runs")}
    assert {label: run["state"] for label, run in found.items()} == {
        "one": "finished",
        "two": "stopped",
        "three": "failed",
        "four": "crashed",
        "five": "running",
        "": "not started",
    }
    one = found["one"]
    assert (one["epochs_done"], one["epochs"], one["monitor"], one["best"]) == (2, 2, "val_accuracy", 0.9)
    assert one["seconds"] == 50.0
    lines = call("runs")[1].splitlines()
    assert lines[0].split()[:7] == ["run", "state", "changes", "best", "metric", "epochs", "time"]
    assert len(lines) == 7


def test_show_holds_every_part_of_a_run(call: Call) -> None:
    run = make_run(PhaseStarted("training"), *FINISHED, DONE, epochs=7)
    out = call.out("show")
    assert out.startswith(f"{run.run_id}\n  state    finished: ")
    assert re.search(r"\n  epochs +7 \(preset: 60\)\n", out)
    assert " run digits-cnn" in out
    assert "--epochs 7" in out
    assert "training  50.0 s" in out
    assert [line.split()[-1] for line in out.splitlines() if "0.9000" in line and "1.00 s" in line] == ["★"]
    assert str(run.path) in out
    shown = call.json("show", run.run_id)
    assert [record["logs"]["val_accuracy"] for record in shown["epoch_records"]] == [0.9, 0.8]
    assert shown["config"]["epochs"] == 7


@pytest.mark.parametrize("label", ["digits-cnn", "no-such-preset"])
def test_show_prints_only_the_host_of_a_webhook(call: Call, label: str) -> None:
    run = make_run(*FINISHED, DONE, label=label)
    alerts = Alerts(webhook="https://hooks.example.com/T123/secret")
    config = RunConfig(name=label, dataset="digits", model="cnn", batch_size=32, epochs=2, alerts=alerts)
    write_whole(run.config, to_toml(config))
    for out in (call("show")[1], call("show", "--json")[1], str(read_settings(run))):
        assert "https://hooks.example.com/…" in out
        assert "secret" not in out


def test_an_unknown_run_suggests_the_nearest_name(call: Call) -> None:
    run = make_run(DONE)
    assert f"did you mean '{run.run_id}'?" in call.refused("show", run.run_id[:-1] + "x")


@pytest.mark.parametrize(
    ("end", "code", "on"),
    [
        (DONE, 0, "finished     all epochs are done"),
        (RunFinished("stopped", "asked", {}), 0, "stopped      asked"),
        (RunFailed("It broke.", "", "Mend it.", ""), 1, "Error: It broke.\nMend it.\n"),
    ],
)
def test_attach_without_a_terminal_prints_the_run_and_ends_as_it_did(
    call: Call, end: Event, code: int, on: str
) -> None:
    make_run(*FINISHED, end)
    got, out, err = call("attach")
    assert got == code
    assert out.count("\nepoch ") == 2
    assert on in (err if code else out)
    assert not any(c in out for c in "\x1b\r")


def test_attach_says_of_a_run_without_a_process_what_became_of_it(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(*FINISHED)
    leave_dead(run)
    code, out, err = call("attach")
    assert (code, out.count("\nepoch "), run.run_id in err) == (1, 2, True)
    run = create_run("left")
    run.journal.touch()
    os.utime(run.path, (0, 0))
    assert "never started" in call.refused("attach", run.run_id, code=1)
    shutil.rmtree(run.path)
    assert follow(run, as_json=False) == 1
    assert "removed" in capsys.readouterr().err


def test_attach_reports_damaged_and_newer_lines(call: Call) -> None:
    run = make_run(*FINISHED)
    with run.journal.open("ab") as journal:
        journal.write(b'{"v":7,"t":1800000000.0,"type":"Teleported"}\nnot json\n')
        journal.write(b'{"v":1,"t":1800000001.0,"type":"RunFinished","outcome":"completed","reason":"","summary":{}}\n')
    code, _, err = call("attach")
    assert code == 0
    assert "a newer tpu-console" in err
    assert "1 line of the journal" in err


@pytest.mark.usefixtures("unheard")
def test_stop_asks_the_run_that_trains(call: Call) -> None:
    make_run(DONE, label="old")
    live = make_run(FIT, label="live")
    write_heartbeat(live, os.getpid())
    out = call.out("stop")
    assert out.startswith(f"Stopping {live.run_id}")
    asked = json.loads((live.control / "stop.json").read_text())
    assert asked["action"] == "stop"
    assert asked["by"].endswith("tpu-console stop")


def test_stop_without_a_name_wants_exactly_one_live_run(call: Call) -> None:
    run = make_run(DONE)
    call.refused("stop")
    assert "not training: finished" in call.out("stop", run.run_id)
    for label in ("a", "b"):
        write_heartbeat(make_run(FIT, label=label), os.getpid())
    assert "Name one" in call.refused("stop")


def test_show_sets_a_run_on_a_tpu_beside_its_best_case(call: Call) -> None:
    config = small_config(accelerator="tpu")
    save_verdict(config, FITS)
    replicas = tuple(Replica(index, f"tpu:{index}", "TPU v5 lite", "host") for index in range(8))
    started = RunStarted("small", "host", 1, "here", config.model_dump(mode="json"))
    make_run(started, AcceleratorReady("tpu", "found", "data parallel", replicas, {}), *FINISHED, DONE)
    text = "116% of the best case for v5e-8: 2.00 ms/step, 2.32 at best"
    assert re.search(rf"\n  efficiency +{text}\n", call("show")[1])
    assert f"efficiency   {text}" in call("attach")[1]
    efficiency = call.json("show")["efficiency"]
    assert efficiency == {"tpu": "v5e-8", "best_step_ms": 2.32, "measured_step_ms": 2.0}


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--hosts", "2", "--host-index", "5"], "hosts.index: is 5, but 2 hosts are numbered 0 to 1"),
        (["--hosts", "2", "--backend", "tensorflow"], "Keras trains on several hosts only with JAX"),
        (["--accelerator", "tpu:"], "'tpu:' is not an accelerator; valid: auto, cpu, gpu, tpu, tpu:ADDRESS, sim:N"),
    ],
)
def test_hosts_and_backends_that_cannot_be_are_refused_before_anything_starts(
    call: Call, args: list[str], problem: str
) -> None:
    err = call.refused("run", "digits-cnn", *args)
    assert problem in err
    assert call.json("runs") == []


SCORE = {"name": "zero", "precision": 1.0, "recall": 1.0, "f1": 1.0, "examples": 2}
REPORT = {
    "examples": 2,
    "accuracy": 1.0,
    "balanced_accuracy": 1.0,
    "not_numbers": 0,
    "is_partial": False,
    "classes": [SCORE],
    "mistakes": [{"label": "zero", "taken_for": "zero", "count": 1, "share": 0.5}],
    "matrix": [[2]],
}


@pytest.fixture
def scored() -> RunDirectory:
    run = make_run(*FINISHED, DONE, epochs=7)
    write_whole(run.report, json.dumps(REPORT))
    return run


def test_class_scores_notes_and_outputs_are_shown(call: Call, scored: RunDirectory) -> None:
    write_annotations(scored.path, Annotations(title="best one", archived=True))
    scored.history.touch()
    out = call("show")[1]
    assert out.startswith(f"{scored.run_id} (archived)\n")
    assert "  title    best one\n" in out
    assert "(1×, 50% of them)" in out
    assert str(scored.history) in out
    values = call.json("show")
    assert (values["title"], values["classes"]["classes"][0]["name"]) == ("best one", "zero")


def test_times_are_local(call: Call, scored: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = [call.json("show")["started"]]
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        hours.append(call.json("show")["started"])
    finally:
        monkeypatch.undo()
        time.tzset()
    assert hours[0] != hours[1]


def test_curves_are_printed_as_plain_text(call: Call, scored: RunDirectory) -> None:
    code, out = call("show", "--plot")[:2]
    assert code == 0
    assert "loss" in out
    assert "┤" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80


def listed(call: Call, *args: str) -> list[str]:
    out = call.out("runs", "--json", *args)
    return [run["preset"] for run in json.loads(out)]


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
    assert call("annotate", "one")[1] == f"{one.run_id}: #base-line · slow · archived\n"
    call("annotate", "one", "--unarchive", "--note", "")
    assert read_annotations(one.path) == Annotations("", ("base-line",))
    assert two.annotations.exists()


def test_runs_are_sorted(call: Call) -> None:
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
    code, out, _ = call("delete", "one")
    assert (code, run.run_id in out.splitlines()[0]) == (0, True)
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
    assert call("delete")[0] == 2
    assert call("delete", "--empty-trash", "one")[0] == 2
    err = call.refused("delete", "--restore", "x")
    assert "'x'" in err


def test_a_notebook_cell_gets_plain_lines_although_it_has_a_terminal(home: Path) -> None:
    made_run()
    cell = {"JPY_PARENT_PID": "1", "TERM": "xterm-color"}
    terminal = Terminal("attach", home=home, size=(120, 40), environment=cell)
    try:
        assert terminal.wait() == 0
        assert "finished" in terminal.text
        assert b"\x1b[?1049h" not in terminal.raw
    finally:
        terminal.close()
