"""One field of the run form: its name, its control and its values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpu_console.engine.errors import Problem


class ControlKind(StrEnum):
    """The kind of control of a field."""

    TEXT = "text"
    NUMBER = "number"
    LIST = "list"
    NAMES = "names"
    SWITCH = "switch"
    CHOICE = "choice"
    OPEN_CHOICE = "open choice"
    KEYWORDS = "keywords"


@dataclass(frozen=True, slots=True)
class OwnValue:
    """A custom value that an open choice accepts besides its listed values."""

    label: str  # its name in the list
    asks: str  # the name of its text field
    prefix: str  # written before the text, such as ``sim:``
    example: str  # a value that shows the form
    first: str = ""  # what the text field holds at first

    def value(self, text: str) -> str:
        """Return the value of a text; a text with its own prefix, such as ``tpu:ADDRESS``, is already complete."""
        return text if ":" in text else self.prefix + text


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field."""

    key: str  # dotted key in the configuration
    group: str  # its heading
    label: str  # its name
    help: str  # one line of help
    kind: ControlKind
    choices: tuple[str, ...] = ()  # the listed values of a choice
    own: OwnValue | None = None  # the custom value of an open choice
    default: str = ""  # the default as text; empty if there is none
    empty_is_default: bool = True  # whether an empty text means the default rather than an empty list
    is_essential: bool = False  # whether it is shown by default


def field_of(problem: Problem, fields: tuple[FieldSpec, ...]) -> FieldSpec | None:
    """Return the field that a problem is about; its key may include an item of a list."""
    about = [spec for spec in fields if f"{problem.key}.".startswith(f"{spec.key}.")]
    return max(about, key=lambda spec: len(spec.key), default=None)
