"""What a person has typed into the run form: texts by field, and the configuration they amount to.

Knows no Textual. Nothing typed is lost: neither an invalid text nor the options of a model not chosen now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.catalog import is_user_reference
from engine.config import parse_config
from engine.errors import ConfigError, Problem
from engine.model_options import MODEL_OPTIONS
from tui.widgets.fields import FieldSpec, Kind, fields_of, option_fields, to_text, to_value

if TYPE_CHECKING:
    from engine.config import RunConfig
    from presets import Preset


class Draft:
    """The form's content for one preset.

    Args:
        preset: The preset it starts from.
    """

    def __init__(self, preset: Preset) -> None:
        self.preset = preset
        self._base: dict[str, Any] = preset.config.model_dump(mode="json")
        self._texts: dict[str, str] = {}

    @property
    def model(self) -> str:
        """The model's text."""
        return self._texts.get("model", self.preset.config.model)

    @property
    def is_edited(self) -> bool:
        """Whether anything differs from the preset."""
        return any(self.is_changed(spec) for spec in self.fields())

    def fields(self) -> tuple[FieldSpec, ...]:
        """Return the fields that mean something for the chosen model and dataset."""
        dataset = self._texts.get("dataset", self.preset.config.dataset)
        general = [spec for spec in fields_of() if spec.key != "data.options" or is_user_reference(dataset)]
        return (*general, *option_fields(self.model))

    def text(self, spec: FieldSpec) -> str:
        """Return a field's text."""
        return self._texts.get(self._slot(spec), self._original(spec))

    def set(self, spec: FieldSpec, text: str) -> bool:
        """Take a field's text; tell whether it is a new one."""
        if text == self.text(spec):
            return False
        self._texts[self._slot(spec)] = text
        return True

    def is_changed(self, spec: FieldSpec) -> bool:
        """Whether a field differs from the preset."""
        return self.text(spec) != self._original(spec)

    def reset(self) -> None:
        """Go back to the preset."""
        self._texts.clear()

    def config(self) -> RunConfig:
        """Return the configuration.

        Raises:
            ConfigError: With every problem, by key.
        """
        values: dict[str, Any] = {}
        problems: list[Problem] = []
        for spec in self.fields():
            try:
                self._put(values, spec)
            except ValueError as error:
                problems.append(Problem(spec.key, str(error)))
        try:
            config = parse_config(values)
        except ConfigError as error:
            problems += error.problems
        if problems:
            raise ConfigError(problems)
        return config

    def _put(self, values: dict[str, Any], spec: FieldSpec) -> None:
        text = self.text(spec)
        if not text.strip() and spec.empty_is_default:
            return
        value = to_value(spec, text)
        *sections, last = spec.key.split(".")
        if sections == ["model_options"] and text == spec.default and last not in self._base_options():
            return  # a default that nobody asked for would only make the command longer
        for name in sections:
            values = values.setdefault(name, {})
        values[last] = value

    def _base_options(self) -> dict[str, Any]:
        """Return the preset's model options while its model is the chosen one."""
        return self._base["model_options"] if self.model == self.preset.config.model else {}

    def _original(self, spec: FieldSpec) -> str:
        if spec.key.startswith("model_options"):
            return self._original_option(spec)
        value: Any = self._base
        for name in spec.key.split("."):
            value = value[name]
        return to_text(value)

    def _original_option(self, spec: FieldSpec) -> str:
        options = self._base_options()
        if spec.kind is Kind.KEYWORDS and spec.key == "model_options":
            return to_text(options)
        name = spec.key.partition(".")[2]
        return to_text(options[name]) if name in options else spec.default

    def _slot(self, spec: FieldSpec) -> str:
        # Each built-in model keeps the options typed for it while another one is tried.
        if not spec.key.startswith("model_options"):
            return spec.key
        return f"{self.model if self.model in MODEL_OPTIONS else 'own'}:{spec.key}"


def field_of(problem: Problem, fields: tuple[FieldSpec, ...]) -> FieldSpec | None:
    """Return the field that a problem is about; its key may go on into one item of a list."""
    about = [spec for spec in fields if f"{problem.key}.".startswith(f"{spec.key}.")]
    return max(about, key=lambda spec: len(spec.key), default=None)
