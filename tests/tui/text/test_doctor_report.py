"""The report of ``tpu-console doctor --train``, for a person and for a program."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tpu_console.engine.doctor.check import CheckResult
from tpu_console.engine.doctor.doctor import Group, Report
from tpu_console.engine.findings import Severity
from tpu_console.tui.text.doctor_report import markdown, without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("python x.py --token=abc123 --epochs 3", "python x.py --token=… --epochs 3"),
        ("run --api-key abc123 --port 80", "run --api-key … --port 80"),
        ('{"HF_TOKEN": "abc123", "a": 1}', '{"HF_TOKEN": "…", "a": 1}'),
        ("Authorization: Bearer abc.def", "Authorization: Bearer …"),
        ("downloading with hf_abcdefghijk now", "downloading with … now"),
        ("https://me:hunter2@example.com/x", "https://…@example.com/x"),
        ("256 tokens per sentence", "256 tokens per sentence"),
    ],
)
def test_secrets_are_removed(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_the_home_folder_and_the_machine_are_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr(socket, "gethostname", lambda: "adas-laptop")
    assert without_secrets("/home/ada/runs on adas-laptop, /home/adam") == "~/runs on this-machine, /home/adam"


def test_a_person_reads_tables_and_a_program_the_json_at_the_end() -> None:
    found = CheckResult("losses", "Losses", Severity.ERROR, "a | b\nc", (f"{Path.home()}/x",), "pip install x")
    report = Report((("where", "Colab"),), (Group("Training: tpu, jax", (found,)),))
    leg = {
        "name": "tpu, jax",
        "global_batch": 128,
        "seconds": 21.0,
        "epochs": [{"epoch": 1, "loss": 2.27, "val_loss": 2.19}, {"epoch": 2, "loss": None}],
        "compile_s": 3.5,
        "step_ms": None,
        "bound_ms": None,
        "log": ["``` in the log", "\x1b[31mend"],
    }
    text = markdown(report, {"made": "today"}, [leg])
    lines = text.splitlines()
    assert "| where | Colab |" in lines
    assert "| tpu, jax | 128 | 2.27000, 2.19000; NaN, NaN | 3.5 |  |  | 21 |" in lines
    assert "| problem | Losses | a \\| b c | ~/x | pip install x |" in lines
    assert "''' in the log" in lines
    read = json.loads(text.rpartition("```json\n")[2].rpartition("```")[0])
    assert (read["made"], read["ok"], read["trainings"][0]["compile_s"]) == ("today", False, 3.5)
    assert read["findings"][0]["group"] == "Training: tpu, jax"
