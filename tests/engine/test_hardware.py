"""What a machine has, told from its device files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine.hardware import Hardware, detect_hardware

if TYPE_CHECKING:
    from pathlib import Path


def put(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_a_machine_without_accelerators_has_none(tmp_path: Path) -> None:
    put(tmp_path / "dev/nvidiactl")
    put(tmp_path / "dev/nvidia-uvm")
    put(tmp_path / "dev/accelerometer")
    put(tmp_path / "sys/bus/pci/devices/0000:00:01.0/vendor", "0x8086\n")
    assert detect_hardware(tmp_path) == Hardware()
    assert detect_hardware(tmp_path / "nothing") == Hardware()


def test_gpus_are_named_as_the_driver_names_them(tmp_path: Path) -> None:
    for number in (0, 1):
        put(
            tmp_path / f"proc/driver/nvidia/gpus/0000:0{number}:00.0/information",
            "Model: \t\t NVIDIA H200\nIRQ:   26\n",
        )
        put(tmp_path / f"dev/nvidia{number}")
    assert detect_hardware(tmp_path).gpus == ("NVIDIA H200", "NVIDIA H200")


def test_gpus_without_a_driver_s_description_are_counted(tmp_path: Path) -> None:
    put(tmp_path / "dev/nvidia0")
    put(tmp_path / "dev/nvidia1")
    put(tmp_path / "dev/nvidiactl")
    assert detect_hardware(tmp_path).gpus == ("NVIDIA GPU", "NVIDIA GPU")


def test_a_description_without_a_model_is_a_gpu_all_the_same(tmp_path: Path) -> None:
    put(tmp_path / "proc/driver/nvidia/gpus/0000:00:00.0/information", "IRQ: 26\n")
    assert detect_hardware(tmp_path).gpus == ("NVIDIA GPU",)


@pytest.mark.parametrize(
    ("file", "text", "tpu"),
    [
        ("dev/accel0", "", "/dev/accel0"),
        ("sys/bus/pci/devices/0000:00:05.0/vendor", "0x1ae0\n", "PCI device 0000:00:05.0"),
    ],
)
def test_a_tpu_is_seen_by_its_device_or_its_vendor(tmp_path: Path, file: str, text: str, tpu: str) -> None:
    put(tmp_path / file, text)
    assert detect_hardware(tmp_path) == Hardware(tpu=tpu)
