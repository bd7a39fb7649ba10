"""The accelerators of a machine, read from its device files."""

from pathlib import Path

import pytest

from tests.engine.machine.recorded import put
from tpu_console.engine.machine.devices import Hardware, detect_hardware, numbered_devices


def test_a_machine_without_accelerators_has_none(tmp_path: Path) -> None:
    put(tmp_path / "dev/nvidiactl")
    put(tmp_path / "dev/nvidia-uvm")
    put(tmp_path / "dev/accelerometer")
    put_card(tmp_path, "0000:00:03.0", "0x0042")  # a network card and a disk of Google
    put_card(tmp_path, "0000:00:04.0", "0x001f")
    put_card(tmp_path, "0000:00:05.0", "0x0063", vendor="0x8086")
    assert detect_hardware(tmp_path) == Hardware()
    assert detect_hardware(tmp_path / "nothing") == Hardware()


def test_gpus_have_the_names_of_the_driver(tmp_path: Path) -> None:
    files = [tmp_path / f"proc/driver/nvidia/gpus/0000:0{number}:00.0/information" for number in (0, 1)]
    for file in files:
        put(file, "Model: \t\t NVIDIA H200\nIRQ:   26\n")
    assert detect_hardware(tmp_path).gpus == ("NVIDIA H200", "NVIDIA H200")
    put(files[0], "IRQ: 26\n")  # it does not say the model
    assert detect_hardware(tmp_path).gpus == ("NVIDIA GPU", "NVIDIA H200")


@pytest.mark.parametrize(
    ("listed", "seen"),
    [("0", 1), ("1,0", 2), ("", 0), ("-1", 0), ("2", 0), ("0,7,1", 1), ("GPU-8932f937,GPU-1", 2), ("NoDevFiles", 0)],
)
def test_cuda_visible_devices_hides_gpus(tmp_path: Path, listed: str, seen: int) -> None:
    for number in (0, 1):
        put(tmp_path / f"dev/nvidia{number}")
    found = detect_hardware(tmp_path, {"CUDA_VISIBLE_DEVICES": listed})
    assert len(found.gpus) == seen
    assert found.hidden == ((f"CUDA_VISIBLE_DEVICES={listed} leaves {seen} of 2 GPUs.",) if seen < 2 else ())


def test_variables_leave_some_chips(tmp_path: Path) -> None:
    for number in range(4):
        put(tmp_path / f"dev/accel{number}")
    found = detect_hardware(tmp_path, {"TPU_VISIBLE_CHIPS": "0,1"})
    assert found.tpu_chips == 2
    assert found.hidden[0].startswith("TPU_VISIBLE_CHIPS=0,1 ")
    assert detect_hardware(tmp_path, {"TPU_VISIBLE_DEVICES": "0,1,2,3"}).hidden == ()


def put_card(root: Path, address: str, device: str, subsystem: str = "0x0000", vendor: str = "0x1ae0") -> None:
    for file, text in {"vendor": vendor, "device": device, "subsystem_device": subsystem}.items():
        put(root / "sys/bus/pci/devices" / address / file, f"{text}\n")


def test_a_tpu_is_found_by_its_device_files(tmp_path: Path) -> None:
    for number in (0, 1, 10, 2):
        put(tmp_path / f"dev/accel{number}")
    assert detect_hardware(tmp_path) == Hardware(tpu="/dev/accel0", tpu_chips=4)
    assert numbered_devices(tmp_path, "accel") == ["dev/accel0", "dev/accel1", "dev/accel2", "dev/accel10"]


@pytest.mark.parametrize(
    ("device", "subsystem", "kind", "devices"),
    [
        ("0x0027", "0x004e", "v2", 4),
        ("0x0027", "0x004f", "v3", 4),
        ("0x005e", "0x0000", "v4", 2),
        ("0x0063", "0x0000", "v5e", 2),
        ("0x0062", "0x0000", "v5p", 2),
        ("0x006f", "0x0000", "v6e", 2),
        ("0x0076", "0x0000", "7x", 4),
    ],
)
def test_the_generation_is_read_from_the_pci_numbers_and_a_chip_of_two_functions_is_one_chip(
    tmp_path: Path, device: str, subsystem: str, kind: str, devices: int
) -> None:
    for address in ("0000:00:05.0", "0000:00:05.1", "0000:00:06.0"):
        put_card(tmp_path, address, device, subsystem)
    found = detect_hardware(tmp_path)
    assert found == Hardware(tpu="PCI device 0000:00:05.0", tpu_kind=kind, tpu_chips=2)
    assert found.tpu_devices == devices


@pytest.mark.parametrize(
    ("environ", "hosts"),
    [
        ({}, 1),
        ({"TPU_PROCESS_ADDRESSES": "local"}, 1),  # Kaggle's
        ({"TPU_WORKER_HOSTNAMES": "a,b,c,d"}, 4),
        ({"TPU_WORKER_HOSTNAMES": "a,b", "TPU_PROCESS_ADDRESSES": "a:8476,b:8476,c:8476"}, 3),
        ({"TPU_WORKER_HOSTNAMES": "a,b", "MEGASCALE_NUM_SLICES": "3"}, 6),
        ({"MEGASCALE_NUM_SLICES": "many"}, 1),
    ],
)
def test_hosts_of_a_slice_are_counted_by_variables(tmp_path: Path, environ: dict[str, str], hosts: int) -> None:
    put_card(tmp_path, "0000:00:05.0", "0x0062")
    assert detect_hardware(tmp_path, environ).tpu_hosts == hosts
    assert detect_hardware(tmp_path / "nothing", environ).tpu_hosts == 1
