"""`tpu-console doctor` and `cache`: what they print, and trainings that end well, crash, hang or are interrupted."""

import json
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.engine.machine.recorded import lay_out
from tests.helpers import LIMIT_S, leave_dead, wait_until
from tests.tui.calling import Call
from tests.tui.commands.test_cli_process import Runner
from tpu_console.engine.doctor import Report, examine
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.machine.environment import look_around
from tpu_console.engine.runs.run_directory import create_run
from tpu_console.engine.self_test import Leg
from tpu_console.engine.storage.paths import cache_folder
from tpu_console.tui.jobs.checks import SelfTest
from tpu_console.tui.text.checks import ReportLine, report_lines


def lines_of(name: str, folder: Path, width: int | None) -> tuple[Report, list[ReportLine]]:
    report = examine(look_around(lay_out(name, folder).sources))
    return report, report_lines(report, width)


def test_a_pipe_gets_whole_plain_lines(tmp_path: Path) -> None:
    _, shown = lines_of("kaggle-v5e-8-interactive", tmp_path, None)
    lines = [str(line) for line in shown]
    assert lines[:2] == ["where        Kaggle, interactive", "accelerator  TPU v5e, 8 chips"]
    assert any(line.startswith("problem  TPU free: ") for line in lines)
    assert any(line.endswith("-> /dev/vfio/0") for line in lines)
    assert any(line.startswith("         run: ") and line.endswith("-p 13") for line in lines)


def test_a_terminal_gets_lines_that_fit_and_colored_verdicts(tmp_path: Path) -> None:
    report, lines = lines_of("tpu-vm-v4-8", tmp_path, 80)
    assert [line for line in map(str, lines) if len(line) > 80 and "run:" not in line] == []
    assert ("problem", "TensorFlow") in [(line.look, line.text.partition(":")[0]) for line in lines]
    assert str(lines[-1]) == report.summary


def test_it_really_looks_at_this_machine(call: Call) -> None:
    code, out, err = call("doctor", "--json")
    shown = json.loads(out)
    assert err == ""
    assert code == (0 if shown["ok"] else 1)
    checks = {finding["check"] for finding in shown["findings"]}
    assert {"tensorflow", "keras", "limits", "disk-runs", "utf-8"} <= checks
    assert "tensorflow 2." in shown["environment"]["software"]
    assert "\x1b" not in call("doctor")[1]


def fill(name: str, size: int) -> Path:
    path = cache_folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


def test_the_caches_are_listed_with_their_sizes_and_cleared(call: Call) -> None:
    kept = [fill("compiled/x/b-cache", 1000), fill("compiled/x/c-cache", 500)]
    foreign = fill("notes.txt", 10)
    killed = create_run("killed")
    killed.config.touch()
    kept.append(killed.cache / "train.images")
    killed.cache.mkdir()
    kept[-1].write_bytes(bytes(700))
    leave_dead(killed)
    sizes = {part["name"]: (part["files"], part["bytes"]) for part in call.json("cache")}
    assert sizes == {"compiled": (2, 1500), "runs": (1, 700)}
    assert "1.5 kB" in call.out("cache")
    assert "Cleared" in call.out("cache", "--clear")
    assert not any(path.exists() for path in kept)
    assert foreign.exists()


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
