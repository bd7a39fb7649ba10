"""What the user can do something about: errors, the problems of a configuration, and the findings of a check.

Any other exception is a bug, whose traceback belongs in the log.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from .sanitize import LONGEST_TEXT, printable, printable_lines

_MOST_LISTED = 40  # choices in a sentence


class ConsoleError(Exception):
    """A failure that the user can act on: what happened, with the file, line or field, why, and what to do next.

    Its texts are safe to show, even with file names and messages of other programs in them.
    """

    def __init__(self, what: str, *, why: str = "", remedy: str = "") -> None:
        self.what, self.why, self.remedy = (printable_lines(text[:LONGEST_TEXT]) for text in (what, why, remedy))
        super().__init__(self.what)

    def __str__(self) -> str:
        return " ".join(part for part in (self.what, self.why, self.remedy) if part)

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in a notebook in place of a traceback."""
        return [f"Error: {self.what}", *(part for part in (self.why, self.remedy) if part)]


class AcceleratorError(ConsoleError):
    """The requested accelerator is missing or cannot be used."""


class DataError(ConsoleError):
    """The dataset cannot be downloaded, read or used with this configuration."""


class UserCodeError(ConsoleError):
    """A model or dataset function of the user cannot be found, raised an error, or returned the wrong thing."""


class UntrustedCodeError(ConsoleError):
    """A saved model contains code, or a run names something outside of it, which the user did not start or trust."""


class DiskFullError(ConsoleError):
    """A disk or the user's quota is full."""


class RunNotFoundError(ConsoleError):
    """The run does not exist, or the folder is not a run."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a configuration."""

    key: str  # dotted key, such as ``optimizer.learning_rate``; empty for the whole file
    message: str  # what is wrong with it, with the nearest valid value if there is one

    def __post_init__(self) -> None:
        """Make both texts safe to show, because they quote the file."""
        object.__setattr__(self, "key", printable(self.key[:LONGEST_TEXT]))
        object.__setattr__(self, "message", printable_lines(self.message[:LONGEST_TEXT]))

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


class ConfigError(ConsoleError):
    """A configuration that cannot be used, with all of its problems and the file or option they were found in."""

    def __init__(self, problems: Sequence[Problem], source: str = "") -> None:
        self.problems = tuple(problems)
        self.source = printable(source)
        prefix = f"{self.source}: " if source else ""
        super().__init__("\n".join(f"{prefix}{problem}" for problem in self.problems))


class Severity(StrEnum):
    """How much a finding matters, the most severe first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    OK = "ok"
    UNKNOWN = "unknown"


class Finding(Struct, frozen=True):
    """One thing to know, with the remedy."""

    severity: Severity  # an error means that the run would fail
    text: str  # one or two sentences
    layer: str = ""  # the layer it is about; empty for the whole model
    remedy: str = ""  # what to do, in a sentence or, from the doctor, as a command; empty for nothing
    key: str = ""  # the dotted configuration key that it is about, or the check's name; empty for none
    title: str = ""  # the check's title
    evidence: tuple[str, ...] = ()  # where it was found: lines of code, files, variables, versions
    is_change: bool = False  # whether it is a change that was tried, and with which a step fits


def most_severe_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity; equally severe ones keep their order."""
    order = list(Severity)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))


def one_line(error: BaseException, length: int = 400) -> str:
    """Write an exception's message on one line, safe to show."""
    return " ".join(printable(str(error)).split())[:length]


def did_you_mean(word: str, choices: Iterable[str], listed_in: str = "") -> str:
    """Suggest ``did you mean 'epochs'?`` for the nearest valid choice; if none is near, list those of its section.

    Without a section it lists all choices; if they are many, the first ones, or it says `listed_in`, where they are.
    """
    names = sorted(choices)
    section, _, last = word.rpartition(".")
    near = nearest(word, names) or next((name for name in names if name.rpartition(".")[2] == last), "")
    if near:
        return f"did you mean '{near}'?"
    names = _of_section(section, names) or names
    more = len(names) - _MOST_LISTED
    if more > 0 and listed_in:
        return listed_in
    return f"valid: {', '.join(names[:_MOST_LISTED])}{f' and {more:,} more' if more > 0 else ''}"


def _of_section(section: str, names: Sequence[str]) -> list[str]:
    """Return the dotted keys of a section such as ``optimizer``."""
    return [name for name in names if section and name.rpartition(".")[0] == section]


def nearest(word: str, names: Sequence[str]) -> str:
    """Return the choice that a word is most like; empty if it is like none. A known section's keys are compared."""
    from difflib import get_close_matches

    longer = [name for name in names if len(word) > 1 and name.startswith(word.lower())]
    section, _, short = word.lower().rpartition(".")
    initials = {name: "".join(part[:1] for part in name.rpartition(".")[2].split("_")) for name in names}
    meant = [name for name in names if len(short) > 1 and initials[name] == short]  # lr for optimizer.learning_rate
    meant.sort(key=lambda name: (not name.startswith(f"{section}."), len(name)))
    known = _of_section(section, names)
    alike = {name.rpartition(".")[2]: name for name in known} or dict(zip(names, names, strict=True))
    close = get_close_matches(short if known else word.lower(), alike, n=1, cutoff=0.55)
    return next(iter(longer[:1] or meant[:1] or [alike[name] for name in close]), "")
