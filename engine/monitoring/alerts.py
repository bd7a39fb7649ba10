"""Alerts: what about a run needs attention, by pure rules over its state, and the web address that hears of it.

`AlertWatch` applies the rules while a run trains: those about the loss at every progress event, the others when an
epoch ends. It writes an event when one begins to hold, so that every viewer shows the same. That a run does not respond
is seen by its viewers (`engine.runs.heartbeat`), and that the input limits it by `engine.monitoring.input_rate`.
"""

from __future__ import annotations

import json
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from ..runs import events
from ..runs.control import Request
from ..runs.state import RunState, reduce
from ..storage.files import free_bytes

if TYPE_CHECKING:
    from ..config.options import Alerts
    from ..runs.recorder import Recorder

SPIKE, SPIKE_SHARE = 3.0, 0.05  # a spike: so many times the usual loss, and above it by this share of the first
RECENT = 5  # epochs of which the usual loss is the median, and for which validation gets worse before it is overfitting
PLATEAU = 10  # epochs without a better value
QUIET = 10  # epochs in which an alert did not hold before it is reported again
WORSE = 1.05  # validation loss is worse from this many times its best value on
SLOW, SLOW_S = 2.0, 10.0  # a slow epoch takes this many times the median, and this many seconds more
LEAST_FREE = 1 << 30  # bytes that should be free on the disk, or space for `SAVES` of the model if that is more
SAVES, _STATE_SIZE = 4, 3  # weights, and twice their size for the optimizer
_LOOK_AT_DISK_S = 30.0

ONE_SHAPE = "Give all batches one shape: drop the incomplete one, or pad to a few lengths."

_LASTING = frozenset({"plateau", "overfitting"})  # the kinds that say what is, not what happened
_OF_EPOCHS = _LASTING | {"nan", "spike", "slow_epoch"}  # the kinds that `alerts_of` checks again

Advice = tuple[str, str]  # what happened, and what to do about it while the run trains
Alerting = dict[events.AlertKind, Advice]


def alerts_within(newest: events.Progress | events.EpochEnded, epochs: Sequence[events.EpochEnded]) -> Alerting:
    """Return the alert if the loss of a progress event, or of the last epoch, is not finite or jumped."""
    value = newest.logs.get("loss", 0.0)
    if not math.isfinite(value):
        what = f"The loss became {'NaN' if math.isnan(value) else 'infinite'} in epoch {newest.epoch}."
        remedy = "Lower the learning rate, or clip the gradients, as in optimizer.name=adam(clipnorm=1)."
        return {events.AlertKind.NAN: (what, remedy)}
    count = len(epochs) - isinstance(newest, events.EpochEnded)
    before = list(islice(_losses(epochs[n] for n in reversed(range(count))), RECENT))
    if "loss" not in newest.logs or len(before) < 2:
        return {}
    usual, first = median(before), next(_losses(epochs))
    if usual <= 0 or value < SPIKE * usual or value - usual < SPIKE_SHARE * abs(first):
        return {}
    what = f"The loss jumped to {value:.4g} in epoch {newest.epoch}; it was about {usual:.4g} before."
    return {events.AlertKind.SPIKE: (what, "")}


def plateau(state: RunState) -> Advice | None:
    """Return whether no epoch was better for a while."""
    best = state.best_epoch()
    since = state.epochs[-1].epoch - best.epoch if best is not None else 0
    if best is None or since < PLATEAU:
        return None
    value = f"{best.logs[state.monitor]:.4g} in epoch {best.epoch}"
    what = f"{state.monitor} has not improved for {since} epochs; the best is {value}."
    return what, "Stop the run, or lower the learning rate."


def overfitting(state: RunState) -> Advice | None:
    """Return whether validation gets worse while training improves."""
    both = [e for e in state.epochs if all(math.isfinite(e.logs.get(name, math.nan)) for name in ("loss", "val_loss"))]
    if len(both) <= RECENT:
        return None
    best = min(both, key=lambda epoch: epoch.logs["val_loss"])
    loss, now = (median(epoch.logs[name] for epoch in both[-3:]) for name in ("loss", "val_loss"))
    lowest = best.logs["val_loss"]
    is_recent = best.epoch > both[-RECENT - 1].epoch
    if is_recent or lowest <= 0 or now < WORSE * lowest or loss >= best.logs["loss"]:
        return None
    what = f"val_loss was {lowest:.4g} in epoch {best.epoch} and about {now:.3g} by epoch {both[-1].epoch}"
    return f"The model is overfitting: {what}.", "Stop the run, or add regularization, augmentation or data."


def slow_epoch(state: RunState) -> Advice | None:
    """Return whether the newest epoch took far longer than the others of this run."""
    took = [epoch.seconds - epoch.compile_s for epoch in state.epochs]
    if len(took) < 4:
        return None
    usual = median(took[:-1])
    if took[-1] < SLOW * usual or took[-1] - usual < SLOW_S:
        return None
    what = f"Epoch {state.epochs[-1].epoch} took {took[-1]:.0f} s; the others took about {usual:.0f} s."
    return what, "Another program may be using the machine, or its disk or network is slow."


def compilation(state: RunState) -> Advice | None:
    """Return whether the training step was compiled for another batch after the first epoch."""
    found = [one for one in state.compiled if not one.is_validation]
    first = next((one for one in reversed(found) if not one.part), None)
    if first is None or not found[-1].part or found[-1].epoch <= max(1, first.epoch):
        return None
    last = found[-1]
    what = f"The training step was compiled again in epoch {last.epoch}, which took {last.seconds:.1f} s"
    return f"{what}: the {last.part} of a batch were {last.batch}, not {last.before}.", ONE_SHAPE


def disk(state: RunState, free: int | None) -> Advice | None:
    """Return whether the disk of the run is filling up."""
    saves = SAVES * _STATE_SIZE * state.model.weight_bytes if state.model is not None else 0
    if free is None or free >= max(LEAST_FREE, saves):
        return None
    what = f"The disk of the run has only {free / 1e9:.1f} GB free."
    return what, "Free space, or the next checkpoint may not be saved."


def alerts_of(state: RunState) -> Alerting:
    """Return what all rules say of a run when an epoch has ended."""
    overfits = overfitting(state)
    found = {
        events.AlertKind.OVERFITTING: overfits,
        events.AlertKind.PLATEAU: plateau(state) if overfits is None else None,
        events.AlertKind.SLOW_EPOCH: slow_epoch(state),
    }
    within = alerts_within(state.epochs[-1], state.epochs)
    return within | {kind: advice for kind, advice in found.items() if advice is not None}


def current_alerts(state: RunState, *, is_over: bool = False) -> list[str]:
    """Return what still needs attention, the newest first: one text for each kind of alert that the run wrote.

    Rules about epochs are applied to the newest epoch again. Of a run that is over, what happened once stays, and
    nothing says what to do.
    """
    newest = {alert.kind: alert for alert in state.alerts}
    now = {str(kind): advice for kind, advice in alerts_of(state).items()} if newest and state.epochs else {}
    checked = _LASTING if is_over else _OF_EPOCHS
    texts = []
    for alert in sorted(newest.values(), key=lambda alert: alert.step, reverse=True):
        what, remedy = alert.message, alert.remedy
        if alert.kind in checked and state.epochs and alert.epoch <= state.epochs[-1].epoch:
            what, remedy = now.get(alert.kind, ("", ""))
        if what:
            texts.append(what if is_over else f"{what} {remedy}".rstrip())
    return texts


def lasting_alerts(state: RunState) -> list[events.Alerted]:
    """Return the alerts that still say something: of a state such as overfitting only the newest, while it lasts."""
    newest = {alert.kind: alert for alert in state.alerts}
    now = {str(kind) for kind in alerts_of(state)} if newest.keys() & _LASTING and state.epochs else set()
    return [one for one in state.alerts if one.kind not in _LASTING or (one is newest[one.kind] and one.kind in now)]


def _losses(epochs: Iterable[events.EpochEnded]) -> Iterator[float]:
    """Yield the finite losses of epochs; lazily, because a rule that is applied at every progress looks at a few."""
    return (loss for epoch in epochs if math.isfinite(loss := epoch.logs.get("loss", math.nan)))


def _last_epoch(state: RunState) -> events.EpochEnded | events.Progress:
    """Return the newest epoch that ended; before the first, the progress of a run that begins."""
    return state.epochs[-1] if state.epochs else events.Progress(0, 0, 0, 0.0, {})


class AlertWatch:
    """Applies the rules to a run while a block trains it, and writes an event when one begins to hold.

    The state is that of a run that is resumed; `free` returns the free bytes of a folder's disk.
    """

    def __init__(
        self,
        recorder: Recorder,
        options: Alerts,
        webhook: Webhook | None = None,
        state: RunState | None = None,
        free: Callable[[Path], int | None] = free_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recorder, self._webhook, self._free, self._clock = recorder, webhook, free, clock
        self._on_nan = options.nan
        self._kinds = {*options.kinds, *(["nan"] if options.nan != "off" else [])}
        self._lock = threading.Lock()
        # Without the progress within an epoch: the rules need only the newest event.
        self._state = state or RunState()
        self._newest = _last_epoch(self._state)
        self._held_in: dict[events.AlertKind, int] = {}  # the last epoch in which each held
        self._looked_at = -math.inf

    def __enter__(self) -> Self:
        self._recorder.listen(self.on_event)
        return self

    def __exit__(self, *_: object) -> None:
        if self._webhook is not None:
            self._webhook.close()

    def on_event(self, event: events.Event) -> None:
        """Take in an event, in the thread that writes it."""
        match event:
            case events.Progress():
                with self._lock:
                    if event.step <= _last_epoch(self._state).step:
                        return  # it came late
                    self._newest, epochs = event, self._state.epochs
                self._report(alerts_within(event, epochs))
            case events.EpochEnded():
                self._note(event)
                self._report(alerts_of(self._state))
            case events.HostSampled() if (now := self._clock()) - self._looked_at >= _LOOK_AT_DISK_S:
                self._looked_at = now
                free = self._free(self._recorder.run.path) if events.AlertKind.DISK in self._kinds else None
                self._report({events.AlertKind.DISK: disk(self._state, free)})
            case events.Compiled():
                self._note(event)
                again = None if event.is_validation else compilation(self._state)
                self._report({events.AlertKind.COMPILATION: again}, event)
            case events.Alerted() if self._webhook is not None:
                self._webhook.send(event)
            case events.RunResumed():
                self._note(event)
                self._held_in.pop(events.AlertKind.NAN, None)  # if it becomes NaN again, that is new
            case events.FitStarted() | events.ModelBuilt() | events.CheckpointSaved() | events.PhaseStarted():
                self._note(event)

    def _note(self, event: events.Event) -> None:
        with self._lock:
            self._state = reduce(self._state, event, 0.0)
            if isinstance(event, events.EpochEnded | events.RunResumed):
                self._newest = _last_epoch(self._state)

    def _report(self, said: Mapping[events.AlertKind, Advice | None], at: events.Compiled | None = None) -> None:
        found = {kind: advice for kind, advice in said.items() if advice is not None and kind in self._kinds}
        if not found:
            return
        with self._lock:
            newest = at or self._newest
            new = [kind for kind in found if newest.epoch - self._held_in.get(kind, -math.inf) > QUIET]
            self._held_in |= dict.fromkeys(found, newest.epoch)
        for kind in new:
            # Several hosts can only be stopped.
            rolls_back = kind is events.AlertKind.NAN and self._on_nan == "rollback" and self._recorder.team is None
            stops = kind is events.AlertKind.NAN and self._on_nan in {"stop", "rollback"} and not rolls_back
            what, remedy = found[kind]
            if rolls_back:
                remedy = "Training goes back to its newest checkpoint, with a lower learning rate."
            self._recorder.emit(events.Alerted(kind, what, newest.epoch, newest.step, stops, remedy))
            reason = f"the loss became NaN or infinite in epoch {newest.epoch}"
            if rolls_back:
                self._recorder.control.ask(Request(events.Steering.ROLL_BACK, reason))
            elif stops:
                self._recorder.control.stop(reason)


_TRIES = 3
_TIMEOUT_S = 10.0
_MOST_WAITING = 100
_MINUTE_S = 60.0
_CLOSE_S = 5.0


class Webhook:
    """Posts alerts as JSON: at most so many per minute, retries included, each tried three times.

    `on_failure` is called with a sentence for the first alert that could not be sent. `pause_s` is the time before the
    first retry, doubled before the next.
    """

    def __init__(
        self, url: str, run: str, on_failure: Callable[[str], object], *, per_minute: int = 10, pause_s: float = 2.0
    ) -> None:
        self._url, self._run, self._on_failure = url, run, on_failure
        self._per_minute, self._pause_s = per_minute, pause_s
        self._waiting: queue.Queue[events.Alerted | None] = queue.Queue(_MOST_WAITING)
        self._sent_at: deque[float] = deque(maxlen=per_minute)
        self._has_failed = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tpu-console-webhook", daemon=True)
        self._thread.start()

    def send(self, alert: events.Alerted) -> None:
        """Send an alert soon; returns immediately. It is dropped if too many are waiting."""
        try:
            self._waiting.put_nowait(alert)
        except queue.Full:
            self._fail("too many alerts are waiting")

    def close(self, timeout: float = _CLOSE_S) -> None:
        """Wait at most `timeout` seconds until what is waiting is sent, and stop."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            self._over.set()
        self._thread.join(timeout)
        self._over.set()

    def _work(self) -> None:
        while not self._over.is_set() and (alert := self._waiting.get()) is not None:
            if reason := self._post(alert):
                self._fail(reason)

    def _post(self, alert: events.Alerted) -> str:
        """Post one alert; return why it failed, or an empty text."""
        import http.client
        import urllib.error
        from urllib import request  # not at the top: the console, which needs the rules, sends nothing

        handlers: list[request.BaseHandler] = [request.ProxyHandler(), request.HTTPHandler(), request.HTTPSHandler()]
        handlers += [request.HTTPDefaultErrorHandler(), request.HTTPErrorProcessor()]
        opener = request.OpenerDirector()
        for handler in handlers:  # none follows a redirect, which could lead to another scheme or host
            opener.add_handler(handler)
        content = {
            "text": f"{self._run}: {alert.text}",
            "run": self._run,
            "kind": str(alert.kind),
            "message": alert.text,
            "epoch": alert.epoch,
            "step": alert.step,
            "stops": alert.stops,
        }
        headers = {"Content-Type": "application/json", "User-Agent": "tpu-console"}
        reason, pause_s = "", self._pause_s
        for attempt in range(_TRIES):
            if attempt and self._over.wait(pause_s):
                break
            pause_s *= 2 if attempt else 1
            if len(self._sent_at) == self._per_minute:
                self._over.wait(max(0.0, self._sent_at[0] + _MINUTE_S - time.monotonic()))
            self._sent_at.append(time.monotonic())
            post = request.Request(self._url, json.dumps(content).encode(), headers)  # noqa: S310  checked
            try:
                with opener.open(post, timeout=_TIMEOUT_S):
                    return ""
            except urllib.error.HTTPError as error:
                reason = f"it answered {error.code}"
                error.close()
                if error.code < 500 and error.code != 429:
                    break  # a mistake in the address does not go away
            except (OSError, ValueError, http.client.HTTPException) as error:
                cause = getattr(error, "reason", error)
                reason = str(getattr(cause, "strerror", None) or cause)
        return reason

    def _fail(self, reason: str) -> None:
        if not self._has_failed and not self._over.is_set():
            self._has_failed = True
            # Only the host's name: the rest of such an address is often a secret.
            self._on_failure(f"An alert could not be sent to {urlsplit(self._url).hostname}: {reason}.")
