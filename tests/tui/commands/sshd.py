"""A real SSH server on this machine, and an `ssh` that knows it as ``far``."""

import os
import shutil
import socket
import subprocess
from contextlib import closing, suppress
from pathlib import Path

import psutil

from tests.helpers import wait_until
from tests.tui.terminal_driver import PROGRAM

_SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
_SSH = shutil.which("ssh")
_KEYGEN = shutil.which("ssh-keygen")


def missing() -> str:
    """Why there can be no server here; empty if there can."""
    if None in {_SSHD, _SSH, _KEYGEN}:
        return "OpenSSH is not installed"
    if os.geteuid() == 0:
        with suppress(OSError):
            Path("/run/sshd").mkdir(exist_ok=True)  # as its service does
        return "" if Path("/run/sshd").is_dir() else "sshd needs /run/sshd"
    return ""


class Server:
    """An SSH server as a plain process, whose users have another home folder, and an `ssh` that knows it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.bin = folder / "bin"  # has that `ssh`, and goes first into PATH
        self.known = folder / "known"  # the keys that it knows
        self.home.mkdir()
        self.runs = self.home / "console" / "runs"
        self.profile = self.home / ".profile"  # puts tpu-console on the path of login shells
        self.profile.write_text(
            f"export PATH={Path(PROGRAM).parent}:$PATH TPU_CONSOLE_HOME={self.runs.parent} LC_ALL=C.UTF-8\n"
        )
        self.bin.mkdir()
        for name in ("host", "user"):
            subprocess.run([str(_KEYGEN), "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self._log = folder / "log"
        self._config = folder / "sshd_config"
        self._config.write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {folder / 'host'}\n"
            f"AuthorizedKeysFile {folder / 'user.pub'}\nStrictModes no\nPidFile none\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            f"SetEnv HOME={self.home} SHELL=/bin/sh\n"
        )
        config = folder / "ssh_config"
        config.write_text(
            f"Host far\n  HostName 127.0.0.1\n  Port {self.port}\n  IdentityFile {folder / 'user'}\n"
            f"Host *\n  IdentitiesOnly yes\n  UserKnownHostsFile {self.known}\n  GlobalKnownHostsFile none\n"
        )
        ssh = self.bin / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {_SSH} -F "{config}" "$@"\n')
        ssh.chmod(0o700)
        key = " ".join((folder / "host.pub").read_text().split()[:2])
        self.key = f"[127.0.0.1]:{self.port} {key}\n"
        self.known.write_text(self.key)
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [str(_SSHD), "-D", "-e", "-f", str(self._config)], stdin=subprocess.DEVNULL, stderr=log
            )
        wait_until(self._listens, "the SSH server")

    def _listens(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        with closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def refusal(self) -> str:
        """Why this user cannot log in here, such as a locked account; empty if they can."""
        done = subprocess.run(
            [str(self.bin / "ssh"), "-oBatchMode=yes", "far", "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return f"sshd refuses the login of this user: {done.stderr}" if done.returncode else ""

    def cut(self) -> None:
        """End all connections, and go on listening."""
        for child in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()

    def stop(self) -> None:
        self.cut()
        self._process.kill()
        self._process.wait()
