"""`tpu-console doctor --train`: real trainings, and trainings that crash, hang or are interrupted."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.helpers import LIMIT_S, wait_until
from tests.tui.commands.test_cli_process import Runner
from tpu_console.engine.doctor.self_test import Leg
from tpu_console.engine.machine.devices import Hardware
from tpu_console.tui.jobs.self_test import SelfTest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tui.calling import Call


_BROKEN = """
import os, signal, time
from pathlib import Path
words = Path('/proc/self/cmdline').read_text().split('\\0')
if 'tpu_console.engine.process.main' in words:
    if words[-2].endswith('cpu-tensorflow'):
        time.sleep(1000)
    os.kill(os.getpid(), signal.SIGABRT)
"""


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let training processes abort when Python starts, and those of TensorFlow hang."""
    (tmp_path / "sitecustomize.py").write_text(_BROKEN, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.slow
def test_both_backends_train_and_leave_nothing_behind(temporary: Path, private_home: Path) -> None:
    private_home.mkdir()
    options = ("--train", "--accelerator", "cpu", "--limit", "3000", "--json")
    code, out, err = Runner(private_home, forks=True).finish("doctor", *options)
    shown = json.loads(out)
    trainings = [one for one in shown["findings"] if one["group"].startswith("Training")]
    assert [(one["group"], one["verdict"]) for one in trainings] == [
        ("Training: cpu, tensorflow", "ok"),
        ("Training: cpu, jax", "ok"),
    ]
    assert code == (0 if shown["ok"] else 1)
    assert [len(leg["devices"]) for leg in shown["trainings"]] == [1, 1]
    assert "[2/2] cpu, jax: " in err
    assert [path for path in temporary.iterdir() if path.name != "__pycache__"] == []  # TensorFlow's own code
    assert not (private_home / "runs").exists()


@pytest.mark.usefixtures("broken")
def test_a_crash_and_a_hang_are_named_and_the_others_go_on(temporary: Path, tmp_path: Path) -> None:
    code, out, err = Runner(tmp_path).finish("doctor", "--train", "--limit", "1")
    assert code == 1
    hung, died = re.findall(r"^problem  Training: (.*)", out, re.M)
    assert "SIGABRT" in died
    assert "within 1.00 s" in hung
    (kept,) = temporary.iterdir()
    assert len(list((kept / "runs").glob("2*"))) == 2
    assert f"kept in {kept}." in err


@pytest.mark.usefixtures("broken")
def test_ctrl_c_ends_the_training(temporary: Path, tmp_path: Path) -> None:
    process = Runner(tmp_path).start("doctor", "--train")
    try:
        wait_until(lambda: list(temporary.glob("*/runs/*/heartbeat.json")), "the first training")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 130
    finally:
        process.kill()
    assert out.count("It was interrupted.") == 1
    (run,) = temporary.glob("*/runs/2*")
    assert not [one for one in psutil.process_iter(["cmdline"]) if str(run.resolve()) in (one.info["cmdline"] or ())]


def test_a_backend_that_is_not_installed_is_named_with_the_command_that_installs_it() -> None:
    test = SelfTest([Leg("cpu", "jax", 1)], Hardware(), 1.0, lambda name: name != "jax")
    test.run()
    (result,) = test.groups["Training: cpu, jax"]
    assert re.search("JAX.*pip install", result.text)


def test_wrong_options_are_refused_before_anything_is_trained(call: Call) -> None:
    assert "needs --train" in call.refused("doctor", "--accelerator", "sim:2")
    assert "'fpga' is not" in call.refused("doctor", "--train", "--accelerator", "fpga")
