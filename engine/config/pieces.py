"""Losses, metrics, optimizers, schedules and callbacks by name, each with options if it has any.

A piece is written ``auc``, ``f1_score(average="micro")`` or ``mine.py:focal(gamma=2)``: a name that Keras knows, or a
reference to the user's class or function, and options in TOML. A TOML table ``{name = "auc", curve = "PR"}`` means the
same as ``auc(curve = "PR")``. Of a model with several outputs, ``price=mean_absolute_error`` is the piece of one; a
table ``{price = "mean_absolute_error", kind = …}`` has a piece for each.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field
from pydantic import BeforeValidator

from .catalog import is_user_reference
from .values import check_reference, chosen

_OPEN, _CLOSE = "([{", ")]}"
_WORDS = {"True": True, "False": False, "None": None}
_SHORT = {
    "mae": "mean_absolute_error",
    "mape": "mean_absolute_percentage_error",
    "mse": "mean_squared_error",
    "msle": "mean_squared_logarithmic_error",
}
_HINT = " Write your own as package.module:name or path/to/file.py:name"
_OF_OUTPUT = re.compile(r"([A-Za-z_][\w./-]*)\s*=\s*(.+)", re.DOTALL)


class Piece(Struct, frozen=True):
    """A piece of training, by name."""

    name: str  # Keras's name in lower case with underscores, or a reference to the user's code
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_own(self) -> bool:
        """Whether it is the user's."""
        return is_user_reference(self.name)

    @property
    def label(self) -> str:
        """The name under which its values are logged."""
        return str(self.options.get("name") or self.name.rpartition(":")[2])


def parse_piece(text: str) -> Piece:
    """Parse ``name`` or ``name(key=value, …)``; raise `ValueError` if the options cannot be read."""
    name, bracket, rest = text.strip().partition("(")
    if not bracket:
        return Piece(name)
    if not rest.endswith(")"):
        raise ValueError(f"'{text}' has no closing bracket")
    pairs = [part.partition("=") for part in split_pieces(rest[:-1])]
    if bad := next((key for key, equals, _ in pairs if not (equals and key.strip().isidentifier())), None):
        raise ValueError(f"'{bad.strip()}' in '{text}' is not key=value")
    return Piece(name.strip(), {key.strip(): _value(raw.strip()) for key, _, raw in pairs})


def split_pieces(text: str) -> list[str]:
    """Split at the commas that are not in brackets or quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += (character in _OPEN) - (character in _CLOSE)
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def split_output(text: str) -> tuple[str, str]:
    """Split ``price=mean_absolute_error`` into the output's name, empty if there is none, and the piece."""
    found = _OF_OUTPUT.fullmatch(text.strip())
    return (found[1], found[2]) if found else ("", text.strip())


def of_output(output: str, piece: str) -> str:
    """Join what `split_output` splits."""
    return f"{output}={piece}" if output else piece


def piece(
    choices: Iterable[str], *, of_outputs: bool = False, settings: Mapping[str, str] | None = None
) -> BeforeValidator:
    """Return a validator of pieces: these names, the user's code or TOML tables; with `of_outputs`, for an output too.

    `settings` say which keys to set instead of other names.
    """
    known = {_plain(name): name for name in choices}
    known |= {short: name for short, name in _SHORT.items() if name in known.values()}
    instead = {_plain(name): text for name, text in (settings or {}).items()}

    def check(value: object) -> object:
        if isinstance(value, dict):
            value = piece_from_table(value)
        if not isinstance(value, str):
            return value  # which the type refuses
        output, text = split_output(value) if of_outputs else ("", value.strip())
        name = parse_piece(text).name
        if is_user_reference(name):
            check_reference(name)
            return of_output(output, text)
        if _plain(name) in instead:
            raise ValueError(f"'{name}' has settings instead: {instead[_plain(name)]}")
        found = chosen(known.get(_plain(name), name), {*known.values()}, _HINT)
        return of_output(output, found + text[len(name) :])

    return BeforeValidator(check)


def piece_or_several(choices: Iterable[str]) -> BeforeValidator:
    """Return a validator that accepts a piece, or one for each of several outputs."""
    check_one: Any = piece(choices, of_outputs=True).func

    def check(value: object) -> object:
        parts = listed(value)
        if not isinstance(parts, list) or len(parts) < 2:
            return check_one(parts[0] if isinstance(parts, list) and parts else value)
        checked = [check_one(part) for part in parts]
        names = [split_output(str(part))[0] for part in checked]
        if not all(names) or len({*names}) < len(names):
            raise ValueError("name each output once, as in price=mean_absolute_error, kind=binary_crossentropy")
        return ", ".join(map(str, checked))

    return BeforeValidator(check)


def listed(value: object) -> object:
    """Turn a text with commas, as on the command line, or a table with a key for each output, into a list."""
    if isinstance(value, str):
        return split_pieces(value)
    if not isinstance(value, dict) or isinstance(value.get("name"), str):
        return [value] if isinstance(value, dict) else value
    parts = []
    for name, given in value.items():
        for one in given if isinstance(given, list) else [given]:
            text = piece_from_table(one) if isinstance(one, dict) else str(one)
            parts += [of_output(name, part) for part in split_pieces(text)]
    return parts


def piece_from_table(table: Mapping[str, Any]) -> str:
    """Write a TOML table as a piece; raise `ValueError` if it has no name."""
    if not isinstance(table.get("name"), str):
        raise ValueError("a table needs a name, such as {name = 'auc', curve = 'PR'}")
    options = ", ".join(f"{key}={_toml(value)}" for key, value in table.items() if key != "name")
    return f"{table['name']}({options})" if options else str(table["name"])


def weights_by_class(value: object) -> object:
    """Turn a text such as ``0=1.0, 1=5.0``, as on the command line, into a table."""
    if not (isinstance(value, str) and "=" in value):
        return value
    pairs = (part.partition("=") for part in split_pieces(value.strip("{} ")))
    return {key.strip(): _value(raw.strip()) for key, _, raw in pairs}


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}={_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _value(raw: str) -> Any:
    if raw in _WORDS:
        return _WORDS[raw]
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return raw
