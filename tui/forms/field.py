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
    """A custom value that an open choice accepts besides its listed values.

    Args:
        label: Its name in the list.
        asks: The name of its text field.
        prefix: Written before the text, such as ``sim:``.
        example: A value that shows the form.
        first: What the text field holds at first.
    """

    label: str
    asks: str
    prefix: str
    example: str
    first: str = ""

    def value(self, text: str) -> str:
        """Return the value of a text; a text with its own prefix, such as ``tpu:ADDRESS``, is already complete."""
        return text if ":" in text else self.prefix + text


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field.

    Args:
        key: Dotted key in the configuration.
        group: Its heading.
        label: Its name.
        help: One line of help.
        kind: The kind of its control.
        choices: The listed values of a choice.
        own: The custom value of an open choice.
        default: The default as text; empty if there is none.
        empty_is_default: Whether an empty text means the default rather than an empty list.
        is_essential: Whether it is shown by default.
    """

    key: str
    group: str
    label: str
    help: str
    kind: ControlKind
    choices: tuple[str, ...] = ()
    own: OwnValue | None = None
    default: str = ""
    empty_is_default: bool = True
    is_essential: bool = False


def field_of(problem: Problem, fields: tuple[FieldSpec, ...]) -> FieldSpec | None:
    """Return the field that a problem is about; its key may include an item of a list."""
    about = [spec for spec in fields if f"{problem.key}.".startswith(f"{spec.key}.")]
    return max(about, key=lambda spec: len(spec.key), default=None)
