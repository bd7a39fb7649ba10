"""The cores and the memory that this process may use: a container's limits as real files, and this machine."""

from pathlib import Path

import psutil
import pytest

from tests.engine.machine.recorded import put
from tests.helpers import replace
from tpu_console.engine.machine.resources import free_memory_bytes, usable_cores, used_memory_bytes
from tpu_console.engine.machine.sources import Sources, this_machine


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
