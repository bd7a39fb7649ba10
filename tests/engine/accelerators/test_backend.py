"""Which backend a run takes, and why."""

import gc
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import run_python, small_config, write_metadata
from tpu_console.engine.accelerators.backend import BackendChoice, choose_backend, connect, importing
from tpu_console.engine.errors import AcceleratorError, ConfigError, Severity
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning import make_plan

NOTHING = Hardware()
V5E = Hardware(tpu="/dev/accel0", tpu_kind="v5e", tpu_chips=8)
V3 = Hardware(tpu="/dev/accel0", tpu_kind="v3", tpu_chips=4)
COLAB = {"tensorflow", "jax", "libtpu"}
TPU_VM = {"tensorflow-tpu", "libtpu"}
LAPTOP = {"tensorflow"}


def backend_choice(
    packages: set[str], hardware: Hardware = NOTHING, environ: dict[str, str] | None = None, **changes: Any
) -> BackendChoice:
    config = small_config(**{"accelerator": "auto"} | changes)
    return choose_backend(config, hardware, packages.__contains__, {"KERAS_HOME": "/nowhere"} | (environ or {}))


ELSEWHERE = "10.0.0.2:8470"
HOSTS = {"count": 2, "index": 0, "coordinator": "127.0.0.1:1234"}
HUB: dict[str, Any] = {"model": "hub", "model_options": {"path": "/"}}


@pytest.mark.parametrize(
    ("packages", "hardware", "environ", "changes", "backend", "accelerator", "why"),
    [
        (LAPTOP, NOTHING, {}, {}, "tensorflow", "auto", "faster without"),
        (COLAB, NOTHING, {}, {"accelerator": "sim:8"}, "tensorflow", "sim:8", "faster without"),
        (COLAB, NOTHING, {}, {"accelerator": "cpu", "backend": "jax"}, "jax", "cpu", "asked for"),
        (COLAB, V5E, {}, {}, "jax", "tpu", "tested on TPUs"),
        (COLAB, V5E, {"TPU_NAME": "local"}, {}, "jax", "tpu", ""),  # as Kaggle sets it, which names no other machine
        (TPU_VM, V3, {}, {}, "tensorflow", "tpu", "tensorflow-tpu"),
        (TPU_VM | {"jax"}, V3, {}, {}, "jax", "tpu", ""),
        (TPU_VM | {"jax"}, V3, {}, {"backend": "tensorflow"}, "tensorflow", "tpu", "asked for"),
        (TPU_VM | {"jax"}, V3, {}, {"hosts": HOSTS}, "jax", "tpu", "several hosts"),
        # Only TensorFlow reaches a TPU of another machine, and reads a SavedModel.
        (TPU_VM | COLAB, NOTHING, {"COLAB_TPU_ADDR": ELSEWHERE}, {}, "tensorflow", "tpu", ELSEWHERE),
        (COLAB | TPU_VM | {"tensorflow-hub"}, V5E, {}, HUB, "tensorflow", "tpu", "SavedModel"),
    ],
)
def test_the_backend_is_the_one_that_can_use_the_machine(
    packages: set[str],
    hardware: Hardware,
    environ: dict[str, str],
    changes: dict[str, Any],
    backend: str,
    accelerator: str,
    why: str,
) -> None:
    taken = backend_choice(packages, hardware, environ, **changes)
    assert (taken.backend, taken.accelerator, taken.missing) == (backend, accelerator, "")
    assert why in taken.why


def test_a_libtpu_with_which_tensorflow_aborts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_metadata(tmp_path, "tensorflow-tpu", "2.20.0")
    write_metadata(tmp_path, "libtpu", "0.0.45")
    assert not backend_choice(TPU_VM, V3).missing
    monkeypatch.syspath_prepend(str(tmp_path))
    refused = backend_choice(TPU_VM, V3)
    assert "libtpu 0.0.45" in refused.missing
    assert refused.remedy.endswith("install 'libtpu<0.0.32'")


def test_a_tensorflow_without_tpu_operations_is_missing_and_jax_is_named_if_it_can_do_it() -> None:
    asked = backend_choice(COLAB, NOTHING, accelerator=f"tpu:{ELSEWHERE}")
    assert (asked.backend, "without TPU operations" in asked.missing) == ("tensorflow", True)
    here = [backend_choice(packages, V5E, backend="tensorflow", accelerator="tpu") for packages in (COLAB, LAPTOP)]
    assert ["backend=jax" in choice.remedy for choice in (asked, *here)] == [False, True, False]


def test_a_tpu_that_no_package_can_use_leaves_the_cpu_and_is_an_error_when_asked_for() -> None:
    assert backend_choice(LAPTOP, V5E).accelerator == "auto"
    asked = backend_choice(LAPTOP, V5E, accelerator="tpu")
    assert "(jax, libtpu)" in asked.missing
    with pytest.raises(AcceleratorError) as caught:
        connect(small_config(accelerator="tpu"), asked)
    assert "jax[tpu]" in caught.value.remedy
    # JAX's libtpu would replace that of tensorflow-tpu.
    assert "another environment" in backend_choice(TPU_VM, V3, backend="jax", accelerator="tpu").remedy


KAGGLE = {"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}


@pytest.mark.parametrize(
    ("hardware", "packages", "environ", "changes", "line"),
    [
        (V5E, {"jax", "libtpu"}, KAGGLE, {}, "-c here.txt tensorflow-cpu"),
        (V5E, {"jax", "libtpu"}, {}, {}, " -m pip install tensorflow-cpu"),
        (NOTHING, set(), KAGGLE, {"hosts": HOSTS, "accelerator": "cpu"}, "-c here.txt jax tensorflow"),
        (Hardware(gpus=("T4",)), set(), {}, {}, " -m pip install 'tensorflow[and-cuda]'"),
        (NOTHING, set(), KAGGLE, {"backend": "jax"}, "-c here.txt jax tensorflow"),
        (V5E, set(), KAGGLE, {"accelerator": "tpu"}, "-c here.txt 'jax[tpu]' tensorflow-cpu"),
        (NOTHING, LAPTOP, KAGGLE, HUB, "-c here.txt tensorflow-hub"),
        (NOTHING, set(), KAGGLE, HUB, "-c here.txt tensorflow tensorflow-hub"),
    ],
)
def test_packages_that_are_missing_are_named_with_the_line_for_this_place(
    hardware: Hardware, packages: set[str], environ: dict[str, str], changes: dict[str, Any], line: str
) -> None:
    choice = backend_choice(packages, hardware, {"PATH": ""} | environ, **changes)
    assert "TensorFlow" in choice.missing
    assert choice.remedy.endswith(line)
    assert "upgrade" not in choice.remedy


def test_under_auto_the_backend_is_the_one_that_keras_is_set_to(tmp_path: Path) -> None:
    jax = {"KERAS_BACKEND": "jax"}
    taken = backend_choice(COLAB, NOTHING, jax)
    assert (taken.backend, taken.why, taken.missing, taken.notes) == ("jax", "KERAS_BACKEND=jax", "", ())
    (note,) = backend_choice(LAPTOP, NOTHING, jax).notes
    assert "not installed" in note
    (tmp_path / "keras.json").write_text('{"backend": "jax"}')
    by_file = backend_choice(COLAB, NOTHING, {"KERAS_HOME": str(tmp_path)})
    assert (by_file.backend, by_file.why) == ("jax", f"backend=jax in {tmp_path}/keras.json")
    (tmp_path / "keras.json").write_text('{"backend": "tensorflow"}')  # which Keras writes itself
    unasked = backend_choice(TPU_VM | {"jax"}, V3, {"KERAS_HOME": str(tmp_path)})
    assert (unasked.backend, unasked.notes) == ("jax", ())
    taken = backend_choice(TPU_VM | {"jax"}, V3, {"KERAS_BACKEND": "tensorflow"})
    assert (taken.backend, taken.accelerator, taken.why) == ("tensorflow", "tpu", "KERAS_BACKEND=tensorflow")
    for broken in ("", "[]", '"x"', '{"backend": null}'):
        (tmp_path / "keras.json").write_text(broken)
        assert backend_choice(LAPTOP, NOTHING, {"KERAS_HOME": str(tmp_path)}).backend == "tensorflow"


def test_the_settings_of_keras_are_safe_to_read_and_to_show(tmp_path: Path) -> None:
    file, home = tmp_path / "keras.json", {"KERAS_HOME": str(tmp_path)}
    file.write_text(json.dumps({"backend": "\x1b]0;owned\a"}))
    (note,) = backend_choice(LAPTOP, NOTHING, home).notes
    assert note.startswith("backend=\ufffd]0;owned\ufffd in ")
    file.unlink()
    os.mkfifo(file)  # opening it would wait for a writer
    assert backend_choice(LAPTOP, NOTHING, home).notes == ()


@pytest.mark.parametrize(
    ("hardware", "asked", "changes", "backend", "why_not"),
    [
        (NOTHING, "torch", {}, "tensorflow", "runs train on TensorFlow or JAX"),
        (NOTHING, "jax", {"backend": "tensorflow"}, "tensorflow", "the run uses tensorflow (asked for"),
        (NOTHING, "tensorflow", {"hosts": HOSTS, "accelerator": "cpu"}, "jax", "the run uses jax (several hosts"),
        (V5E, "tensorflow", {}, "jax", "tensorflow cannot use the TPU"),
        (NOTHING, "jax", {"accelerator": "tpu:10.0.0.2:8470"}, "tensorflow", "the run uses tensorflow ("),
    ],
)  # fmt: skip
def test_what_overrides_keras_is_said(
    hardware: Hardware, asked: str, changes: dict[str, Any], backend: str, why_not: str
) -> None:
    choice = backend_choice(COLAB, hardware, {"KERAS_BACKEND": asked}, **changes)
    assert choice.backend == backend
    (note,) = choice.notes
    assert note.startswith(f"KERAS_BACKEND={asked} is ignored: {why_not}")


def test_jax_platforms_is_followed_or_its_override_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = {"JAX_PLATFORMS": "cpu"}
    assert backend_choice(COLAB, V5E, cpu).accelerator == "auto"
    asked = backend_choice(COLAB, V5E, cpu, accelerator="tpu")
    assert asked.missing.startswith("JAX_PLATFORMS=cpu")
    assert backend_choice(COLAB, V5E, {"JAX_PLATFORMS": "tpu,cpu"}).backend == "jax"
    assert backend_choice(COLAB, V5E, {"JAX_PLATFORMS": "tpu"}, accelerator="cpu").notes == ()  # TensorFlow's CPU
    (note,) = backend_choice(COLAB, V5E, {"JAX_PLATFORMS": "tpu"}, accelerator="cpu", backend="jax").notes
    assert {"JAX_PLATFORMS=tpu", "accelerator=cpu."} <= {*note.split()}
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    plan = make_plan(small_config(accelerator="auto", backend="jax"), Hardware(gpus=("T4", "T4")))
    assert plan.replicas == 1
    assert any("JAX_PLATFORMS=cpu" in advice.text for advice in plan.advice)


def test_the_plan_repeats_what_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    advice = make_plan(small_config(accelerator="auto"), NOTHING).advice
    assert [one.key for one in advice if one.severity is Severity.WARNING] == ["backend"]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"hosts": HOSTS, "backend": "tensorflow"}, "backend"),
        ({"backend": "jax", "accelerator": f"tpu:{ELSEWHERE}"}, "backend"),
        ({"backend": "jax", **HUB}, "backend"),
        ({"hosts": {"count": 2, "index": 2}}, "hosts.index"),
        ({"hosts": {"count": 0}}, "hosts.count"),
        ({"hosts": {"count": 3}, "accelerator": "sim:8"}, "accelerator"),
        ({"accelerator": "sim:0"}, "accelerator"),
        ({"accelerator": "sim:100"}, "accelerator"),
        ({"accelerator": "tpu:"}, "accelerator"),
        ({"backend": "torch"}, "backend"),
    ],
)
def test_an_impossible_combination_is_reported_with_its_key(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        small_config(**changes)
    assert [problem.key for problem in caught.value.problems] == [key]


PREPARE = """
import os, sys, json
from tpu_console.engine.accelerators.backend import choose_backend, prepare
from tpu_console.engine.machine.devices import Hardware
from tests.helpers import small_config
config = small_config(accelerator="sim:3", backend="jax")
prepare(config, choose_backend(config, Hardware()))
import keras, jax
print(keras.config.backend(), len(jax.devices()), jax.devices()[0].platform)
other = small_config(accelerator="cpu", backend="tensorflow")
try:
    prepare(other, choose_backend(other, Hardware()))
except Exception as error:
    print(type(error).__name__, error.what)
"""


@pytest.mark.slow
def test_keras_and_jax_are_set_up_before_they_are_imported(tmp_path: Path) -> None:
    first, second = run_python(PREPARE, cwd=tmp_path).splitlines()
    assert first == "jax 3 cpu"
    assert second.startswith("AcceleratorError ")
    assert "tensorflow" in second


def test_no_garbage_is_looked_for_while_tensorflow_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", sys)
    with importing():  # what is imported already
        assert gc.isenabled()
    monkeypatch.delitem(sys.modules, "tensorflow")
    with suppress(ImportError), importing():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
