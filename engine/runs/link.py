"""The machine that a run's folder is copied from."""

from __future__ import annotations

from typing import Protocol


class Link(Protocol):
    """Keeps the copy up to date, and sends the requests in its `control` folder."""

    host: str
    """The other machine."""

    folder: str
    """The folder there, with the host before it, as `scp` takes it."""

    address: str
    """What names the run on the command line of this machine."""

    def looked_at(self) -> float:
        """Return the monotonic time of the newest complete look; it stands still while there is no connection."""

    def now(self) -> float:
        """Return the Unix time on the clock of the other machine."""

    def silent_s(self) -> int | None:
        """Return for how many seconds the other machine has been silent; None while the connection is fine."""

    def problem(self) -> str:
        """Return why the connection was lost, or what else is wrong; empty if nothing is."""
