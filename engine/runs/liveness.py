"""Whether a run is alive, from its heartbeat: the file's modification time and the process it names.

Clocks alone are not trusted: this machine's clock may be changed during a run, and on a shared disk the other machine
or the file server may have another time. So an old heartbeat counts as old only after it was *watched* for a while on
this machine's monotonic clock, and one that changes is fresh, whatever its time.

`judge` is the rule. `HeartbeatWatch` collects what it needs over several looks; `look_once` is for a command that looks
only once.
"""

from __future__ import annotations

import math
import os
import re
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ..machine.process_identity import Sight, look_for
from ..storage.files import inside, open_regular
from .control import STOP, is_waiting
from .run_directory import RunDirectory, list_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


SILENT_S = 10.0
"""Seconds without a heartbeat after which a run counts as not responding. It beats every second, and a busy machine
may delay that by a few seconds."""

LOST_S = 60.0
"""Seconds without a heartbeat after which a run counts as dead if its process cannot be seen from here. A network file
system that fails over may stop for half a minute or more, and a dead run is no longer followed and loses its cache. A
process that can be seen needs no such limit."""

STARTING_S = 15.0
"""Seconds in which a new folder may have no heartbeat yet. The first one is written within a second of the folder."""

WATCH_S = 3.0
"""Seconds for which an old heartbeat is watched before it counts as old: three beats."""

CLOCK_TRUST_S = 86_400.0
"""Age in seconds from which a single look trusts the clocks without watching. Clocks differ by less than a day, even
with wrong time zones, and a list of runs that died weeks ago must not wait for each of them."""

LARGEST_HEARTBEAT = 64 << 10
_LATEST = 1 << 40  # a Unix time that is still a number of seconds


class Liveness(StrEnum):
    """Whether something trains in a run directory."""

    STARTING = "starting"
    ALIVE = "alive"
    SILENT = "not responding"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Life:
    """Whether a run is alive, and what its heartbeat says."""

    liveness: Liveness  # whether something trains
    silent_s: int = 0  # whole seconds without a heartbeat if the run does not respond, else 0
    # Whether more watching cannot change this answer; an old heartbeat counts as fresh until it was watched for a
    # while.
    is_settled: bool = True
    stop_waits: bool = False  # whether the run has not read a request to stop yet
    # Number of events that wait in the run's memory because its disk is full; None if it is not full.
    waiting: int | None = None
    # Unix time of the newest heartbeat on the clock of the machine that wrote it; 0 if there is none.
    beat_at: float = 0.0
    since: float = 0.0  # Unix time from which on its process has had the run, on the same clock; 0 if unknown


@dataclass(frozen=True, slots=True)
class Watched:
    """What a viewer saw of a heartbeat's modification time."""

    # By the clocks, how old the heartbeat was when this viewer first saw it; negative if it came from the future.
    age_s: float
    still_s: float = 0.0  # seconds on the viewer's monotonic clock for which it has watched the heartbeat not to change
    has_changed: bool = False  # whether the viewer has seen it change

    @property
    def silent_s(self) -> float:
        """Seconds without a heartbeat: by the clocks up to the first look, then by watching."""
        return self.still_s if self.has_changed else max(0.0, self.age_s) + self.still_s


def judge(sight: Sight, watched: Watched) -> tuple[Liveness, bool]:
    """Return whether a run with a heartbeat is alive, and whether that is settled."""
    if sight is Sight.GONE:
        return Liveness.DEAD, True
    if not watched.has_changed and watched.still_s < WATCH_S and abs(watched.age_s) >= SILENT_S:
        return Liveness.ALIVE, False
    if watched.silent_s < SILENT_S:
        # The age of a heartbeat from the future means nothing; that it does not change does.
        is_ahead = not watched.has_changed and watched.age_s <= -SILENT_S
        return (Liveness.SILENT if is_ahead else Liveness.ALIVE), True
    if sight is Sight.UNSEEN and watched.silent_s >= LOST_S:
        return Liveness.DEAD, True
    return Liveness.SILENT, True


class HeartbeatWatch:
    """Watches the heartbeat of one run, whose folder need not exist, over several looks.

    A heartbeat that is `clock_trust_s` old counts as old without being watched.
    """

    def __init__(
        self,
        run: RunDirectory,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        clock_trust_s: float = math.inf,
    ) -> None:
        self.run = run
        self._clock = clock
        self._now = now
        self._clock_trust_s = clock_trust_s
        self._beat: dict[str, Any] = {}
        self._beat_ns: int | None = None
        self._age_s = self._still_s = 0.0
        self._has_changed = False
        self._opened_at = self._looked_at = self._clock()

    def look(self) -> Life:
        """Look at the heartbeat and for its process."""
        try:
            beat_ns, beat = _read(self.run)
        except FileNotFoundError:
            return Life(self._before_first_beat())
        except OSError:
            # A network file system that does not answer: what was seen before still counts.
            if self._beat_ns is None:
                return Life(Liveness.DEAD)
            beat_ns, beat = self._beat_ns, self._beat
        self._note(beat_ns, beat)
        watched = Watched(self._age_s, self._still_s, self._has_changed)
        if not self._has_changed and self._age_s >= self._clock_trust_s:
            watched = Watched(self._age_s, max(watched.still_s, WATCH_S))
        liveness, is_settled = judge(look_for(beat), watched)
        waiting = re.fullmatch("[0-9]{1,18}", str(beat.get("waiting")))
        return Life(
            liveness,
            silent_s=int(watched.silent_s) if liveness is Liveness.SILENT else 0,
            is_settled=is_settled,
            stop_waits=is_waiting(self.run, STOP),
            waiting=int(waiting[0]) if waiting else None,
            beat_at=beat_ns / 1e9,
            since=_since(beat),
        )

    def _note(self, beat_ns: int, beat: dict[str, Any]) -> None:
        clock = self._clock()
        if self._beat_ns is None:
            self._age_s = self._now() - beat_ns / 1e9
        elif beat_ns != self._beat_ns:
            self._has_changed, self._still_s = True, 0.0
        else:
            # Time in which this viewer did not look, perhaps because it was suspended, shows nothing.
            self._still_s += min(clock - self._looked_at, WATCH_S)
        self._looked_at = clock
        self._beat_ns, self._beat = beat_ns, beat

    def _before_first_beat(self) -> Liveness:
        """Return whether a run without a heartbeat may still be starting."""
        try:
            age_s = self._now() - self.run.path.stat().st_mtime
        except OSError:
            return Liveness.DEAD
        return Liveness.STARTING if max(age_s, self._clock() - self._opened_at) < STARTING_S else Liveness.DEAD


def _since(beat: Mapping[str, Any]) -> float:
    since = beat.get("since")
    return float(since) if type(since) is int and 0 < since < _LATEST else 0.0


def _read(run: RunDirectory) -> tuple[int, dict[str, Any]]:
    """Return a heartbeat's modification time in nanoseconds and its content; empty if damaged."""
    import json  # not for a list of finished runs

    # Opening the file, not only reading its status, makes a network file system ask its server.
    with open_regular(run.heartbeat) as file:
        content = file.read(LARGEST_HEARTBEAT)
        beat_ns = os.fstat(file.fileno()).st_mtime_ns
    try:
        beat = json.loads(content)
    except (ValueError, RecursionError):
        beat = None
    return beat_ns, beat if isinstance(beat, dict) else {}


def watch_once(run: RunDirectory) -> HeartbeatWatch:
    """Return a watch for only one or two looks; see `CLOCK_TRUST_S`."""
    return HeartbeatWatch(run, clock_trust_s=CLOCK_TRUST_S)


def look_once(runs: Sequence[RunDirectory], wait: Callable[[float], None] = time.sleep) -> list[Life]:
    """Look at runs, and after `WATCH_S` again at those whose heartbeat is old or from the future."""
    watches = [watch_once(run) for run in runs]
    lives = [watch.look() for watch in watches]
    if all(life.is_settled for life in lives):
        return lives
    wait(WATCH_S)
    return [life if life.is_settled else watch.look() for watch, life in zip(watches, lives, strict=True)]


def runs_with_old_caches() -> list[RunDirectory]:
    """Return the runs with decoded examples that no process uses any more."""
    caches = {run: inside(run.path, "cache") for run in list_runs()}
    runs = [run for run, cache in caches.items() if cache.is_dir() and not cache.is_symlink()]
    return [run for run, life in zip(runs, look_once(runs), strict=True) if life.liveness is Liveness.DEAD]


def liveness_of(run: RunDirectory) -> Liveness:
    """Return whether something trains in a run's folder; takes three seconds if its heartbeat is old."""
    return look_once([run])[0].liveness
