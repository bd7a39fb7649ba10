"""Runs, presets and a checkpoint as an earlier version wrote them, and what is shown of them and of made runs.

``python -m tests.record texts`` writes what is shown of them again; read the diff before you commit it.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TEXTS = Path(__file__).parent / "texts"


def of_each(texts: Mapping[str, str | Iterable[str]]) -> str:
    """Return texts, or lines, below their names."""
    parts = {name: text if isinstance(text, str) else "\n".join(text) for name, text in texts.items()}
    return "\n".join(f"===== {name}\n{text}" for name, text in parts.items())


def same_text(name: str, text: str) -> None:
    """Compare a text with the recorded one; JSON may have gained keys."""
    before = (TEXTS / name).read_text(encoding="utf-8")
    if name.endswith(".json"):
        values = json.loads(before)
        assert _known(json.loads(text), values) == values
    else:
        assert text.rstrip("\n") == before.rstrip("\n")


def _known(now: Any, before: Any) -> Any:
    """Return JSON values without the keys that were not there before."""
    if isinstance(now, dict) and isinstance(before, dict):
        return {key: _known(value, before[key]) for key, value in now.items() if key in before}
    if isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        return [_known(*values) for values in zip(now, before, strict=True)]
    return now
