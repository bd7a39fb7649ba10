"""The results of the doctor in recorded and made-up environments."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.engine.machine.recorded import NAMES, expected_of, lay_out
from tests.helpers import replace
from tpu_console.engine.doctor import examine, word_of
from tpu_console.engine.errors import Finding, Severity
from tpu_console.engine.machine.environment import Environment, Holder, Holders, Lock, look_around
from tpu_console.engine.machine.install import line_in_cell
from tpu_console.engine.machine.sources import Package


@pytest.mark.parametrize("name", NAMES)
def test_recorded_environments_get_their_verdicts(tmp_path: Path, name: str) -> None:
    report = examine(look_around(lay_out(name, tmp_path).sources))
    expected = expected_of(name)
    verdicts, commands = expected.pop("verdicts"), expected.pop("commands")
    assert dict(report.header) == expected
    assert {result.key: word_of(result) for result in report.results} == verdicts
    assert {result.key: result.remedy for result in report.results if result.remedy} == commands
    assert report.is_well == ("problem" not in verdicts.values())
    # Nothing is said that was not read.
    assert [result.key for result in report.results if not result.evidence] == []


def test_the_recordings_cover_the_usual_machines() -> None:
    where = {expected_of(name)["where"] for name in NAMES}
    assert where >= {"Colab", "Kaggle, interactive", "Kaggle, committed", "TPU VM", "GKE", "plain machine"}


@pytest.fixture
def tpu_vm(tmp_path: Path) -> Environment:
    return look_around(lay_out("tpu-vm-v3-8", tmp_path).sources)


def finding_of(facts: Environment, check: str) -> Finding:
    (found,) = [result for result in examine(facts).results if result.key == check]
    return found


def holder(command: str, pid: int = 77) -> Holder:
    return Holder(pid, command, "alice", f"/proc/{pid}/fd/9 -> /dev/accel0")


MAIN, WARM = (f"/usr/bin/python -P -m tpu_console.engine.process.main {one}" for one in ("/runs/a", "--warm {}"))
KERNEL = "python -m ipykernel_launcher -f k.json"


@pytest.mark.parametrize(
    ("holders", "severity", "said"),
    [
        (Holders(unseen=12), Severity.UNKNOWN, "/dev/accel0 /dev/accel1 /dev/accel2 /dev/accel3"),
        (Holders((holder(MAIN),)), Severity.INFO, "tpu-console stop"),
        (Holders((holder(WARM),)), Severity.INFO, "tpu-console stop"),
        (Holders((holder("python train.py"), holder(MAIN, 78))), Severity.ERROR, "ps -o pid,user,lstart,args -p 77"),
        (Holders((holder(KERNEL), holder(KERNEL, 78))), Severity.ERROR, "(and 1 more)"),
        (Holders((holder(KERNEL),)), Severity.ERROR, "restart its kernel"),
        (Holders(lock=Lock("root", is_ours=False, is_locked=True)), Severity.ERROR, "outside this container"),
    ],
)
def test_who_holds_the_tpu_decides_what_to_do(
    tpu_vm: Environment, holders: Holders, severity: Severity, said: str
) -> None:
    facts = replace(tpu_vm, holders=holders)
    found = finding_of(facts, "tpu-held")
    assert found.severity is severity
    assert said in f"{found.text} {found.remedy}"
    is_about_lock = "tpu-lock" in {result.key for result in examine(facts).results}
    assert is_about_lock == (not holders.processes and holders.lock is None), "a lock belongs to its process"


def test_unanswered_probes_give_unknown_results(tpu_vm: Environment) -> None:
    names = ("gpus", "holders", "resources", "disks", "packages")
    unanswered = dict.fromkeys((*names, "metadata"), "slow")
    report = examine(replace(tpu_vm, unanswered=unanswered, **dict.fromkeys(names)))
    unknown = {result.key for result in report.results if result.severity is Severity.UNKNOWN}
    assert unknown == {"tpu-tensorflow", "tpu-jax", "tpu-held", "gpu", "tensorflow", "limits", "disks"}
    assert dict(report.header).keys() == {"where", "accelerator"}
    assert report.is_well


@pytest.mark.parametrize(
    ("asked", "installed", "needed"),
    [
        ("libtpu==0.0.10", "0.0.17", "libtpu==0.0.10"),  # of tensorflow-tpu 2.19.1
        ("libtpu~=0.0.14", "0.0.45", "libtpu<0.0.32,~=0.0.14"),  # of 2.20.0, which cannot be imported then
    ],
)
def test_a_libtpu_that_is_too_new_is_a_problem(tmp_path: Path, asked: str, installed: str, needed: str) -> None:
    sources = lay_out("tpu-vm-v3-8", tmp_path).sources
    packages = {
        "tensorflow-tpu": Package("tensorflow-tpu", "2", ("keras>=3.5.0", asked)),
        "libtpu": Package("libtpu", installed),
    }
    facts = look_around(replace(sources, package=lambda name: packages.get(name) or sources.package(name)))
    found = finding_of(facts, "libtpu")
    assert (found.severity, found.remedy) == (Severity.ERROR, f"pip install '{needed}'")
    assert found.text.startswith(f"tensorflow-tpu 2 requires {needed}, but {installed} is installed.")
    assert found.text.endswith("aborts.") == (installed == "0.0.45")


@pytest.fixture
def kaggle(tmp_path: Path) -> Environment:
    """Kaggle's TPU image as its Dockerfile makes it: two builds of TensorFlow, an older libtpu."""
    sources = lay_out("kaggle-v5e-8-interactive", tmp_path).sources
    changed = {"tensorflow": "2.20.0", "libtpu": "0.0.17"}

    def package(name: str) -> Package | None:
        return Package(name, changed[name]) if name in changed else sources.package(name)

    return look_around(replace(sources, package=package))


def test_what_kaggle_ships_is_no_problem(kaggle: Environment) -> None:
    libtpu = finding_of(kaggle, "libtpu")
    assert (libtpu.severity, libtpu.remedy) == (Severity.INFO, "")
    assert re.findall(r"\d\.\d+\.\d+", libtpu.text) == ["0.0.17", "0.7.2", "0.0.23"]
    assert finding_of(kaggle, "tensorflow").severity is Severity.OK
    assert finding_of(kaggle, "tpu-tensorflow").severity is Severity.INFO
    assert finding_of(kaggle, "tpu-jax").severity is Severity.OK
    packages = examine(kaggle).groups["Packages"]
    assert all(result.severity is not Severity.ERROR for result in packages)


def with_packages(facts: Environment, without: str = "-", **more: Package) -> Environment:
    """Change which packages are installed; those whose names begin with a text are not."""
    assert facts.packages is not None
    kept = {name: package for name, package in facts.packages.found.items() if not name.startswith(without)}
    return replace(facts, packages=replace(facts.packages, found=kept | more))


def test_tensorflows_of_different_versions_are_a_problem(kaggle: Environment) -> None:
    mixed = with_packages(kaggle, tensorflow=Package("tensorflow", "2.21.0"))
    assert finding_of(mixed, "tensorflow").severity is Severity.ERROR
    assert finding_of(mixed, "tpu-tensorflow").severity is Severity.UNKNOWN


def test_what_jax_lacks_for_the_tpu_is_named(kaggle: Environment) -> None:
    found = finding_of(with_packages(kaggle, without="libtpu"), "tpu-jax")
    assert (found.severity, found.remedy) == (Severity.ERROR, line_in_cell("jax[tpu]"))
    assert "installed: libtpu." in found.text


def test_a_notebook_for_a_tpu_without_tensorflow_gets_the_build_without_cuda(kaggle: Environment) -> None:
    found = finding_of(with_packages(kaggle, without="tensorflow"), "tensorflow")
    assert found.severity is Severity.ERROR
    assert found.remedy == line_in_cell("tensorflow-cpu")


@pytest.mark.parametrize(
    ("environ", "severity", "evidence"),
    [
        ({"TERM": "xterm-256color"}, Severity.OK, "TERM=xterm-256color"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, Severity.OK, "COLORTERM=truecolor"),
        ({"TERM": "xterm-direct"}, Severity.OK, "TERM=xterm-direct"),
        ({"TERM": "xterm"}, Severity.INFO, "TERM=xterm"),
        ({"TERM": "dumb"}, Severity.WARNING, "TERM=dumb"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, Severity.INFO, "NO_COLOR=1"),
    ],
)
def test_colors_are_those_that_variables_promise(
    tmp_path: Path, environ: dict[str, str], severity: Severity, evidence: str
) -> None:
    sources = replace(lay_out("laptop", tmp_path).sources, environ=environ, is_terminal=True)
    found = finding_of(look_around(sources), "colours")
    assert (found.severity, found.evidence) == (severity, (evidence,))


def test_what_is_installed_in_a_notebook_keeps_the_packages_of_its_image(tmp_path: Path) -> None:
    sources = lay_out("colab-t4", tmp_path).sources
    lacking = look_around(replace(sources, package=lambda n: None if "cuda" in n else sources.package(n)))
    assert finding_of(lacking, "gpu-jax").remedy == line_in_cell("jax[cuda12]")


def test_the_report_as_json_has_evidence_and_commands_and_a_summary(tmp_path: Path) -> None:
    report = examine(look_around(lay_out("tpu-lock-of-another", tmp_path).sources))
    shown: Any = report.as_dict()
    assert (shown["ok"], shown["environment"]["where"]) == (False, "TPU VM")
    (lock,) = [finding for finding in shown["findings"] if finding["check"] == "tpu-lock"]
    assert (lock["group"], lock["verdict"]) == ("Accelerator", "problem")
    assert lock["command"].endswith("rm /tmp/libtpu_lockfile")
    assert any(line.startswith("/proc/locks: ") for line in lock["evidence"])
    texts = {finding["title"]: finding["text"] for finding in shown["findings"]}
    assert texts["Cores and memory"] == "240 of 240 cores, 438.1 of 438.1 GB of memory."
    assert texts.keys() >= {"TPU free", "Disk (Keras cache)", "Disk (runs)", "Shared memory"}
    report = examine(look_around(lay_out("tpu-vm-v4-8", tmp_path / "vm").sources))
    assert re.findall(r"\d+ \w+", report.summary) == ["2 problems", "4 warnings", "2 notes", "1 unknown", "6 ok"]
