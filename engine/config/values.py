"""The value types of configuration keys, such as accelerators, budgets and mirrors, and the base class of tables."""

import re
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum
from typing import Annotated

from msgspec import Struct
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

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
