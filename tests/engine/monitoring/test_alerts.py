import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import reduce as folded
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from tests.helpers import all_of, epoch_ended, replace, small_config, wait_until
from tests.servers import Answering, local_server
from tpu_console.engine.config.options import Alerts
from tpu_console.engine.config.run_config import journal_values
from tpu_console.engine.errors import ConfigError
from tpu_console.engine.monitoring import alerts
from tpu_console.engine.monitoring.alerts import QUIET, AlertWatch, Webhook
from tpu_console.engine.runs.events import (
    Alerted,
    Compiled,
    EpochEnded,
    Event,
    FitStarted,
    HostSampled,
    ModelBuilt,
    Progress,
    RunResumed,
    StopRequested,
)
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.state import RunState, reduce

FIT = FitStarted(50, 10, 32, 32, 1, monitor="val_loss")


def epoch(number: int, loss: float, val_loss: float | None = None, seconds: float = 5.0) -> EpochEnded:
    logs = {"loss": loss} | ({} if val_loss is None else {"val_loss": val_loss})
    return epoch_ended(number, logs, steps=10, seconds=seconds)


def within(number: int, loss: float) -> Progress:
    return Progress(number, 5, 10 * number - 5, 5.0 * number, {"loss": loss})


def kinds(*events: EpochEnded | Progress) -> dict[str, str]:
    state = folded(lambda state, event: reduce(state, event, 0.0), events, reduce(RunState(), FIT, 0.0))
    newest = events[-1]
    found = alerts.alerts_within(newest, state.epochs) if isinstance(newest, Progress) else alerts.alerts_of(state)
    return {str(kind): what for kind, (what, _) in found.items()}


def trained(losses: Sequence[float], validation: Sequence[float] = ()) -> list[EpochEnded]:
    padded = [*validation, *[None] * (len(losses) - len(validation))]
    return [epoch(number, loss, value) for number, (loss, value) in enumerate(zip(losses, padded, strict=True), 1)]


FALLING = [1 / number for number in range(1, 30)]
NAN = math.nan
SPIKE = "The loss jumped to {} in epoch {}; it was about 0.5 before."


def slow(*seconds: float) -> list[EpochEnded]:
    return [epoch(number, 1.0, seconds=one) for number, one in enumerate(seconds, 1)]


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([within(1, NAN)], {"nan": "The loss became NaN in epoch 1."}),
        ([*trained([1.0, 0.9]), within(3, math.inf)], {"nan": "The loss became infinite in epoch 3."}),
        (trained([1.0, NAN]), {"nan": "The loss became NaN in epoch 2."}),
        ([*trained([1.0, 0.5, 0.4]), within(4, 1.6)], {"spike": SPIKE.format("1.6", 4)}),
        (trained([1.0, 0.5, 0.4, 2.0]), {"spike": SPIKE.format(2, 4)}),
        ([*trained([1.0, NAN, 0.5, 0.5]), within(5, 9.0)], {"spike": SPIKE.format(9, 5)}),
        ([*trained([1.0, 0.5, 0.4]), within(4, 1.2)], {}),  # within three times
        ([*trained([1.0, 0.001, 0.001]), within(4, 0.02)], {}),  # noise of a loss that is nearly zero
        ([*trained([1.0]), within(2, 9.0)], {}),  # one epoch is not usual yet
        ([*trained([-1.0, -2.0, -2.0]), within(4, 9.0)], {}),  # a negative loss has no multiple
        (slow(60, 60, 60, 200), {"slow_epoch": "Epoch 4 took 200 s; the others took about 60 s."}),
        (slow(60, 60, 60, 100), {}),
        (slow(1, 1, 1, 9), {}),  # a few seconds are no reason
        (slow(60, 60, 200), {}),
        (slow(60, 60, 60, 200, 60), {}),
        (slow(10, 40, 40, 60), {}),
    ],
)
def test_what_is_said_of_a_loss_and_of_slow_epochs(events: list[Any], found: dict[str, str]) -> None:
    assert kinds(*events) == found


@pytest.mark.parametrize(
    ("losses", "validation", "found"),
    [
        (FALLING, FALLING, set()),
        (FALLING[:6], [0.5, 0.4, 0.3, 0.31, 0.3, 0.31], set()),  # a few worse epochs are usual
        (FALLING[:12], [0.5, 0.4, 0.3, 0.31, *[0.35, 0.4, 0.45] * 2, 0.5, 0.5], {"overfitting"}),
        ([0.2] * 13, [0.4, 0.3, *[0.31] * 11], {"plateau"}),
        ([0.2] * 11, [0.4, 0.3, *[0.31] * 9], set()),
        ([0.2] * 12, [0.4, 0.3, *[0.31] * 10], {"plateau"}),
    ],
)
def test_a_plateau_and_overfitting(losses: list[float], validation: list[float], found: set[str]) -> None:
    assert set(kinds(*trained(losses, validation))) == found


@pytest.mark.parametrize(
    ("free", "weights", "is_low"),
    [(2 << 30, 1000, False), (1 << 29, 1000, True), (5 << 30, 1 << 30, True), (None, 1000, False)],
)
def test_a_disk_that_fills_up(free: int | None, weights: int, is_low: bool) -> None:
    state = RunState(model=ModelBuilt("small", 1, 1, weights, 1))
    assert bool(alerts.disk(state, free)) == is_low


def test_an_alert_is_written_again_only_after_some_quiet_epochs(recorder: Recorder) -> None:
    losses = [1.0, 0.5, *[0.4] * (QUIET + 12)]
    calm, spike, later = within(4, 0.5), within(4, 3.0), within(6 + QUIET, 3.0)
    with AlertWatch(recorder, Alerts(kinds=("spike",))):
        epochs = trained(losses)
        events: list[Event] = [FIT, *epochs[:3], calm, spike, spike, calm, spike, *epochs[3 : 5 + QUIET], later]
        for event in events:
            recorder.emit(event)
    recorder.journal.flush()
    assert [(alert.kind, alert.epoch, alert.step) for alert in all_of(recorder.run, Alerted)] == [
        ("spike", 4, spike.step),
        ("spike", 6 + QUIET, later.step),
    ]


def test_a_resumed_run_knows_the_epochs_before(recorder: Recorder) -> None:
    before = reduce(RunState(), FIT, 0.0)
    for event in trained([1.0, 0.5, 0.4]):
        before = reduce(before, event, 0.0)
    with AlertWatch(recorder, Alerts(), state=before):
        recorder.emit(within(4, 3.0))
    recorder.journal.flush()
    (alert,) = all_of(recorder.run, Alerted)
    assert re.findall(r"[\d.]*\d", alert.message) == ["3", "4", "0.5"]


@pytest.mark.parametrize(
    ("nan", "stopping", "stops"), [("stop", [True], True), ("warn", [False], False), ("off", [], False)]
)
def test_nan_stops_the_run_if_asked_to(recorder: Recorder, nan: Any, stopping: list[bool], stops: bool) -> None:
    with AlertWatch(recorder, Alerts(nan=nan)):
        recorder.emit(within(1, NAN))
    recorder.journal.flush()
    assert [alert.stops for alert in all_of(recorder.run, Alerted)] == stopping
    assert recorder.should_stop() == stops
    assert len(all_of(recorder.run, StopRequested)) == stops


def test_nan_asks_to_go_back_as_often_as_it_comes_back(recorder: Recorder) -> None:
    with AlertWatch(recorder, Alerts(nan="rollback")):
        events: list[Event] = [FIT, *trained([1.0, 0.5]), within(3, NAN), within(3, NAN)]
        for event in events:
            recorder.emit(event)
        assert [request.action for request in recorder.control.take()] == ["roll_back"]
        recorder.emit(RunResumed(2, 0, 20, 10.0, 1, "here", why="the loss became NaN"))
        recorder.emit(within(3, 0.4))
        recorder.emit(within(3, NAN))
        assert ["NaN" in request.by for request in recorder.control.take()] == [True]
    recorder.journal.flush()
    assert [alert.stops for alert in all_of(recorder.run, Alerted)] == [False, False]
    assert "newest checkpoint" in all_of(recorder.run, Alerted)[0].remedy
    assert not recorder.should_stop()


def test_what_is_said_of_a_condition_follows_the_epochs(recorder: Recorder) -> None:
    """A plateau is said with its newest best epoch, overfitting ends it, and neither stays when it no longer holds."""
    losses = [0.2, *[0.2 / number for number in range(1, 40)]]
    validation = [0.4, 0.3, *[0.31] * 12, 0.25, *[0.26] * 11, *[0.3 + number / 50 for number in range(8)], 0.1]
    said: dict[int, list[str]] = {}
    with AlertWatch(recorder, Alerts()):
        recorder.emit(FIT)
        for event in trained(losses[: len(validation)], validation):
            recorder.emit(event)
            recorder.journal.flush()
            said[event.epoch] = alerts.current_alerts(RunFollower(recorder.run).catch_up().state)
    assert "11 epochs" in said[13][0]
    assert "epoch 2." in said[14][0]
    assert said[15] == []  # a new best epoch
    assert "epoch 15." in said[26][0]
    assert ["epoch 15" in text and "overfitting" in text for text in said[33]] == [True]
    assert said[35] == []


@pytest.mark.parametrize(
    ("alert", "losses", "is_over", "texts"),
    [
        (Alerted("spike", "jumped", 1, 5, remedy="wait"), [], False, ["jumped wait"]),
        (Alerted("spike", "jumped", 5, 45), [1.0, 0.5, 0.4, 0.45], False, ["jumped"]),
        (Alerted("spike", "jumped", 4, 35), [1.0, 0.5, 0.4, 0.45], False, []),
        (Alerted("spike", "jumped", 4, 35, remedy="wait"), [1.0, 0.5, 0.4, 0.45], True, ["jumped"]),
        (Alerted("plateau", "stuck", 4, 40), [1.0, 0.5, 0.4, 0.45], True, []),
    ],
)
def test_what_happened_once_stays_when_the_run_is_over(
    alert: Alerted, losses: list[float], is_over: bool, texts: list[str]
) -> None:
    state = RunState(alerts=(alert,), epochs=trained(losses))
    assert alerts.current_alerts(state, is_over=is_over) == texts
    assert alerts.lasting_alerts(state) == ([] if alert.kind == "plateau" else [alert])


def test_each_alert_can_be_switched_off(recorder: Recorder) -> None:
    with AlertWatch(recorder, Alerts(nan="off", kinds=()), free=lambda _: 1):
        events: list[Event] = [FIT, *trained([1.0, 0.5, 0.4, 9.0, NAN])]
        for event in [*events, *(epoch(n, 1, 1, 99.0 * n) for n in range(6, 30))]:
            recorder.emit(event)
        recorder.emit(HostSampled(0, "here", 1.0, None, None, None, None))
    assert not all_of(recorder.run, Alerted)


def test_the_disk_is_looked_at_now_and_then(recorder: Recorder) -> None:
    looks: list[float] = []
    times = iter([0.0, 1.0, 31.0])

    def free(_: Any) -> int:
        looks.append(0)
        return 1

    with AlertWatch(recorder, Alerts(), free=free, clock=lambda: next(times)):
        for _ in range(3):
            recorder.emit(HostSampled(0, "here", 1.0, None, None, None, None))
    recorder.journal.flush()
    assert len(looks) == 2
    assert [alert.kind for alert in all_of(recorder.run, Alerted)] == ["disk"]


class Hook:
    """What was posted to a real server, and the statuses that it answers with."""

    def __init__(self) -> None:
        self.url, self.posted, self.answers = "", list[dict[str, Any]](), list[int]()


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    hook = Hook()

    class Handler(Answering):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            hook.posted.append({"path": self.path, "type": self.headers["Content-Type"]} | content)
            status = hook.answers.pop(0) if hook.answers else 200
            self.answer(b"", status, {"Location": "/elsewhere"} if status == 302 else None)

    with local_server(Handler) as address:
        hook.url = f"{address}/secret/hook"
        yield hook


def alert(step: int = 35) -> Alerted:
    return Alerted("spike", "The loss jumped.", 4, step)


def test_an_alert_is_posted_as_json_and_its_address_is_in_no_journal(recorder: Recorder, hook: Hook) -> None:
    config = small_config(alerts={"webhook": hook.url})
    webhook = Webhook(hook.url, "my-run", recorder.notice)
    with AlertWatch(recorder, config.alerts, webhook):
        recorder.emit(alert())
        recorder.emit(within(1, NAN))
    assert [post["kind"] for post in hook.posted] == ["spike", "nan"], "its own alerts once, too"
    assert hook.posted[:1] == [
        {
            "path": "/secret/hook",
            "type": "application/json",
            "text": "my-run: The loss jumped.",
            "run": "my-run",
            "kind": "spike",
            "message": "The loss jumped.",
            "epoch": 4,
            "step": 35,
            "stops": False,
        }
    ]
    assert journal_values(config)["alerts"]["webhook"] == "http://127.0.0.1/…"
    recorder.journal.flush()
    assert b"secret" not in recorder.run.journal.read_bytes()


@pytest.mark.parametrize(
    ("answers", "posts", "said"),
    [
        ([500, 429], 3, []),  # the third try succeeds
        ([500, 500, 500], 3, ["An alert could not be sent to 127.0.0.1: it answered 500."]),
        ([404], 1, ["An alert could not be sent to 127.0.0.1: it answered 404."]),
        ([302], 1, ["An alert could not be sent to 127.0.0.1: it answered 302."]),
    ],
)
def test_a_failed_post_is_retried_and_then_reported(
    hook: Hook, answers: list[int], posts: int, said: list[str]
) -> None:
    hook.answers = list(answers)
    notices: list[str] = []
    webhook = Webhook(hook.url, "my-run", notices.append, pause_s=0.0)
    webhook.send(alert())
    webhook.close()
    assert (len(hook.posted), notices) == (posts, said)


class Ssh(BaseHTTPRequestHandler):
    def handle(self) -> None:
        self.connection.recv(1 << 16)
        self.connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")


@pytest.mark.parametrize("speaks", [False, True])
def test_a_server_that_is_gone_or_does_not_speak_http_is_reported_once(
    speaks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    notices: list[str] = []
    with ExitStack() as stack:
        url = stack.enter_context(local_server(Ssh))
        if not speaks:
            stack.close()
        webhook = Webhook(url, "my-run", notices.append, pause_s=0.0)
        webhook.send(alert())
        webhook.send(alert())
        webhook.close()
    assert len(notices) == 1


def test_posts_per_minute_are_limited_and_sending_never_blocks(hook: Hook) -> None:
    notices: list[str] = []
    webhook = Webhook(hook.url, "my-run", notices.append, per_minute=2)
    for step in range(200):
        webhook.send(alert(step))
    wait_until(lambda: len(hook.posted) == 2, "two posts")
    webhook.close(timeout=0.0)
    assert [post["step"] for post in hook.posted] == [0, 1]
    (notice,) = notices
    assert "too many" in notice


@pytest.mark.parametrize("address", ["file:///etc/passwd", "https://", "https://me:pw@example.com"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"alerts\.webhook: must be an address such as https://example\.com/hook"):
        small_config(alerts={"webhook": address})


def test_a_step_that_is_compiled_again_after_the_first_epoch() -> None:
    first = Compiled(0, 0, 0.0, 2.0, False, None, "", "float32[64,8]", "")
    again = Compiled(1, 9, 5.0, 4.0, False, None, "inputs", "float32[37,8]", "float32[64,8]")
    resumed = replace(first, epoch=7)
    assert alerts.compilation(RunState(compiled=(first,))) is None
    # The incomplete batch at the end of the first epoch.
    assert alerts.compilation(RunState(compiled=(first, again))) is None
    assert alerts.compilation(RunState(compiled=(resumed, replace(again, epoch=7)))) is None
    found = alerts.compilation(RunState(compiled=(first, again, replace(again, epoch=3))))
    assert found is not None
    assert "float32[37,8]" in found[0]
