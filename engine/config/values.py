"""The value types of configuration keys, and the base class of tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ..errors import did_you_mean
from .catalog import is_user_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_DOTTED_NAME = re.compile(r"[A-Za-z_][\w.]*")


def one_of(choices: Iterable[str]) -> AfterValidator:
    """Return a validator that accepts some names; its error suggests the nearest one."""
    valid = frozenset(choices)
    return AfterValidator(lambda value: _chosen(value, valid))


def _chosen(value: str, valid: frozenset[str], hint: str = "") -> str:
    if value not in valid:
        raise ValueError(f"unknown name '{value}'; {did_you_mean(value, valid)}{hint}")
    return value


def builtin_or_own(choices: Callable[[], Iterable[str]]) -> AfterValidator:
    """Return a validator that accepts some names and references to the user's functions."""

    def check(value: str) -> str:
        if not is_user_reference(value):
            return _chosen(
                value, frozenset(choices()), " Write your own as package.module:function or path/to/file.py:function"
            )
        return check_reference(value)

    return AfterValidator(check)


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


class LazyModel(BaseModel):
    """A model whose validator is built when the first value is validated."""

    model_config = ConfigDict(defer_build=True)

    @classmethod
    def model_rebuild(cls, **options: Any) -> bool | None:
        """Build the validator; all annotations are known since the class was made."""
        return super().model_rebuild(**options | {"_types_namespace": {}})


class Section(LazyModel):
    """A table of the configuration: frozen, and without unknown keys.

    A field's description is the text among its annotations: ``epochs: Annotated[Count, "Passes over the data."]``.
    """

    # Options of the user's functions may be infinite, which TOML can express.
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, ser_json_inf_nan="constants")

    @classmethod
    def description(cls, name: str) -> str:
        """Return the description of a field, with code in backticks."""
        return next((note for note in cls.model_fields[name].metadata if isinstance(note, str)), "")
