"""A small disk that tests can really fill: a tmpfs in a mount namespace that one process holds."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tpu_console.engine.runs.events import PhaseStarted
from tpu_console.engine.runs.journal import JournalWriter

_HOLD = 'mount -t tmpfs -o size="$1" none "$2" && echo mounted && exec cat'


class SmallDisk:
    """A disk of a few hundred KiB, by the path of its root that every process of this user can open."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def free(self) -> int:
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def fill(self) -> None:
        """Take every byte that is free, also what another process frees meanwhile."""
        descriptor = os.open(self.path / "filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            while self.free:
                for size in (1 << 16, 1 << 12):
                    self._write_until_full(descriptor, size)
        finally:
            os.close(descriptor)

    @staticmethod
    def _write_until_full(descriptor: int, size: int) -> None:
        while True:
            try:
                os.write(descriptor, bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return

    def empty(self) -> None:
        """Free what `fill` took."""
        (self.path / "filler").unlink()


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[SmallDisk]:
    """Mount a disk of a size such as ``512k`` on an empty folder; skips the test if the machine does not allow that."""
    for user in (["--map-root-user"], []):  # as any user, then as root where users may not have namespaces
        holder = subprocess.Popen(
            ["unshare", "--mount", *user, "sh", "-c", _HOLD, "sh", size, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert holder.stdin is not None
        assert holder.stdout is not None
        if holder.stdout.readline():
            break
        holder.wait()
    else:
        pytest.skip("this machine does not allow a tmpfs to be mounted in a namespace")
    try:
        # The namespace is another one, and this is the way into it.
        yield SmallDisk(Path(f"/proc/{holder.pid}/root{folder}"))
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()


def fill_up(disk: SmallDisk, journal: JournalWriter) -> None:
    """Fill a disk, and the block that a journal there has already."""
    disk.fill()
    while not journal.is_full:
        journal.write(PhaseStarted("training", "x" * 500))
