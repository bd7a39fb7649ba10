"""The value types of configuration keys, such as accelerators and budgets, the base class of tables, and pieces.

A piece is a loss, metric, optimizer, schedule or callback by name, with options if it has any, written ``auc``,
``f1_score(average="micro")`` or ``mine.py:focal(gamma=2)``: a name that Keras knows, or a reference to the user's class
or function, and options in TOML. A TOML table ``{name = "auc", curve = "PR"}`` means the same as ``auc(curve = "PR")``.
Of a model with several outputs, ``price=mean_absolute_error`` is the piece of one; a table
``{price = "mean_absolute_error", kind = …}`` has a piece for each.
"""

import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Struct, field
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from ..errors import did_you_mean
from .catalog import is_user_reference

_DOTTED_NAME = re.compile(r"[A-Za-z_][\w.]*")


def one_of(choices: Iterable[str]) -> AfterValidator:
    """Return a validator that accepts some names; its error suggests the nearest one."""
    valid = frozenset(choices)
    return AfterValidator(lambda value: chosen(value, valid))


def chosen(value: str, valid: Collection[str], hint: str = "") -> str:
    """Return one of some names; raise `ValueError` with the nearest one for another."""
    if value not in valid:
        raise ValueError(f"unknown name '{value}'; {did_you_mean(value, valid)}{hint}")
    return value


def builtin_or_own(choices: Callable[[], Collection[str]]) -> AfterValidator:
    """Return a validator that accepts some names and references to the user's functions."""
    hint = " Write your own as package.module:function or path/to/file.py:function"
    return AfterValidator(
        lambda value: check_reference(value) if is_user_reference(value) else chosen(value, choices(), hint)
    )


def parsed_by(parse: Callable[[str], object]) -> AfterValidator:
    """Return a validator that keeps the texts which a function can parse; for others, it raises `ValueError`."""

    def check(value: str) -> str:
        parse(value)
        return value

    return AfterValidator(check)


def check_reference(value: str) -> str:
    """Return a reference to the user's code; raise `ValueError` if it is not well-formed."""
    place, _, name = value.rpartition(":")
    if not name.isidentifier() or not (place.endswith(".py") or _DOTTED_NAME.fullmatch(place)):
        raise ValueError(f"'{value}' is not package.module:function or path/to/file.py:function")
    return value


USUAL_BATCH = 32  # of `fit`, for examples that neither a configuration nor the user's function batches
LARGEST_NUMBER = 2**53  # the largest whole number that JSON and a float hold exactly

Count = Annotated[int, Field(strict=True, gt=0, le=LARGEST_NUMBER)]
NaturalNumber = Annotated[int, Field(strict=True, ge=0, le=LARGEST_NUMBER)]
Fraction = Annotated[float, Field(strict=True, gt=0, lt=1)]
DropRate = Annotated[float, Field(strict=True, ge=0, lt=1)]
PositiveNumber = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
NonNegativeNumber = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Switch = Annotated[bool, Field(strict=True)]


def _class_number(value: str) -> str:
    if not re.fullmatch(r"\d{1,6}", value):
        raise ValueError(f"'{value}' is not the number of a class, from 0")
    return value


ClassWeights = dict[Annotated[str, AfterValidator(_class_number)], NonNegativeNumber]
"""The weight of each class, by its number."""


class Section(BaseModel):
    """A table of the configuration; a field's description is the text among its annotations."""

    # Options of the user's functions may be infinite, which TOML can express.
    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, ser_json_inf_nan="constants", defer_build=True
    )

    @classmethod
    def description(cls, name: str) -> str:
        """Return the description of a field, with code in backticks."""
        return next((note for note in cls.model_fields[name].metadata if isinstance(note, str)), "")


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested plain values, such as those in a journal, by dotted key."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= flattened(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


_PATTERN = re.compile(r"auto|cpu|gpu|tpu|tpu:(?P<address>\S+)|sim:(?P<simulated>[1-9][0-9]?)")


class AcceleratorKind(StrEnum):
    """The kinds of devices that a run can ask for."""

    AUTO = "auto"
    CPU = "cpu"
    GPU = "gpu"
    TPU = "tpu"
    SIMULATED = "sim"


class RequestedAccelerator(Struct, frozen=True):
    """The devices that a run asks for."""

    kind: AcceleratorKind
    address: str = ""  # the address of a TPU on another machine; empty for none
    simulated: int = 0  # the number of simulated replicas; 0 unless `kind` is ``sim``

    @property
    def is_tpu(self) -> bool:
        """Whether a TPU is asked for by name."""
        return self.kind is AcceleratorKind.TPU


def parse_accelerator(text: str) -> RequestedAccelerator:
    """Parse ``auto``, ``cpu``, ``gpu``, ``tpu``, ``tpu:ADDRESS`` or ``sim:N``; raise `ValueError` for anything else."""
    if (match := _PATTERN.fullmatch(text)) is None:
        valid = "valid: auto, cpu, gpu, tpu, tpu:ADDRESS, sim:N with N from 1 to 99"
        ask = "; tpu-console preflight --on asks the compiler about a type of TPU" if re.match(r"v\d", text) else ""
        raise ValueError(f"'{text}' is not an accelerator; {valid}{ask}")
    kind = AcceleratorKind(text.partition(":")[0])
    return RequestedAccelerator(kind, match["address"] or "", int(match["simulated"] or 0))


_HOUR = 3600
_PARTS = re.compile(r"(?:(\d{1,3})d)?(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,6})s)?")
_UNITS = (24 * _HOUR, _HOUR, 60, 1)

LIMITS = {"colab": (12 * _HOUR, 12 * _HOUR), "kaggle": (12 * _HOUR, 9 * _HOUR)}
"""Seconds of the longest session, without and with a TPU: Colab's FAQ (free of charge) and Kaggle's documentation of
notebooks. Paid plans of Colab allow more."""


def budget_seconds(budget: str, *, on_tpu: bool = False) -> int | None:
    """Return the seconds of a duration such as ``8h30m``, ``90m`` or ``1d``, or of a name in `LIMITS`; None if empty.

    Raises `ValueError` if it is none of these.
    """
    if not budget:
        return None
    if budget in LIMITS:
        return LIMITS[budget][on_tpu]
    found = _PARTS.fullmatch(budget.replace(" ", ""))
    seconds = sum(int(count or 0) * unit for count, unit in zip(found.groups(), _UNITS, strict=True)) if found else 0
    if not seconds:
        raise ValueError(f"'{budget}' is not a duration such as 8h30m, nor one of {', '.join(LIMITS)}")
    return seconds


_BUCKET = re.compile(r"gs://[a-z0-9][a-z0-9._-]+(/[\w.=-]+)*/?", re.ASCII)


def is_bucket(place: str) -> bool:
    """Return whether a place is in a bucket, which only TensorFlow can reach."""
    return place.startswith("gs://")


def check_mirror(mirror: str) -> None:
    """Raise `ValueError` if a mirror is neither a bucket nor the full path of a folder."""
    is_folder = mirror.startswith(("/", "~/"))
    if mirror and not is_folder and not _BUCKET.fullmatch(mirror):
        raise ValueError("must be a bucket such as gs://bucket/runs, or the full path of a folder such as /mnt/runs")


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
