"""Finds avoidable work in a compiled step: numbers gathered one by one, calls to the host.

It reads the compiler's optimised HLO, whose instructions name the Keras layers they come from. Unknown lines are
skipped.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from ..findings import Finding, Severity, most_severe_first
from .bound import moves
from .layers import all_layers, subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .program import Instruction


_SCOPE = re.compile(r'op_name="([^"]*)"')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_TO_HOST = re.compile(r"callback|host", re.IGNORECASE)

_MANY_SINGLES = 100_000  # the least numbers gathered one by one to report
_BY_ROWS = "Gather whole rows instead of single numbers, or do it in the input pipeline."
_AUGMENTATIONS = {
    "RandomRotation": "rotation",
    "RandomTranslation": "translation",
    "RandomZoom": "zoom",
    "RandomCrop": "crop",
}
"""Keras's layers that gather single numbers or do not compile, and what replaces each in the configuration."""


def pipeline_remedy(layer: Any) -> tuple[str, str]:
    """Return what to do instead of a layer that augments images, and its setting; empty if nothing replaces it."""
    key = _AUGMENTATIONS.get(type(layer).__name__, "")
    text = f"Remove the layer from the model and set augmentation.{key} instead: the input pipeline then does it, "
    return (f"{text}on the host.", f"augmentation.{key}") if key else ("", "")


def program_findings(hlo_text: str, model: Any, given: frozenset[str] = frozenset()) -> tuple[Finding, ...]:
    """Return what to know about the optimised program of a training step, the most severe first.

    `given` names the layers that come from the configuration's augmentation and not from the model itself.
    """
    layers = {layer.name: layer for layer in all_layers(model)}
    host, singles = Counter[str](), Counter[str]()
    for move in moves(hlo_text):
        one = move.instruction
        scope = _SCOPE.search(one.rest)
        layer = layer_in(scope[1], frozenset(layers)) if scope else ""
        host[layer] += _calls_host(one)
        singles[layer] += int(move.singles)
    return most_severe_first([*_of_host(host, layers), *_of_singles(singles, layers, given)])


def _calls_host(one: Instruction) -> bool:
    if one.operation in {"infeed", "outfeed"}:
        return True
    if one.operation in {"send", "recv"}:
        return "is_host_transfer=true" in one.rest
    target = _TARGET.search(one.rest) if one.operation == "custom-call" else None
    return target is not None and _TO_HOST.search(target[1]) is not None


def layer_in(scope: str, names: frozenset[str]) -> str:
    """Return the innermost layer that a scope names, such as ``jit(step)/transpose(jvp(base))/conv/dot``, or empty."""
    # If several operations were fused into one, the first scope counts.
    parts = re.split(r"[/();]", scope.partition(";")[0])
    return next((part for part in reversed(parts) if part in names), "")


def _of_singles(singles_of: Counter[str], layers: dict[str, Any], given: frozenset[str]) -> Iterator[Finding]:
    """Report gathers of single numbers, which a TPU does one after the other."""
    for name, singles in singles_of.most_common():
        if singles < _MANY_SINGLES:
            break
        who = subject(layers[name]) if name in layers else "The step"
        text = (
            f"{who} reads {singles:,} numbers one by one in every step on each device, which a TPU is slow at: "
            "expect much more than the best case."
        )
        remedy, key = pipeline_remedy(layers.get(name))
        if name in given:
            remedy, key = (
                "Move the augmentation to the pipeline: augmentation.placement=pipeline",
                "augmentation.placement",
            )
        yield Finding(Severity.WARNING, text, name, remedy or _BY_ROWS, key)


def _of_host(host: Counter[str], layers: dict[str, Any]) -> Iterator[Finding]:
    for name in (name for name, calls in host.items() if calls):
        who = subject(layers[name]) if name in layers else "The step"
        text = f"{who} calls the host in every step, and the TPU waits for it."
        yield Finding(Severity.WARNING, text, name, "Remove prints, callbacks and Python functions from the model.")
