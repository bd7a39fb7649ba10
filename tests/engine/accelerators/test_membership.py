"""Which machines train together: by the configuration, by a pod, and what is missing or wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.engine.machine.recorded import lay_out
from tests.helpers import replace, small_config, the
from tpu_console.engine.accelerators.backend import BackendChoice
from tpu_console.engine.accelerators.hosts import PORT, Membership, check_can_join, find_membership
from tpu_console.engine.errors import AcceleratorError
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.runs.control import Control
from tpu_console.engine.runs.events import RunFailed, RunSource
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.training.train import train_and_report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def found(tmp_path: Path, name: str = "laptop", environ: Mapping[str, str] | None = None, **changes: Any) -> Any:
    sources = lay_out(name, tmp_path).sources
    sources = replace(sources, environ={**sources.environ, **(environ or {})})
    return find_membership(small_config(**changes), sources)


def test_a_machine_trains_alone_unless_something_says_otherwise(tmp_path: Path) -> None:
    assert found(tmp_path / "a", accelerator="auto") is None
    assert found(tmp_path / "b", hosts={"count": 1, "index": 0, "coordinator": "h:1"}) is None
    assert found(tmp_path / "c", "gke-v5e-4", accelerator="tpu") is None
    assert found(tmp_path / "d", "kaggle-v5e-8-interactive", accelerator="tpu") is None


def test_the_configuration_says_who_this_is(tmp_path: Path) -> None:
    hosts = {"count": 3, "index": 2, "coordinator": "10.0.0.1:9000"}
    assert found(tmp_path, hosts=hosts) == Membership(3, 2, "10.0.0.1", 9000, 300.0, "asked for")


def test_a_tpu_pod_s_metadata_says_who_this_is(tmp_path: Path) -> None:
    pod = Membership(4, 1, "10.128.0.21", PORT, 300.0, "v5p-32 has 4 hosts")
    assert found(tmp_path / "a", "v5p-32-host-1-of-4", accelerator="auto") == pod
    assert found(tmp_path / "b", "v5p-32-host-1-of-4", accelerator="tpu") == pod
    hosts = {"count": 2, "index": 0, "coordinator": "10.128.0.22:9000"}  # it overrides the pod
    chosen = found(tmp_path / "c", "v5p-32-host-1-of-4", accelerator="tpu", hosts=hosts)
    assert chosen == Membership(2, 0, "10.128.0.22", 9000, 300.0, "asked for")


def test_several_slices_count_all_their_hosts(tmp_path: Path) -> None:
    slices = {"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1", "MEGASCALE_COORDINATOR_ADDRESS": "10.1.0.5:8080"}
    second = Membership(8, 5, "10.1.0.5", PORT, 300.0, "2 slices of v5p-32 have 8 hosts")
    assert found(tmp_path / "a", "v5p-32-host-1-of-4", slices, accelerator="tpu") == second
    with pytest.raises(AcceleratorError, match="number of this host"):
        found(tmp_path / "b", "v5p-32-host-1-of-4", {"MEGASCALE_NUM_SLICES": "2"}, accelerator="tpu")


def test_a_pod_s_host_that_does_not_use_its_tpu_trains_alone(tmp_path: Path) -> None:
    for number, accelerator in enumerate(("cpu", "sim:8", "tpu:10.0.0.9:8470")):
        assert found(tmp_path / str(number), "v5p-32-host-1-of-4", accelerator=accelerator) is None


def test_gke_s_variables_say_who_this_is(tmp_path: Path) -> None:
    names = "tpu-0.svc,tpu-1.svc,tpu-2.svc,tpu-3.svc"
    environ = {"TPU_WORKER_HOSTNAMES": names, "TPU_WORKER_ID": "3", "TPU_ACCELERATOR_TYPE": "v5litepod-16"}
    place_in = found(tmp_path / "a", "gke-v5e-4", environ, accelerator="tpu")
    assert place_in == Membership(4, 3, "tpu-0.svc", PORT, 300.0, "v5litepod-16 has 4 hosts")
    # libtpu's own ports stand there, which it listens at itself.
    environ = {"TPU_PROCESS_ADDRESSES": "10.4.0.1:8471,10.4.0.2:8471", "TPU_WORKER_ID": "0"}
    place_in = found(tmp_path / "b", "gke-v5e-4", environ, accelerator="tpu")
    assert (place_in.address, place_in.port, place_in.count) == ("10.4.0.1", PORT, 2)
    hosts = {"count": 2, "coordinator": "h:1"}
    with pytest.raises(AcceleratorError, match="This is host 3, but 2 hosts"):
        found(tmp_path / "c", "gke-v5e-4", {"TPU_WORKER_ID": "3"}, accelerator="tpu", hosts=hosts)


@pytest.mark.parametrize(
    ("hosts", "sentence"),
    [
        ({"count": 2, "coordinator": "h:1"}, "The number of this host among the 2 is unknown. Set --host-index"),
        ({"count": 2, "index": 0}, "The address of host 0 is unknown. Set --coordinator"),
        ({"count": 2, "index": 0, "coordinator": "h:"}, "'h:' is not a coordinator's address"),
        ({"count": 2, "index": 0, "coordinator": "h:70000"}, "'h:70000' is not a coordinator's"),
        ({"count": 2, "index": 0, "coordinator": ":9000"}, "':9000' is not a coordinator's"),
        ({"count": 2, "index": 0, "coordinator": "http://h:9000"}, "'http://h:9000' is not a coordinator's"),
        ({"count": 2, "index": 0, "coordinator": "[::1:9000"}, "is not a coordinator's"),
    ],
)
def test_what_is_missing_or_wrong_is_one_sentence(tmp_path: Path, hosts: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AcceleratorError) as caught:
        found(tmp_path, hosts=hosts)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("told", "address", "port", "where"),
    [
        ("host-0", "host-0", PORT, f"host-0:{PORT}"),
        ("host-0:9000", "host-0", 9000, "host-0:9000"),
        ("[::1]:9000", "::1", 9000, "[::1]:9000"),
        ("[fe80::1%eth0]", "fe80::1%eth0", PORT, f"[fe80::1%eth0]:{PORT}"),
        ("2001:db8::7", "2001:db8::7", PORT, f"[2001:db8::7]:{PORT}"),
    ],
)
def test_addresses_of_both_kinds(tmp_path: Path, told: str, address: str, port: int, where: str) -> None:
    place_in = found(tmp_path, hosts={"count": 2, "index": 0, "coordinator": told})
    assert (place_in.address, place_in.port, place_in.where) == (address, port, where)


def test_several_hosts_need_jax_and_a_separate_process() -> None:
    place = Membership(2, 0, "127.0.0.1", 9000, 20.0, "asked for")
    check_can_join(place, BackendChoice("jax", "asked for", "cpu"), "host")
    with pytest.raises(AcceleratorError, match=r"needs its own process.*without --in-process"):
        check_can_join(place, BackendChoice("jax", "asked for", "cpu"), "in-process")
    with pytest.raises(AcceleratorError, match=r"with JAX only, and this run uses tensorflow \(auto: a SavedModel"):
        check_can_join(place, BackendChoice("tensorflow", "auto: a SavedModel", "tpu"), "host")


def test_a_run_inside_the_console_that_is_one_of_several_ends_with_that_sentence(tmp_path: Path) -> None:
    hosts = {"count": 2, "index": 0, "coordinator": "127.0.0.1:9000"}
    run = prepare_run(small_config(hosts=hosts), tmp_path / "runs")
    journal = JournalWriter(run.journal)
    assert not train_and_report(run, small_config(hosts=hosts), journal, Control(), source=RunSource.IN_PROCESS)
    journal.close()
    failed = the(run, RunFailed)
    assert "2 hosts" in failed.what
    assert "--in-process" in failed.remedy
