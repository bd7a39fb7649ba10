"""`tpu-console doctor --train`: real trainings, and trainings that crash, hang or are interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import LIMIT_S, fork_host, fork_resumed, wait_until
from tpu_console.tui.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[..., tuple[int, str, str]]

_BROKEN = """
import os, signal, time
from pathlib import Path
words = Path('/proc/self/cmdline').read_text().split('\\0')
if 'tpu_console.engine.process.main' in words:
    print('token=secret of', Path.home(), flush=True)
    if words[-2].endswith(os.environ['HANGS']):
        time.sleep(1000)
    os.kill(os.getpid(), signal.SIGABRT)
"""


def _broken(folder: Path, monkeypatch: pytest.MonkeyPatch, hangs: str = "nothing") -> None:
    """Let training processes abort when Python starts, and those of one leg hang."""
    (folder / "sitecustomize.py").write_text(_BROKEN, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("HANGS", hangs)
    monkeypatch.setenv("HOME", str(folder / "ada"))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def _read(report: Path) -> dict[str, list[dict[str, Any]]]:
    data: dict[str, list[dict[str, Any]]] = json.loads(report.read_text().rpartition("```json\n")[2][:-4])
    return data


@pytest.mark.slow
@pytest.mark.timeout(1800)  # five trainings
def test_both_backends_agree_with_the_cpu_and_leave_nothing_behind(
    call: Call, tmp_path: Path, temporary: Path, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpu_console.tui.jobs.self_test.start_host", fork_host)
    monkeypatch.setattr("tpu_console.engine.process.resume.start_host", fork_resumed)
    file = tmp_path / "report.md"
    code, out, err = call(
        "doctor", "--train", "--accelerator", "sim:2", "--limit", "3000", "--json", "--report", str(file)
    )
    shown = json.loads(out)
    trainings = [one for one in shown["findings"] if one["group"].startswith("Training")]
    assert [one for one in trainings if one["verdict"] not in {"ok", "note"}] == []
    assert [one["group"] for one in trainings if one["check"] == "losses"] == [
        "Training: cpu, tensorflow, reference",
        "Training: sim:2, tensorflow",
        "Training: sim:2, jax",
    ]
    assert len([one for one in trainings if one["check"] == "stop-and-resume"]) == 2
    assert code == (0 if shown["ok"] else 1)
    assert [len(leg["devices"]) for leg in shown["trainings"]] == [1, 2, 2]
    assert "[3/3] sim:2, jax, resumed: " in err  # which phases are seen depends on how long they last
    assert _read(file)["trainings"] == shown["trainings"]
    assert [path for path in temporary.iterdir() if path.name != "__pycache__"] == []  # TensorFlow's own code
    assert not (private_home / "runs").exists()


def test_a_crash_and_a_hang_are_named_and_the_others_go_on(
    call: Call, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _broken(tmp_path, monkeypatch, hangs="sim-8-tensorflow")
    monkeypatch.chdir(tmp_path)
    code, out, err = call("doctor", "--train", "--limit", "1")
    assert code == 1
    assert "3 trainings, each of at most 1.00 s; Ctrl-C stops and writes the report." in err
    assert "problem  Training: Its process died. It was ended by SIGABRT. See the end of its log." in out
    assert "problem  Training: It did not end within 1.00 s, so it was ended." in out
    (kept,) = temporary.iterdir()
    assert len(list((kept / "runs").glob("2*"))) == 3
    assert f"The runs are kept in {kept}." in err
    (report,) = tmp_path.glob("tpu-console-doctor-*.md")
    assert report.read_text().count("\ntoken=… of ~\n") == 3
    assert [len(leg["log"]) for leg in _read(report)["trainings"]] == [1, 1, 1]


def test_ctrl_c_ends_the_training_and_writes_the_report(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _broken(tmp_path, monkeypatch, hangs="reference")
    file = tmp_path / "report.md"
    with (tmp_path / "lines").open("w") as lines:
        command = [sys.executable, "-m", "tpu_console", "doctor", "--train", "--report", str(file)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=lines, start_new_session=True)
    try:
        wait_until(lambda: list(temporary.glob("*/runs/*/heartbeat.json")), "the first training")
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
    finally:
        process.kill()
    (training,) = _read(file)["trainings"]
    assert training["name"] == "cpu, tensorflow, reference"
    assert "It was interrupted." in file.read_text()
    assert "each of at most 5m 00s; interrupted |" in file.read_text()
    (run,) = temporary.glob("*/runs/2*")
    holders = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(run) in _text(path)]
    assert holders == []


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_a_backend_that_is_not_installed_is_named_with_the_command_that_installs_it(
    call: Call, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _broken(tmp_path, monkeypatch)
    installed = ("tensorflow", "keras", "tensorflow-hub")
    monkeypatch.setattr("tpu_console.tui.jobs.self_test.is_installed", lambda name: name in installed)
    _, out, _ = call("doctor", "--train", "--report", str(tmp_path / "report.md"))
    assert "note     Training: Not run. JAX is not installed. To install it here:" in out
    monkeypatch.setattr("tpu_console.tui.jobs.self_test.is_installed", lambda name: name == "jax")
    _, out, _ = call("doctor", "--train", "--report", str(tmp_path / "report.md"))
    assert out.count("problem  Training: Not run. TensorFlow is not installed; it reads the data of every run") == 3
    assert len(list(temporary.iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--accelerator", "sim:2"), "need --train"),
        (("--train", "--accelerator", "fpga"), "'fpga' is not cpu, gpu, tpu or sim:N"),
        (("--train", "--accelerator", "tpu:10.0.0.1"), "is not cpu"),
        (("--train", "--report", "/nowhere/report.md"), "cannot be written"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_trained(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    assert main(["doctor", *arguments]) == 2
    assert text in capsys.readouterr().err
