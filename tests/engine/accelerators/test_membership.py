"""Which machines train together: by the configuration, by a pod, and what is missing or wrong."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def found(tmp_path: Path, name: str = "laptop", environ: Mapping[str, str] | None = None, **changes: Any) -> Any:
    sources = lay_out(name, tmp_path).sources
    sources = replace(sources, environ={**sources.environ, **(environ or {})})
    return find_membership(small_config(**changes), sources)


POD, GKE, THIRD = "v5p-32-host-1-of-4", "gke-v5e-4", {"index": 2, "count": 3, "coordinator": "10.0.0.1:9000"}
SLICES = {"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1", "MEGASCALE_COORDINATOR_ADDRESS": "10.1.0.5:8080"}
NAMED = {
    "TPU_WORKER_HOSTNAMES": "tpu-0.svc,tpu-1.svc,tpu-2.svc,tpu-3.svc",
    "TPU_WORKER_ID": "3",
    "TPU_ACCELERATOR_TYPE": "v5litepod-16",
}
# libtpu's own ports stand there, which it listens at itself.
WITH_PORTS = {"TPU_PROCESS_ADDRESSES": "10.4.0.1:8471,10.4.0.2:8471", "TPU_WORKER_ID": "0"}
IN_POD = Membership(4, 1, "10.128.0.21", PORT, 300.0, "v5p-32 has 4 hosts")
OVERRIDES = {"count": 2, "index": 0, "coordinator": "10.128.0.22:9000"}


@pytest.mark.parametrize(
    ("machine", "environ", "changes", "membership"),
    [
        ("laptop", {}, {"accelerator": "auto"}, None),
        ("laptop", {}, {"hosts": {"count": 1, "index": 0, "coordinator": "h:1"}}, None),
        (GKE, {}, {"accelerator": "tpu"}, None),
        # A pod's host that does not use its TPU trains alone.
        *((POD, {}, {"accelerator": name}, None) for name in ("cpu", "sim:8", "tpu:10.0.0.9:8470")),
        ("laptop", {}, {"hosts": THIRD}, Membership(3, 2, "10.0.0.1", 9000, 300.0, "asked for")),
        (POD, {}, {"accelerator": "auto"}, IN_POD),
        (POD, {}, {"accelerator": "tpu"}, IN_POD),
        (
            *(POD, {}, {"accelerator": "tpu", "hosts": OVERRIDES}),
            Membership(2, 0, "10.128.0.22", 9000, 300.0, "asked for"),
        ),
        (
            *(POD, SLICES, {"accelerator": "tpu"}),
            Membership(8, 5, "10.1.0.5", PORT, 300.0, "2 slices of v5p-32 have 8 hosts"),
        ),
        (*(GKE, NAMED, {"accelerator": "tpu"}), Membership(4, 3, "tpu-0.svc", PORT, 300.0, "v5litepod-16 has 4 hosts")),
        (
            *(GKE, WITH_PORTS, {"accelerator": "tpu"}),
            Membership(2, 0, "10.4.0.1", PORT, 300.0, "v5litepod-4 has 2 hosts"),
        ),
    ],
)
def test_the_configuration_or_the_machine_says_who_this_is(
    tmp_path: Path, machine: str, environ: dict[str, str], changes: dict[str, Any], membership: Membership | None
) -> None:
    assert found(tmp_path, machine, environ, **changes) == membership


@pytest.mark.parametrize(
    ("machine", "environ", "hosts", "sentence"),
    [
        (POD, {"MEGASCALE_NUM_SLICES": "2"}, {}, "number of this host"),
        (GKE, {"TPU_WORKER_ID": "3"}, {"count": 2, "coordinator": "h:1"}, "This is host 3, but 2 hosts"),
        ("laptop", {}, {"count": 2, "coordinator": "h:1"}, "this host among the 2 is unknown. Set --host-index"),
        ("laptop", {}, {"count": 2, "index": 0}, "The address of host 0 is unknown. Set --coordinator"),
        *(
            ("laptop", {}, {"count": 2, "index": 0, "coordinator": wrong}, f"'{wrong}' is not a coordinator's address")
            for wrong in ("h:", "h:65536", ":9000", "http://h:9000", "[::1:9000")
        ),
    ],
)
def test_what_is_missing_or_wrong_is_one_sentence(
    tmp_path: Path, machine: str, environ: dict[str, str], hosts: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(AcceleratorError) as caught:
        found(tmp_path, machine, environ, accelerator="tpu" if machine != "laptop" else "cpu", hosts=hosts)
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
