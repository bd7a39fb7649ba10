"""Keeps what the setup form shows at first, to draw it at the next start until the form has loaded.

It is used only if nothing that it depends on has changed. The form then works it out again and replaces it. Only the
built-in preset that needs no files is kept: what the form shows of it depends only on the machine, its packages and its
measurements.
"""

from __future__ import annotations

import os
import sys
import zlib
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpu_console.engine.config.catalog import OFFLINE_PRESETS
from tpu_console.engine.machine.devices import detect_hardware
from tpu_console.engine.storage.paths import cache_folder, keras_home, runs_folder
from tpu_console.presets.files import BUILTIN

from ..following.shown_facts import UNREADABLE, code_stamp, read_kept, stamp_of_file, write_kept
from ..text.plan_text import Entry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FIELDS = ("dataset", "model", "batch_size", "epochs", "optimizer.learning_rate", "accelerator")
"""The main fields, which the form shows first."""

_DEFAULTS = {"optimizer.learning_rate": "0.001", "accelerator": "auto"}
_LABEL_WIDTH = 23
# Our code, the measurements and the environment variables that the form depends on.
_CODE = [f"engine/{name}" for name in ("accelerators", "config", "data", "machine", "planning", "runs")]
_CODE += ["presets", "tui/forms", "tui/screens", "tui/text", "tui/widgets"]
_MEASURED = ("paces.json", "speeds.json")
_VARIABLES = (
    "COLAB_", "CUDA_", "JAX_", "KAGGLE_", "KERAS_", "KUBERNETES_", "MEGASCALE_", "PATH", "TF_", "TPU_", "XLA_"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KeptForm:
    """The contents of the form's panes."""

    titles: Mapping[str, str]  # the titles of the package's presets by name
    fields: Sequence[str]  # the lines with the main fields
    controls: Sequence[tuple[Mapping[str, Any], str]] = ()  # those fields as dictionaries, each with its text
    machine: str = ""  # the accelerators, in the first line
    about: Sequence[Entry] = ()  # the preset
    more: str = ""  # how to see the other fields
    figures: Sequence[Entry] = ()  # the plan
    command: str = ""  # the command that starts the same run
    advice: Sequence[Entry] = ()  # the plan's advice
    counts: str = ""  # how many pieces of advice there are


def find_form(preset: Path) -> KeptForm | None:
    """Return what the form shows of a preset at first; None if it is not kept, or out of date."""
    if preset.parent != BUILTIN:
        return None
    try:
        stamp, values = read_kept(_place())
        if stamp != _stamp():
            return None
        for name in ("about", "figures", "advice"):
            values[name] = [Entry(**entry) for entry in values[name]]
        return KeptForm(**values)
    except UNREADABLE:
        return None


def new_form() -> KeptForm:
    """Return what the built-in presets' files say, without the user's files, which only the form reads safely."""
    import tomllib

    texts = ((path.stem, path.read_text(encoding="utf-8")) for path in BUILTIN.glob("*.toml"))
    presets = {name: tomllib.loads(text) for name, text in texts}
    titles = {name: str(values["preset"]["title"]) for name, values in presets.items()}
    return KeptForm(titles, [_field(key, presets[OFFLINE_PRESETS[0]]) for key in FIELDS])


def _field(key: str, values: Any) -> str:
    *sections, name = key.split(".")
    for section in sections:
        values = values.get(section, {})
    value = values.get(name, _DEFAULTS.get(key, ""))
    return f"{name.replace('_', ' ').capitalize():<{_LABEL_WIDTH}}{value}"


def keep_form() -> None:
    """Keep what the form shows at first for the next start, unless it is kept already."""
    from tpu_console.presets import find_preset

    stamp, preset = _stamp(), find_preset(OFFLINE_PRESETS[0])
    if find_form(preset.path) is not None or not preset.is_builtin:
        return
    from tpu_console.engine.findings import Severity
    from tpu_console.engine.planning.plan import make_plan

    from ..forms.draft import Draft
    from ..forms.run_form import more_fields
    from ..text.plan_text import advice_entries, counts, figures
    from ..text.shell_command import shell_command
    from ..widgets.preset_detail import describe
    from .setup import machine_text

    hardware, draft = detect_hardware(), Draft(preset)
    plan = make_plan(preset.config, hardware)
    if any(item.severity is Severity.ERROR for item in plan.advice):
        return
    kept = replace(
        new_form(),
        machine=machine_text(hardware),
        about=describe(preset),
        controls=[(asdict(spec), draft.text(spec)) for spec in draft.fields() if spec.is_essential],
        more=more_fields(draft),
        figures=figures(plan, preset.config),
        command=shell_command(preset.config, preset),
        advice=advice_entries(plan.advice),
        counts=counts(plan.advice),
    )
    write_kept(_place(), [stamp, asdict(kept)])


def _place() -> Path:
    return cache_folder() / "shown" / "form.json"


def _stamp() -> list[Any]:
    """Return values that change if anything that the form depends on does."""
    measured = [stamp_of_file(runs_folder().parent / name) for name in _MEASURED]
    variables = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith(_VARIABLES))
    secret = zlib.crc32(repr(variables).encode())  # they may contain a password
    machine = [repr(detect_hardware()), os.cpu_count(), secret, str(keras_home())]
    return [_installed(), machine, measured, stamp_of_file(keras_home() / "keras.json")]


@cache
def _installed() -> list[Any]:
    """Return values that change with our code and the installed packages, as they were when this process started.

    The working directory and the folder of our own code are left out: they change too often.
    """
    folders = {*sys.path} - {"", str(Path.cwd()), str(Path(__file__).parents[2])}
    return [code_stamp(_CODE), [[folder, stamp_of_file(Path(folder))] for folder in sorted(folders)]]
