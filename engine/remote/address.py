"""Addresses of runs on other machines: ``ssh://[user@]host[:port]/RUN``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import RunNotFoundError

SCHEME = "ssh://"

# Neither may begin with "-": ssh would take it for an option.
_ADDRESS = re.compile(
    r"ssh://(?:(?P<user>[A-Za-z0-9_][\w.@+-]*)@)?(?P<host>[A-Za-z0-9_][\w.-]*|\[[0-9A-Fa-f:.]+(?:%\w+)?\])"
    r"(?::(?P<port>\d{1,5}))?(?:/(?P<run>[^\x00-\x1f\x7f]*))?",
    re.ASCII,
)
# Most are those of `sftp`; the last three notice a lost connection after 15 seconds.
_OPTIONS = (
    "ForwardX11=no",
    "ForwardAgent=no",
    "PermitLocalCommand=no",
    "ClearAllForwardings=yes",
    "RemoteCommand=none",
    "RequestTTY=no",
    "LogLevel=ERROR",
    "Compression=yes",
    "ConnectTimeout=15",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a run is."""

    host: str  # a name, also one of ~/.ssh/config, or an address
    user: str = ""
    port: str = ""
    run: str = ""  # a run's name or part of it, a path with a slash, or empty for the newest

    @property
    def login(self) -> str:
        """The machine, as ``ssh`` takes it: ``user@host``."""
        return f"{self.user}@{self.host}" if self.user else self.host

    @property
    def shell_command(self) -> str:
        """The command that opens a shell on the machine."""
        return f"ssh {f'-p {self.port} ' if self.port else ''}{self.login}"

    def command(self, *, asks: bool) -> list[str]:
        """Return the command that connects to the SFTP server; with `asks`, it may ask for passwords and keys."""
        options = [f"-o{option}" for option in (*_OPTIONS, f"BatchMode={'no' if asks else 'yes'}")]
        port = ["-p", self.port] if self.port else []
        user = ["-l", self.user] if self.user else []
        return ["ssh", *options, *port, *user, "-s", "--", self.host, "sftp"]

    def of_run(self, path: str) -> str:
        """Return the address of a run at this path, as the command line takes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        place = f"{SCHEME}{self.user}{'@' if self.user else ''}{host}{':' if self.port else ''}{self.port}"
        if "/" in self.run:
            return f"{place}{path}" if path.startswith("/") else f"{place}/~/{path}"
        return f"{place}/{path.rpartition('/')[2]}"


def parse_address(text: str) -> Address:
    """Read an address; raise `RunNotFoundError` if it is not one."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise RunNotFoundError(
            f"'{text}' is not the address of a run.", remedy="Write it as ssh://[USER@]HOST[:PORT]/RUN."
        )
    run = found["run"] or ""
    if "/" in run.rstrip("/") and not run.startswith("~/"):
        run = f"/{run.lstrip('/')}"
    return Address(found["host"].strip("[]"), found["user"] or "", found["port"] or "", run.rstrip("/"))
