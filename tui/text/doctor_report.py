"""Writes what the doctor found as a Markdown file for a bug report, with all of it as JSON at the end."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpu_console.engine.sanitize import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tpu_console.engine.doctor.doctor import Report

_NAME = r"[\w-]*(?:token|secret|passw(?:or)?d|api[_-]?key|credential|authorization)[\w-]*"
_SECRET = re.compile(rf"""(?i)((?:--{_NAME}\s+|{_NAME}["']?\s*[=:]\s*)["']?(?:bearer\s+)?)[^\s"'&,;|]+""")
_KEY = re.compile(r"\b(?:hf_|gh[pousr]_|sk-|AIza|ya29\.|xox[a-z]-|AKIA)[\w.-]{8,}")
_LOGIN = re.compile(r"(?<=//)[^/\s:@]+:[^/\s@]+(?=@)")


def markdown(report: Report, facts: Mapping[str, Any], legs: Sequence[Mapping[str, Any]]) -> str:
    """Return the file's text, without secrets, the home folder's path and the machine's name.

    `facts` are what else to know, such as when it was made; `legs` the figures of each training, from
    `engine.doctor.self_test.figures`.
    """
    lines = ["# tpu-console doctor --train", "", *_table(("", ""), [*facts.items(), *report.header])]
    lines += ["", f"**{report.summary}**", "", "## Trainings", "", *_losses(legs)]
    for group in report.groups:
        rows = [(one.word, one.title, one.text, "; ".join(one.evidence), one.command) for one in group.results]
        lines += ["", f"## {group.name}", "", *_table(("result", "check", "", "found", "run"), rows)]
    for leg in legs:
        if leg["log"]:
            lines += ["", f"## The end of the log: {leg['name']}", "", "```text"]
            lines += [line.replace("```", "'''") for line in leg["log"]] + ["```"]
    data = {**facts, **report.as_dict(), "trainings": list(legs)}
    lines += ["", "## The same for programs", "", "```json"]
    return without_secrets("\n".join([*lines, json.dumps(data, indent=1, ensure_ascii=False), "```", ""]))


def without_secrets(text: str) -> str:
    """Remove what should not be in a bug report: passwords and tokens, the home folder's path, the machine's name."""
    text = _LOGIN.sub("…", _KEY.sub("…", _SECRET.sub(r"\1…", printable_lines(text))))
    if len(home := str(Path.home())) > 1:
        text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text)
    name = socket.gethostname()
    return re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "this-machine", text) if len(name) > 3 else text


def _losses(legs: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = (
        "training",
        "global batch",
        "loss, val_loss of each epoch",
        "compile s",
        "step ms",
        "bound ms",
        "total s",
    )
    rows = []
    for leg in legs:
        pairs = ([one.get("loss"), one.get("val_loss")] for one in leg["epochs"])
        losses = "; ".join(", ".join("NaN" if one is None else f"{one:.5f}" for one in pair) for pair in pairs)
        figures = (f"{leg[key]:.4g}" if leg[key] is not None else "" for key in ("compile_s", "step_ms", "bound_ms"))
        rows.append((leg["name"], str(leg["global_batch"]), losses, *figures, f"{leg['seconds']:.4g}"))
    return _table(columns, rows)


def _table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    texts = ([str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows)
    return [f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *texts)]
