import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import BeatingProcess, all_of, gone_process, leave_dead, wait_until
from tpu_console.engine.runs import heartbeat as beats
from tpu_console.engine.runs.control import Control, ask
from tpu_console.engine.runs.events import Steering, StopRequested
from tpu_console.engine.runs.heartbeat import Heartbeat, Liveness, Sight, identify, look_for, write_heartbeat
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory, create_run
from tpu_console.engine.storage.files import write_whole


@pytest.fixture
def run(run: RunDirectory) -> RunDirectory:
    write_heartbeat(run, os.getpid())
    return run


def test_a_tick_touches_the_heartbeat_once_a_second(run: RunDirectory) -> None:
    times = iter([50.0, 50.9, 51.0])
    heartbeat = Heartbeat(run, JournalWriter(run.journal), Control(), clock=lambda: next(times))
    touched = []
    for _ in range(3):
        os.utime(run.heartbeat, (1.0, 1.0))
        heartbeat.tick()
        touched.append(run.heartbeat.stat().st_mtime > 1.0)
    assert touched == [True, False, True]


def test_the_first_reason_to_stop_counts_whatever_is_in_its_place(run: RunDirectory) -> None:
    journal, control = JournalWriter(run.journal), Control()
    heartbeat = Heartbeat(run, journal, control)
    run.control.rmdir()
    heartbeat.tick()
    ask(run, Steering.PAUSE, "asked")
    (run.control / "stop.json" / "inside").mkdir(parents=True)
    heartbeat.tick()
    control.stop("again")
    heartbeat.tick()
    assert control.reason != "again"
    assert [one.action for one in control.take()] == ["pause"]
    assert [event.reason for event in all_of(run, StopRequested)] == [control.reason]


def test_a_heart_thread_outlives_a_vanished_folder_and_stops_when_told(run: RunDirectory) -> None:
    control = Control()
    thread = beats.HeartbeatThread(Heartbeat(run, JournalWriter(run.journal), control))
    thread.start()
    try:
        shutil.rmtree(run.path)
        run.path.mkdir()
        ask(run, Steering.STOP, "after the folder came back")
        wait_until(lambda: control.reason, "the request")
    finally:
        thread.stop()
    assert not thread.is_alive()


HOUR_S, DAY_S = 3600.0, 86_400.0
ALIVE, SILENT, DEAD, STARTING = Liveness.ALIVE, Liveness.SILENT, Liveness.DEAD, Liveness.STARTING
RUNNING, GONE, UNSEEN = Sight.RUNNING, Sight.GONE, Sight.UNSEEN
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


class Viewer:
    """A viewer with clocks that a test moves."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self.clock = 1000.0
        self.now = float(int(run.path.stat().st_mtime))  # file times keep whole seconds exactly
        self.watch = beats.HeartbeatWatch(run, lambda: self.clock, lambda: self.now)

    def look(self, after_s: float = 0.0) -> tuple[Liveness, int]:
        """Look again and again while a time passes; return what the last look says."""
        step = max(0.5, after_s / 400)
        for _ in range(int(after_s / step)):
            self.pass_by(step)
            self.watch.look()
        life = self.watch.look()
        return life.liveness, life.silent_s

    def pass_by(self, seconds: float) -> None:
        self.clock += seconds
        self.now += seconds

    def beat(self, skew_s: float = 0.0) -> None:
        """Let the run beat, on a machine whose clock is ahead by so much."""
        os.utime(self.run.heartbeat, (self.now + skew_s, self.now + skew_s))


def elsewhere(run: RunDirectory) -> None:
    beat = json.loads(run.heartbeat.read_text())
    write_whole(run.heartbeat, json.dumps(beat | {"host": "another-machine", "boot_id": "another"}))


def test_a_run_that_freezes_does_not_respond_until_it_beats_again(run: RunDirectory) -> None:
    viewer = Viewer(run)
    viewer.beat()
    assert viewer.look() == (ALIVE, 0)
    viewer.pass_by(1)
    viewer.beat()
    assert viewer.look() == (ALIVE, 0)
    assert viewer.look(after_s=beats.SILENT_S - 1) == (ALIVE, 0)
    assert viewer.look(after_s=16) == (SILENT, 25)
    assert viewer.look(after_s=HOUR_S) == (SILENT, 3625)  # its process is there: however long, it is not dead
    viewer.beat()
    assert viewer.look() == (ALIVE, 0)


@pytest.mark.parametrize("skew_s", [-10 * HOUR_S, -100.0, -20.0, 20.0, 100.0, 10 * HOUR_S])
def test_a_machine_with_another_clock_is_judged_by_whether_it_beats(run: RunDirectory, skew_s: float) -> None:
    elsewhere(run)
    viewer = Viewer(run)
    viewer.beat(skew_s)
    assert viewer.look()[0] is (DEAD if abs(skew_s) > beats.LOST_S else SILENT)  # at the first look the clocks count
    for _ in range(20):
        viewer.pass_by(1)
        viewer.beat(skew_s)
        assert viewer.look(after_s=1) == (ALIVE, 0)
    assert viewer.look(after_s=beats.SILENT_S + 1)[0] is SILENT
    assert viewer.look(after_s=beats.LOST_S) == (DEAD, 0)
    viewer.beat(skew_s)
    assert viewer.look() == (ALIVE, 0)


@pytest.mark.parametrize("jump_s", [-10 * HOUR_S, -60.0, 60.0, 1000 * DAY_S])
@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_clock_that_is_set_and_a_viewer_that_was_suspended_change_nothing(
    run: RunDirectory, jump_s: float, is_elsewhere: bool
) -> None:
    if is_elsewhere:
        elsewhere(run)
    viewer = Viewer(run)
    viewer.beat(skew_s=-25)
    assert viewer.look() == (SILENT, 25)
    viewer.beat()
    assert viewer.look() == (ALIVE, 0)
    viewer.now += jump_s
    for _ in range(20):  # the jump comes between two beats
        assert viewer.look(after_s=1) == (ALIVE, 0)
        viewer.beat()
    viewer.pass_by(HOUR_S)  # nobody looked
    viewer.beat()
    assert viewer.look() == (ALIVE, 0)


def test_liveness_follows_the_heartbeat_until_a_crash_or_the_removal_of_the_run(run: RunDirectory) -> None:
    viewer = Viewer(run)
    viewer.beat()
    life = viewer.watch.look()
    assert (life.stop_waits, life.beat_at) == (False, viewer.now)
    assert abs(life.since - viewer.now) < HOUR_S
    ask(run, Steering.STOP, "asked")
    assert viewer.watch.look().stop_waits
    run.heartbeat.write_text(json.dumps({"waiting": "9" * 5000, "since": "soon"}), encoding="utf-8")
    assert (viewer.watch.look().waiting, viewer.watch.look().since) == (None, 0.0)
    leave_dead(run)
    assert viewer.look() == (DEAD, 0)
    shutil.rmtree(run.path)
    assert viewer.look() == (DEAD, 0)


def test_a_cache_is_old_when_nothing_trains_its_run(tmp_path: Path) -> None:
    runs = [create_run(name) for name in ("alive", "dead", "linked", "none")]
    for run in runs[:2]:
        run.cache.mkdir()
    runs[2].path.joinpath("cache").symlink_to(tmp_path)
    for run in runs:
        run.journal.touch()
        leave_dead(run)
    write_heartbeat(runs[0], os.getpid())
    assert beats.runs_with_old_caches() == [runs[1]]


def test_before_the_first_heartbeat_a_run_is_starting_for_a_while(run: RunDirectory) -> None:
    run.heartbeat.unlink()
    viewer = Viewer(run)
    assert viewer.look(after_s=beats.STARTING_S - 1) == (STARTING, 0)
    assert viewer.look(after_s=2) == (DEAD, 0)
    viewer = Viewer(run)
    viewer.now -= HOUR_S  # set back: the folder is from the future
    assert viewer.look(after_s=beats.STARTING_S + 1) == (DEAD, 0)


def test_a_heartbeat_that_cannot_be_read_for_a_while_is_not_a_death(run: RunDirectory) -> None:
    elsewhere(run)
    viewer = Viewer(run)
    viewer.beat()
    assert viewer.look() == (ALIVE, 0)
    run.heartbeat.unlink()
    run.heartbeat.mkdir()  # a stale handle of a network file system fails in the same way
    assert viewer.look(after_s=5) == (ALIVE, 0)
    assert viewer.look(after_s=10)[0] is SILENT
    assert viewer.look(after_s=beats.LOST_S) == (DEAD, 0)


@pytest.mark.parametrize(
    "content", ["", "null", "[]", "{}", "{", '{"host": 3}', '{"host": "%h", "pid": "x"}', "\x00\x00", "[" * 60_000]
)
def test_a_heartbeat_that_makes_no_sense_is_judged_by_its_age(run: RunDirectory, content: str) -> None:
    run.heartbeat.write_text(content.replace("%h", socket.gethostname()), encoding="utf-8")
    viewer = Viewer(run)
    viewer.beat()
    assert viewer.look() == (ALIVE, 0)
    assert viewer.look(after_s=beats.LOST_S + 1) == (DEAD, 0)


@on_linux
@pytest.mark.parametrize(
    ("changes", "sight"),
    [
        ({"created": 5.0}, RUNNING),  # computed from the clock: whatever it says, the ticks count
        ({"start_ticks": 1}, GONE),  # the number was given to another process
        ({"pid": 2**22 + 1}, GONE),
        ({"pid": 10**30}, GONE),
        ({"boot_id": "another boot or machine"}, UNSEEN),
        ({"pid_namespace": 1}, UNSEEN),
        ({"host": "another-machine"}, UNSEEN),
        ({"pid": "x"}, UNSEEN),
        ({"pid": -1}, UNSEEN),
        ({"pid": 0}, UNSEEN),
        ({"pid": None}, UNSEEN),
        ({"start_ticks": None}, GONE),
    ],
)
def test_where_a_process_is_looked_for(changes: dict[str, object], sight: Sight) -> None:
    assert look_for(identify(os.getpid()) | changes) is sight


def test_without_proc_the_creation_time_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tpu_console.engine.runs.heartbeat._PROC", tmp_path)
    identity = identify(os.getpid())
    assert identity.keys() == {"pid", "host", "created"}
    assert look_for(identity) is RUNNING
    assert look_for(identity | {"created": identity["created"] - 60}) is GONE
    assert look_for(identity | {"pid": gone_process()}) is GONE


def test_a_process_that_ended_and_was_not_waited_for_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        identity = identify(process.pid)
        assert look_for(identity) is RUNNING
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
        assert look_for(identity) is GONE


@pytest.fixture
def in_namespace(tmp_path: Path) -> Iterator[BeatingProcess]:
    """A run that beats in another PID namespace of this machine, as in a container with the same host name."""
    for way in (["unshare", "--pid", "--fork"], ["unshare", "--user", "--map-root-user", "--pid", "--fork"]):
        if shutil.which("unshare") and not subprocess.run([*way, "true"], capture_output=True, check=False).returncode:
            process = BeatingProcess(create_run("contained", tmp_path), [*way, "--kill-child"])
            yield process
            process.kill()
            return
    pytest.skip("this machine allows no new PID namespace")


@on_linux
def test_a_run_in_another_pid_namespace_lives_by_its_heartbeat(in_namespace: BeatingProcess) -> None:
    run = in_namespace.run
    beat = json.loads(run.heartbeat.read_text())
    assert beat["host"] == socket.gethostname()
    assert beat["pid"] < 10  # its number there means another process here
    assert look_for(beat) is UNSEEN
    assert beats.liveness_of(run) is ALIVE
    viewer = Viewer(run)
    viewer.look()
    in_namespace.kill()
    assert viewer.look(after_s=beats.SILENT_S + 1)[0] is SILENT
    assert viewer.look(after_s=beats.LOST_S) == (DEAD, 0)
