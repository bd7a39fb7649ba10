"""What the program says of a run is true at every event of its journal, against figures computed apart from it."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pytest

from tpu_console.engine.config.options import Alerts
from tpu_console.engine.monitoring.alerts import AlertWatch
from tpu_console.engine.runs import events
from tpu_console.engine.runs.facts import facts_of
from tpu_console.engine.runs.follower import Snapshot
from tpu_console.engine.runs.heartbeat import Liveness
from tpu_console.engine.runs.journal import JournalReader, JournalWriter, Record
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.run_directory import RunDirectory, create_run
from tpu_console.engine.runs.state import RunState, fold
from tpu_console.engine.runs.timing import pace
from tpu_console.tui.following.follow import PlainPrinter
from tpu_console.tui.text.outcome import best_text, outcome_of
from tpu_console.tui.widgets.run_header import HeaderView, header_rows, notices_of

RECORDED = Path(__file__).parent.parent / "record" / "runs"
ADVICE = re.compile(r"Stop the run|Lower the")
STEPS, STEP_S, VALIDATION_S = 4, 0.5, 1.5


class Story:
    """Writes a made-up run as the engine would, with its alerts."""

    def __init__(self, run: RunDirectory) -> None:
        self.at = 1_790_000_000.0
        self._spent_s = 0.0
        self._recorder = Recorder(run, JournalWriter(run.journal, clock=lambda: self.at))
        self._watch = AlertWatch(self._recorder, Alerts(nan="warn"))
        self._watch.__enter__()

    def write(self, *given: events.Event) -> None:
        for event in given:
            self._recorder.emit(event)

    def wait(self, seconds: float) -> None:
        self.at += seconds

    def begin(self, epochs: int, source: str = "host", monitor: str = "val_loss") -> None:
        self.write(events.RunStarted("made", source, 1, "here", {"epochs": epochs}), events.PhaseStarted("importing"))
        self.wait(3.0)
        self.fit(epochs, monitor)

    def fit(self, epochs: int, monitor: str = "val_loss") -> None:
        self.write(events.FitStarted(epochs, STEPS, 32, 32, 1, monitor=monitor), events.PhaseStarted("compiling"))
        self.wait(2.0)

    def step(self, epoch: int, step: int, **logs: float) -> None:
        self.wait(STEP_S)
        self._spent_s += STEP_S
        self.write(
            events.PhaseStarted("training"),
            events.Progress(epoch, step, (epoch - 1) * STEPS + step, self._spent_s, logs),
        )

    def epoch(self, number: int, loss: float, val_loss: float, **logs: float) -> None:
        for step in range(1, STEPS + 1):
            self.step(number, step, loss=loss)
        self.write(events.PhaseStarted("validating"))
        self.wait(VALIDATION_S)
        self._spent_s += VALIDATION_S
        self.write(events.PhaseStarted("training"))
        spent = STEPS * STEP_S + VALIDATION_S
        all_logs = {"loss": loss, "val_loss": val_loss, **logs}
        timed = (self._spent_s, spent, 0.0, VALIDATION_S, STEP_S * 1e3, 64.0, 1e-3)
        self.write(events.EpochEnded(number, number * STEPS, STEPS, *timed, all_logs))

    def pause(self, seconds: float) -> None:
        self.write(events.PhaseStarted("paused"))
        self.wait(seconds)
        self.write(events.PhaseStarted("training"))

    def resume(self, epoch: int, epochs: int) -> None:
        self.wait(300.0)
        self.write(events.RunResumed(epoch, 0, epoch * STEPS, self._spent_s, 2, "here", {"epochs": epochs}))
        for phase in ("importing", "loading data", "building"):
            self.write(events.PhaseStarted(phase))
            self.wait(2.0)

    def finish(self, outcome: str = "completed") -> None:
        self.write(events.PhaseStarted("saving"))
        self.wait(1.0)
        self.write(events.RunFinished(outcome, "All epochs are done.", {}))


def overfits(story: Story, epochs: int = 60) -> None:
    story.begin(epochs)
    for number in range(1, epochs + 1):
        val_loss = 0.43 + 0.02 * (24 - number) if number <= 24 else 0.43 + 0.0125 * (number - 24)
        story.epoch(number, 2 / number, val_loss)
    story.finish()


def is_nan(story: Story, source: str = "host") -> None:
    story.begin(6, source, "")
    for number in range(1, 7):
        loss = 1.0 if number < 3 else math.nan
        story.epoch(number, loss, loss, val_accuracy=0.1)
    story.finish()


def improves_late(story: Story) -> None:
    """Its best value comes again with a lower loss, and a better one after a plateau."""
    story.begin(60, monitor="val_accuracy")
    for number in range(1, 61):
        accuracy = {12: 0.99, 20: 0.99, 50: 0.995}.get(number, 0.9)
        story.epoch(number, 1 / number, 1 / number, val_accuracy=accuracy)
    story.finish()


def pauses(story: Story) -> None:
    story.begin(5)
    for number in (1, 2, 3):
        story.epoch(number, 1.0, 1.0)
    story.step(4, 1, loss=1.0)
    story.pause(100.0)
    story.epoch(4, 1.0, 1.0)
    story.write(events.StopRequested("requested in the console"))
    story.finish("stopped")


def goes_on(story: Story) -> None:
    """Jumps and is killed in its last epoch; goes on from an earlier one, for more epochs."""
    story.begin(12)
    for number in range(1, 12):
        story.epoch(number, 1 / number, 1 / number)
    story.step(12, 1, loss=9.0)
    story.resume(8, 30)
    story.fit(30)
    for number in range(9, 31):
        story.epoch(number, 1 / number, 1 / number)
    story.finish()
    story.resume(30, 40)
    story.fit(40)
    for number in range(31, 34):
        story.epoch(number, 1 / number, 1 / number)


STORIES: dict[str, Callable[[Story], None]] = {
    "overfits": overfits,
    "NaN": is_nan,
    "NaN in a script": lambda story: is_nan(story, "notebook"),
    "improves late": improves_late,
    "pauses": pauses,
    "goes on": goes_on,
}


@dataclass
class Journal:
    """What plain code knows of a run after some of its events, but for the best epoch, which `test_state.py` tests."""

    epochs: dict[int, dict[str, float]] = field(default_factory=dict)
    planned: int = 0
    epoch: int = 0  # the current one
    started_at: float = 0.0
    last_at: float = 0.0
    away_s: float = 0.0
    phase: str = ""
    end: str = ""
    is_asked_to_stop: bool = False

    def take(self, at: float, event: events.Event | None) -> None:
        self.started_at = self.started_at or at
        match event:
            case events.RunResumed():
                self.epochs = {number: logs for number, logs in self.epochs.items() if number <= event.epoch}
                self.epoch = event.epoch + 1 if event.step else 0
                self.planned = event.config.get("epochs", self.planned)
                self.away_s += at - self.last_at
                self.phase, self.end, self.is_asked_to_stop = "", "", False
            case events.EpochEnded():
                self.epochs[event.epoch] = dict(event.logs)
                self.epoch = max(self.epoch, event.epoch)
            case events.Progress():
                self.epoch = event.epoch
            case events.FitStarted():
                self.planned = event.epochs
            case events.Steered(action="epochs", refused="", after=after) if after:
                self.planned = int(after)
            case events.PhaseStarted():
                self.phase = event.phase
            case events.RunFinished() | events.RunFailed():
                self.end = getattr(event, "outcome", "failed")
            case events.StopRequested():
                self.is_asked_to_stop = True
        self.last_at = at

    @property
    def newest(self) -> dict[str, float]:
        return self.epochs[max(self.epochs)] if self.epochs else {}

    @property
    def overfits_since(self) -> int | None:
        """The epoch with the lowest val_loss, if the newest three are worse by a twentieth, and training went on."""
        whole = {n: logs for n, logs in self.epochs.items() if {"loss", "val_loss"} <= logs.keys()}
        if not whole or not all(math.isfinite(logs["loss"] + logs["val_loss"]) for logs in whole.values()):
            return None
        at = min(whole, key=lambda number: whole[number]["val_loss"])
        newest = list(whole.values())[-3:]
        is_worse = median(logs["val_loss"] for logs in newest) >= 1.05 * whole[at]["val_loss"]
        is_better = median(logs["loss"] for logs in newest) < whole[at]["loss"]
        return at if max(whole) - at >= 5 and is_worse and is_better else None


def seconds(text: str) -> int:
    return sum(int(part) * 60**place for place, part in enumerate(reversed(text.split(":"))))


class Checked:
    """Compares what is said with what the journal says, event by event."""

    def __init__(self, run: RunDirectory) -> None:
        self.run, self.state, self.journal = run, RunState(), Journal()
        self.printer = PlainPrinter(run, lambda: self.journal.last_at)
        self.elapsed = 0
        self.left: int | None = None

    def all(self) -> None:
        records = records_of(self.run)
        for record, following in zip(records, [*records[1:], records[-1]], strict=True):
            self.after(record, following.at)

    def after(self, read: Record, until: float) -> None:
        at, event, before = read.at, read.event, self.journal.phase
        if isinstance(event, events.RunResumed):
            self.resuming(at)
        self.state = fold(self.state, [read])
        self.journal.take(at, event)
        self.facts()
        lines = self.printer.feed([read])
        if isinstance(event, events.EpochEnded):
            (line,) = [line for line in lines if line.startswith("epoch ")]
            assert line.endswith("★") == (self.state.best_epoch() is event)
        for now in (at, max(at, min(at + 1.0, until - 0.001))):
            self.header(now, was_paused=before == "paused")
        for liveness in (Liveness.ALIVE, Liveness.DEAD):
            self.notices(liveness, is_whole=not isinstance(event, events.EpochEnded))  # its alerts follow

    def resuming(self, now: float) -> None:
        """Until the new process has written, it starts, and the clock stands where the old one left it."""
        if self.state.end is not None:
            return
        view = HeaderView("run", Snapshot(self.state, Liveness.ALIVE, is_resuming=True), now=now, pace=pace(self.state))
        rows = [row.plain for row in header_rows(view, 120)]
        assert "starting" in rows[0]
        assert " left" not in "".join(rows)
        clock, journal = seconds(rows[0].split()[-1]), self.journal
        assert clock == int(journal.last_at - journal.started_at - journal.away_s) >= self.elapsed - 1
        self.elapsed = clock

    def facts(self) -> None:
        facts, journal = facts_of(self.state), self.journal
        assert (facts.epochs_done, facts.epochs or 0) == (len(journal.epochs), journal.planned)
        assert (facts.outcome, facts.is_stopping) == (journal.end, journal.is_asked_to_stop)
        assert facts.is_paused == (journal.phase == "paused" and not journal.end)
        assert facts.last_at - facts.started_at - facts.away_s == pytest.approx(self.state.took_s)
        best, monitor = self.state.best_epoch(), self.state.monitor
        assert (facts.monitor, facts.best) == ((monitor, best.logs[monitor]) if best else ("", None))
        assert re.findall(r"\d+$", best_text(self.state)) == ([str(best.epoch)] if best else [])
        assert facts.is_nan == (not math.isfinite(journal.newest.get("loss", 0.0)))

    def header(self, now: float, *, was_paused: bool) -> None:
        journal = self.journal
        view = HeaderView("run", Snapshot(self.state, Liveness.ALIVE), now=now, pace=pace(self.state))
        rows = [row.plain for row in header_rows(view, 120)]
        if journal.end:
            self.left = None
            return
        assert journal.phase in rows[0] or journal.is_asked_to_stop
        if clock := re.search(r"(\d+(:\d\d)+)$", rows[0]):
            assert seconds(clock[1]) == int(now - journal.started_at - journal.away_s) >= self.elapsed
            self.elapsed = seconds(clock[1])
        if self.state.progress is None:
            return
        epoch, planned = re.findall(r"^(?:epoch|val) (\d+)/(\d+) ", rows[1])[0]
        assert (int(epoch), int(planned)) == (journal.epoch, journal.planned)
        assert int(epoch) <= int(planned)
        left = re.search(r" (\d+(:\d\d)+) left", rows[1])
        if left and self.left is not None and (journal.phase == "paused" or was_paused):
            assert abs(seconds(left[1]) - self.left) <= 1
        self.left = seconds(left[1]) if left else None

    def notices(self, liveness: Liveness, *, is_whole: bool) -> None:
        journal, state = self.journal, self.state
        snapshot = Snapshot(state, Liveness.ALIVE if state.end else liveness)
        said = [text for text in notices_of(snapshot) if text not in state.notices]
        old = {alert.message for alert in state.alerts if not alert.remedy}  # earlier versions wrote both in one text
        for text in said:
            for epoch in map(int, re.findall(r"epoch (\d+)", text)):
                assert epoch <= journal.epoch
            if "has not improved" in text:
                best = self.state.best_epoch()
                assert best is not None
                assert text.startswith(f"{state.monitor} ")
                assert f" for {max(journal.epochs) - best.epoch} epochs" in text
                assert f"{best.logs[state.monitor]:.4g} in epoch {best.epoch}." in text
            assert not (snapshot.is_over and text not in old and ADVICE.search(text))
        overfits = [text for text in said if "overfitting" in text]
        since = journal.overfits_since
        assert len(overfits) == (since is not None) or not is_whole
        assert all(f"in epoch {since} " in text for text in overfits)
        outcome = outcome_of(self.run, snapshot)
        assert (outcome is not None) == snapshot.is_over
        if outcome is not None and journal.end not in {"", "failed"}:
            assert f" {len(journal.epochs)} epoch" in outcome.headline
            assert ("NaN" in outcome.headline) == (facts_of(state).is_nan and journal.end != "stopped")


def records_of(run: RunDirectory) -> list[Record]:
    reader, found = JournalReader(run.journal), []
    while part := reader.read():
        found += part
    return found


@pytest.mark.parametrize("name", STORIES)
def test_what_is_said_of_a_made_up_run_is_true_at_every_event(tmp_path: Path, name: str) -> None:
    run = create_run("made", tmp_path)
    STORIES[name](Story(run))
    Checked(run).all()


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDED.iterdir()))
def test_what_is_said_of_a_recorded_run_is_true_at_every_event(name: str) -> None:
    Checked(RunDirectory(RECORDED / name)).all()
