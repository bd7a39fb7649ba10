"""The details of a run that the live screen does not show elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpu_console.engine.storage.paths import user_path

from ..text.hosts import topology_text
from ..text.numbers import duration, plural, shape
from ..text.outcome import next_commands, output_pairs
from ..text.run_lines import trained_by
from ..text.steering import mirror_text
from .dialogs import TextDialog, in_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.engine.runs.follower import Snapshot
    from tpu_console.engine.runs.run_directory import RunDirectory
    from tpu_console.engine.runs.state import RunState

    from ..following.run_settings import Setting

_LABEL = 21


def details_dialog(
    run: RunDirectory, snapshot: Snapshot, notices: Sequence[str], settings: Sequence[Setting]
) -> TextDialog:
    """Make the dialog with the details of a run: the most urgent notices and the changed settings come first."""
    state = snapshot.state
    changed = [(one.key, one.text) for one in settings if one.preset is not None]
    same = [(one.key, one.text) for one in settings if one.preset is None]
    facts = {
        "Notices": [("", notice) for notice in notices],
        "Changed from the preset": changed,
        "What next": next_commands(run, state) if snapshot.is_over else [],
        "Run": _run_facts(run, state),
        "Phases": [(name, duration(s)) for name, s in state.phase_s.items()],
        "Files": [("folder", user_path(run.path)), *output_pairs(run)],
        "As in the preset" if changed else "Settings": same,
    }
    return TextDialog("Details", lambda room: in_blocks(facts, room, _LABEL, "dim"))


def _run_facts(run: RunDirectory, state: RunState) -> list[tuple[str, str]]:
    facts = [("run", run.run_id)]
    if (started := state.started) is not None:
        facts.append(("trained by", trained_by(started)))
    if (ready := state.accelerator) is not None:
        facts.append(("accelerator", f"{ready.accelerator} ({ready.reason.rstrip('.')})"))
        facts.append(("backend", topology_text(ready)))
        facts.append(("versions", ", ".join(f"{name} {version}" for name, version in ready.versions.items())))
    if (data := state.data) is not None:
        classes = [plural(data.classes, "class", "classes")] if data.classes else []
        shapes = [shape(data.input_shape)] if data.input_shape else []  # several inputs have no single one
        if shapes or classes:
            facts.append(("one example", ", ".join([*shapes, *classes])))
        if data.remainder:
            facts.append(("dropped", f"{data.remainder:,} examples per epoch (a different set each time)"))
    if (model := state.model) is not None:
        trainable = f"{model.trainable_parameters:,} of {model.parameters:,} parameters trainable"
        facts.append(("model", f"{model.name}: {model.layers} layers, {trainable}"))
    if (fit := state.fit) is not None:
        reason = f" ({fit.execution_reason})" if fit.execution_reason else ""
        facts.append(("steps per execution", f"{fit.steps_per_execution}{reason}"))
        facts.append(("monitored metric", state.monitor))
    if (kept := state.checkpoint) is not None:
        facts.append(("best model", f"{kept.path} (epoch {kept.epoch}, {kept.monitor} {kept.value:.4f})"))
    if state.mirror is not None:
        facts.append(("mirror", f"{state.mirror.place}: {mirror_text(state)}"))
    return [(label, text) for label, text in facts if text]
