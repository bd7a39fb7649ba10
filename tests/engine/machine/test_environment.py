"""The facts about a machine: recorded environments and the limits of a container as real files, and this machine."""

import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from tests.engine.machine.recorded import lay_out, put
from tests.helpers import replace, run_python
from tpu_console.engine.machine.devices import Kind, find_place, find_tpu, read_metadata
from tpu_console.engine.machine.environment import (
    find_disks,
    find_holders,
    find_resources,
    free_memory_bytes,
    look_around,
    usable_cores,
    used_memory_bytes,
)
from tpu_console.engine.machine.install import find_packages
from tpu_console.engine.machine.sources import Package, Sources, Space, this_machine


def test_a_kubernetes_pod_without_google_is_not_gke(tmp_path: Path) -> None:
    sources, pod = lay_out("laptop", tmp_path).sources, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert find_place(replace(sources, environ=pod), {}).kind is Kind.KUBERNETES
    assert find_place(replace(sources, environ=pod | {"TPU_TOPOLOGY": "2x2"}), {}).kind is Kind.GKE


def test_a_google_machine_without_a_tpu_is_not_a_tpu_vm(tmp_path: Path) -> None:
    sources = replace(lay_out("colab-t4", tmp_path).sources, environ={})
    assert read_metadata(sources) == {}
    assert find_place(sources, {}).kind is Kind.GOOGLE_VM
    assert find_place(sources, {"accelerator-type": "v2-8"}).kind is Kind.TPU_VM
    assert find_tpu(sources, {}) is None


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("tpu-vm-v3-8", ["accelerator-type", "agent-worker-number", "worker-network-endpoints", "tpu-env"]),
        ("colab-v5e-1", []),  # a notebook
        ("gke-v5e-4", []),  # TPU_SKIP_MDS_QUERY
        ("laptop", []),  # not Google's
    ],
)
def test_the_metadata_server_is_asked_only_if_there_may_be_one(tmp_path: Path, name: str, asked: list[str]) -> None:
    recorded = lay_out(name, tmp_path)
    assert [*read_metadata(recorded.sources)] == recorded.asked == asked


def test_internet_is_tried_only_on_kaggle(tmp_path: Path) -> None:
    elsewhere, kaggle = lay_out("laptop", tmp_path / "a"), lay_out("kaggle-v3-8-committed", tmp_path / "b")
    assert look_around(elsewhere.sources).has_internet is None
    assert look_around(kaggle.sources).has_internet is True
    assert (elsewhere.reached, kaggle.reached) == ([], ["storage.googleapis.com:443"])


def test_a_host_of_a_slice_knows_its_number_and_the_slice(tmp_path: Path) -> None:
    sources = lay_out("v5p-32-host-1-of-4", tmp_path).sources
    tpu = find_tpu(sources, read_metadata(sources))
    assert tpu is not None
    assert (tpu.kind, tpu.chips, tpu.cores, tpu.all_chips) == ("v5p", 4, 4, 16)
    assert (tpu.hosts, tpu.host_index, tpu.accelerator_type) == (4, 1, "v5p-32")
    assert replace(tpu, accelerator_type="v9-8").all_chips == 0, "a generation that is not known yet"
    put(tmp_path / "other/dev/vfio/0")
    metadata = {"accelerator-type": "v5p-16", "agent-worker-number": "0", "worker-network-endpoints": "a,b"}
    first = find_tpu(replace(sources, root=tmp_path / "other", environ={}), metadata)
    assert str(first) == "TPU v5p, 1 chip, host 0 of 2 of v5p-16"


def test_a_tpu_is_found_by_its_variables_if_the_bus_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "dev/vfio").mkdir(parents=True)
    for name in ("0", "1", "10", "vfio"):
        (tmp_path / "dev/vfio" / name).touch()
    sources = replace(this_machine(), root=tmp_path, environ={"TPU_ACCELERATOR_TYPE": "v6e-8"})
    tpu = find_tpu(sources, {})
    assert tpu is not None
    assert (tpu.kind, tpu.chips) == ("v6e", 3)
    assert tpu.devices == ("/dev/vfio/0", "/dev/vfio/1", "/dev/vfio/10")
    # Without that variable a passed-through card is no TPU.
    assert find_tpu(replace(sources, environ={}), {}) is None
    elsewhere = find_tpu(replace(sources, environ={"COLAB_TPU_ADDR": "10.1.2.3:8470"}), {})
    assert (elsewhere is None or elsewhere.is_here, str(elsewhere)) == (False, "TPU at 10.1.2.3:8470")


def test_the_holder_is_named_with_its_user_and_command(tmp_path: Path) -> None:
    sources = lay_out("tpu-held", tmp_path).sources
    holders = find_holders(sources)
    (holder,) = holders.processes
    assert (holder.pid, holder.user, holder.command.split()[:2]) == (4242, "bob", ["python", "train.py"])
    assert holder.evidence.split() == ["/proc/4242/fd/4", "->", "/dev/accel0"]
    assert holders.lock is not None
    assert (holders.lock.is_locked, holders.lock.pid) == (True, 4242)
    for link in (tmp_path / "proc/4242/fd").iterdir():
        link.unlink()
    (tmp_path / "proc/4242/cmdline").write_text("python\0\x1b]0;x\a\0", encoding="utf-8")
    (by_lock,) = find_holders(sources).processes
    assert (by_lock.pid, "/proc/locks" in by_lock.evidence) == (4242, True)
    assert by_lock.command == "python \ufffd]0;x\ufffd", "safe to show"


def test_a_real_process_that_locks_the_file_is_found(tmp_path: Path) -> None:
    """The kernel's own list of locks, on this machine."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "proc").symlink_to("/proc")
    lock = tmp_path / "tmp/libtpu_lockfile"
    code = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-S", "-c", code, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        sources = replace(this_machine(), root=tmp_path)
        (holder,) = find_holders(sources).processes
        process.communicate()
    assert holder.pid == process.pid
    assert "lockf" in holder.command
    left = find_holders(sources)
    assert left.processes == ()
    assert left.lock is not None
    assert not left.lock.is_locked
    assert left.lock.is_ours
    assert lock.exists()  # nothing is ever removed


def test_the_tightest_limit_of_the_groups_above_counts(tmp_path: Path) -> None:
    put(tmp_path / "proc/meminfo", "MemTotal:       16000000 kB\n")
    put(tmp_path / "proc/self/cgroup", "0::/a/b\n")
    put(tmp_path / "sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
    put(tmp_path / "sys/fs/cgroup/a/cpu.max", "150000 100000\n")
    put(tmp_path / "sys/fs/cgroup/a/b/memory.max", "4000000000\n")
    put(tmp_path / "sys/fs/cgroup/a/memory.max", "8000000000\n")
    resources = find_resources(replace(this_machine(), root=tmp_path, cpus=8))
    assert (resources.cores, resources.processors) == (1.5, 8)
    assert (resources.memory_bytes, resources.machine_memory_bytes) == (4_000_000_000, 16_384_000_000)
    assert find_resources(replace(this_machine(), root=tmp_path / "unknown")).memory_bytes == 0
    assert resources.evidence[1:] == ("/sys/fs/cgroup/a/cpu.max", "/sys/fs/cgroup/a/b/memory.max")


def test_a_missing_folder_is_measured_at_its_parent(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "yet"
    keras, shm = find_disks(replace(this_machine(), folders={"Keras cache": folder}))
    assert keras.measured_at == tmp_path
    assert keras.space is not None
    assert 0 <= keras.space.free_bytes <= keras.space.total_bytes
    assert shm.folder == Path("/dev/shm")


def test_requirements_are_read_with_their_markers() -> None:
    jax = Package("jax", "0.5.2", ("jaxlib<=0.5.2,>=0.5.1", 'libtpu==0.0.10.*; extra == "tpu"', "not a requirement"))
    installed = {"jax": jax, "jaxlib": Package("jaxlib", "0.5.0"), "libtpu": Package("libtpu", "0.0.11")}
    packages = find_packages(replace(this_machine(), package=installed.get))
    (misfit,) = packages.misfits("jax", "jaxlib")
    assert (misfit.owner, misfit.requirement, misfit.found) == ("jax 0.5.2", "jaxlib<=0.5.2,>=0.5.1", "0.5.0")
    assert packages.misfits("jax", "libtpu") == ()
    (misfit,) = packages.misfits("jax", "libtpu", extra="tpu")
    assert misfit.requirement == "libtpu==0.0.10.*"


def test_a_hanging_or_failing_probe_does_not_stop_the_others(tmp_path: Path) -> None:
    never = threading.Event()

    def hang(folder: Path) -> Space | None:
        never.wait()
        return None

    def fail(name: str) -> Package | None:
        raise RuntimeError("broken metadata")

    sources = replace(lay_out("laptop", tmp_path).sources, space=hang, package=fail)
    facts = look_around(sources, limit_s=1.0)  # it comes back while the probe still hangs
    never.set()
    assert facts.disks is None
    assert facts.packages is None
    assert facts.unanswered.keys() == {"disks", "packages"}
    assert "RuntimeError" in facts.unanswered["packages"]
    assert facts.resources is not None


def test_the_doctor_loads_no_framework(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from tpu_console.engine.doctor import examine\n"
        "from tpu_console.engine.machine.environment import look_around\n"
        "assert examine(look_around()).results\n"
        "assert not {'tensorflow', 'keras', 'jax', 'numpy', 'textual', 'click'} & set(sys.modules)\n"
    )
    run_python(code, cwd=tmp_path)


def at(root: Path) -> Sources:
    return replace(this_machine(), root=root, cpus=8)


@pytest.mark.parametrize(
    ("group", "file", "content", "cores"),
    [
        ("0::/job", "job/cpu.max", "max 100000", 8),
        ("0::/job", "job/cpu.max", "300000 100000", 3),
        ("0::/job", "cpu.max", "150000 100000", 2),  # the group above, and half a core
        ("0::/job", "job/cpu.max", "5000 100000", 1),
        ("0::/job", "job/cpu.max", "6400000 100000", 8),  # more than the process may run on
        ("4:cpu,cpuacct:/job", "cpu/job/cpu.cfs_quota_us", "200000", 2),
        ("4:cpu,cpuacct:/job", "cpu,cpuacct/cpu.cfs_quota_us", "200000", 2),
        ("4:cpu,cpuacct:/job", "cpu/job/cpu.cfs_quota_us", "-1", 8),
    ],
)
def test_usable_cores_are_within_the_limit_of_a_container(
    tmp_path: Path, group: str, file: str, content: str, cores: int
) -> None:
    put(tmp_path / "proc/self/cgroup", group)
    put(tmp_path / "sys/fs/cgroup" / file, content)
    put(tmp_path / "sys/fs/cgroup" / file.replace("quota", "period").replace("cpu.max", "other"), "100000")
    assert usable_cores(at(tmp_path)) == cores
    assert usable_cores() >= 1


def test_free_memory_without_a_limit_is_that_of_the_machine(tmp_path: Path) -> None:
    put(tmp_path / "proc/self/cgroup", "0::/user.slice")
    put(tmp_path / "sys/fs/cgroup/user.slice/memory.max", "max")
    machine = psutil.virtual_memory().available
    for root in (tmp_path, tmp_path / "not-linux"):
        assert free_memory_bytes(at(root)) == pytest.approx(machine, rel=0.2)
    assert free_memory_bytes() <= psutil.virtual_memory().total


@pytest.mark.parametrize("group", ["", "/batch", "/batch/job"])
def test_free_memory_is_what_a_limit_leaves(tmp_path: Path, group: str) -> None:
    """The second version of control groups; a limit also holds for the groups inside."""
    put(tmp_path / "proc/self/cgroup", "0::/batch/job")
    folder = tmp_path / f"sys/fs/cgroup{group}"
    put(folder / "memory.max", "100000000")
    put(folder / "memory.current", "60000000")
    put(folder / "memory.stat", "anon 40000000\ninactive_file 15000000\nactive_file 5000000")
    assert free_memory_bytes(at(tmp_path)) == 60_000_000


def test_free_memory_is_what_a_limit_of_the_first_version_leaves(tmp_path: Path) -> None:
    put(tmp_path / "proc/self/cgroup", "12:cpuset:/\n4:cpu,memory:/docker/1f\n1:name=systemd:/")
    folder = tmp_path / "sys/fs/cgroup/memory"  # in a container, the named folder is mounted as the root
    put(folder / "memory.limit_in_bytes", "100000000")
    put(folder / "memory.usage_in_bytes", "99000000")
    put(
        folder / "memory.stat", "cache 3000000\ninactive_file 1\ntotal_inactive_file 2000000\ntotal_active_file 1000000"
    )
    assert free_memory_bytes(at(tmp_path)) == 4_000_000


def test_a_group_that_hides_its_use_does_not_limit_free_memory(tmp_path: Path) -> None:
    limit = tmp_path / "sys/fs/cgroup/memory.max"
    put(limit, "1000")
    assert used_memory_bytes(at(tmp_path), str(limit.relative_to(tmp_path))) is None
    assert free_memory_bytes(at(tmp_path)) > 1000
    put(limit.with_name("memory.current"), "4000")
    assert free_memory_bytes(at(tmp_path)) == 0
