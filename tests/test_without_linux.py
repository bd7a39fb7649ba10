"""What a Mac lacks: ``/proc``, ``/sys``, ``/dev/shm`` and functions of `os` that only Linux has.

A real Mac has not been tried. Here these are hidden from every process of the console, except from psutil, which asks
the system itself on a Mac.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tui.terminal_driver import Terminal

HIDE = """
import os, sys

for name in (
    "sched_getaffinity sched_setaffinity posix_fallocate posix_fadvise fdatasync pidfd_open memfd_create getrandom "
    "eventfd copy_file_range splice O_PATH O_TMPFILE O_DIRECT"
).split():
    if hasattr(os, name):
        delattr(os, name)
if hasattr(os, "process_cpu_count"):  # Python 3.13; it asks `sched_getaffinity` where there is one
    os.process_cpu_count = os.cpu_count


def check(path):
    if not str(path).startswith(("/proc", "/sys/", "/dev/shm")):
        return
    frame = sys._getframe(1)
    while frame is not None:
        if "/psutil/" in frame.f_code.co_filename:
            return
        frame = frame.f_back
    raise FileNotFoundError(2, "hidden by the test", str(path))


def hiding(function):
    def call(path, *arguments, **named):
        check(path)
        return function(path, *arguments, **named)

    return call


for name in ("stat", "lstat", "readlink"):
    setattr(os, name, hiding(getattr(os, name)))
EVENTS = {"open", "os.listdir", "os.scandir"}
sys.addaudithook(lambda event, arguments: check(arguments[0]) if event in EVENTS and arguments else None)
"""


@pytest.fixture
def mac(tmp_path: Path) -> dict[str, str]:
    """The environment of processes that find nothing of Linux."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(HIDE)
    return {"PYTHONPATH": str(tmp_path / "site"), "TPU_CONSOLE_HOME": str(tmp_path / "home")}


def run(mac: dict[str, str], folder: Path, *lines: str) -> list[str]:
    """Return what the program prints for each command line, all in one process."""
    code = "import sys; from tpu_console.tui.cli import main\nfor line in sys.argv[1:]:\n"
    code += "    assert main(line.split()) == 0, line\n    print(chr(0), flush=True)"
    command = [sys.executable, "-c", code, *lines]
    done = subprocess.run(command, cwd=folder, env=os.environ | mac, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split("\0")


def test_a_machine_without_proc_plans_trains_and_shows(mac: dict[str, str], tmp_path: Path) -> None:
    trains = "run digits-cnn --set model=mlp --epochs 1 --accelerator cpu"
    doctor, trained, listed, shown, attached, _ = run(mac, tmp_path, "doctor", trains, "runs", "show", "attach")
    assert "on the CPU" in doctor
    assert "meminfo" not in doctor
    assert "finished" in trained
    assert "digits-cnn" in listed
    assert "val_accuracy" in shown
    assert "finished" in attached


def test_the_screens_open_without_proc(mac: dict[str, str], tmp_path: Path) -> None:
    terminal = Terminal(home=tmp_path / "home", size=(100, 40), environment=mac)
    try:
        terminal.wait_for("digits-cnn")
        terminal.wait_for("CPU")
        terminal.press("ctrl+q")
        assert terminal.wait() == 0
    finally:
        terminal.close()
