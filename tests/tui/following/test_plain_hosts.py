"""Plain lines of several hosts, and of translated samples."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import orjson

from tests.tui.tpu_fakes import REMEDY, FakeTpu
from tpu_console.engine.runs.events import (
    DataReady,
    EpochEnded,
    Event,
    InputMeasured,
    PhaseStarted,
    RunStarted,
    Sample,
    Translated,
)
from tpu_console.engine.runs.journal import JournalReader, encode
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.tui.following.follow import PlainPrinter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def end_epoch(run: FakeTpu, number: int) -> None:
    run.write(
        EpochEnded(number, 400 * number, 400, 40.0 * number, 40.0, 0.0, 0.0, 100.0, 10_240.0, 1e-3, {"loss": 1.0})
    )


def said(run: FakeTpu) -> list[str]:
    return PlainPrinter(run.run).feed(JournalReader(run.run.journal).read())


def test_an_epoch_says_how_much_of_it_was_waited_and_a_change_says_what_to_do(tmp_path: Path) -> None:
    run = FakeTpu(tmp_path)
    run.begin()
    for epoch, wait_s, limit in (
        (1, 0.5, "input"),
        (1, 0.3, "input"),
        (2, 0.04, "accelerator"),
        (3, 0.03, "accelerator"),
    ):
        if epoch > 1:
            end_epoch(run, epoch - 1)
        run.write(InputMeasured(epoch, 9, 9.0, 9, wait_s, 1.0, limit, REMEDY if limit == "input" else ""))
    end_epoch(run, 3)
    lines = said(run)
    epochs = [line for line in lines if line.startswith("epoch")]
    assert ["waits 40%" in epochs[0], "waits  4%" in epochs[1], "waits  3%" in epochs[2]] == [True] * 3
    bound, free = (line for line in lines if line.startswith("input"))
    assert "input-bound (30% " in bound
    assert bound.endswith(REMEDY)
    assert "compute-bound (4% " in free


def test_backend_topology_slow_and_lost_hosts_are_lines(tmp_path: Path) -> None:
    run = FakeTpu(tmp_path, 2, 4)
    run.begin()
    for epoch in (1, 2):
        run.second(rates=[12_000, 9_000])
        end_epoch(run, epoch)
    run.lose(1)
    lines = said(run)
    assert any(line.startswith("backend      JAX: ") for line in lines)
    assert any(line.startswith("topology     mesh 2×4, ") for line in lines)
    (slow,) = (line for line in lines if line.startswith("slow "))
    assert "host 1 " in slow
    assert "9,000 examples/s, 14% " in slow
    assert lines[-1].startswith("lost         host 1 ")
    assert lines[-1].endswith(" 12 s")


def test_show_reports_the_same(tmp_path: Path, call: Callable[..., tuple[int, str, str]]) -> None:
    run = FakeTpu(tmp_path, 2, 4)
    run.begin()
    run.second(rates=[12_000, 9_000], disk=False)
    run.lose(1)
    code, out, _ = call("show", str(run.run.path))
    assert code == 0
    for text in (
        "JAX (a TPU is here and JAX is ready for it); DataParallel; mesh 2×4",
        "0: TPU v5 lite, TPU:0 at 0,0,0",
        "lost         host 1 (tpu-vm-1) is lost: no heartbeat for 12 s",
        "tpu-vm-0: cpu 64%, memory 20.1/188.0 GiB, disk n/a (the container hides its disks), examples/s 12,000",
        "tpu-vm-1: cpu n/a (the host is lost)",
        "input-bound (38% waiting for data). Cache the decoded examples in memory",
    ):
        assert text in out
    shown = json.loads(call("show", "--json", str(run.run.path))[1])
    assert (shown["input"]["limit"], shown["lost"][0]["process"]) == ("input", 1)
    assert [host["examples_per_s"] for host in shown["hosts"]] == [12_000, 9_000]


def test_show_counts_the_devices_of_a_large_slice(tmp_path: Path, call: Callable[..., tuple[int, str, str]]) -> None:
    run = FakeTpu(tmp_path, 16, 8)
    run.begin()
    out = call("show", str(run.run.path))[1]
    assert "(tpu-vm-15): 8 × TPU" in out
    assert "TPU:127" not in out


def test_what_is_left_of_an_epoch_comes_behind_its_end_and_is_not_the_next_ones(tmp_path: Path) -> None:
    run = FakeTpu(tmp_path)
    run.begin()
    end_epoch(run, 1)
    run.write(InputMeasured(1, 400, 40.0, 400, 20.0, 40.0, "input", "Cache it."))
    run.write(InputMeasured(2, 800, 80.0, 400, 4.0, 40.0, "input", "Cache it."))
    end_epoch(run, 2)
    lines = said(run)[-3:]
    assert "waits" not in lines[0]
    assert "input-bound (50% " in lines[1]
    assert "waits 10%" in lines[2]


def plain_lines_of(folder: Path, *events: Event) -> list[str]:
    records = [orjson.loads(encode(event, float(number))) for number, event in enumerate(events)]
    return PlainPrinter(RunDirectory(folder / "20261120-120000-nmt")).feed(records)


def test_each_sample_is_a_line(tmp_path: Path) -> None:
    samples = (Sample("I read.", "Yo leo.", "yo leo"), Sample("Go!", "¡Ve!", ""))
    assert plain_lines_of(tmp_path, Translated(3, samples)) == [
        "sample       I read. → yo leo  (expected: Yo leo.)",
        "sample       Go! → …  (expected: ¡Ve!)",
    ]


def test_data_without_classes_or_shape_claims_neither(tmp_path: Path) -> None:
    started = RunStarted("nmt", "host", 1, "here")
    lines = plain_lines_of(
        tmp_path, started, PhaseStarted("loading data"), DataReady(2125, 375, (), 0), PhaseStarted("building")
    )
    assert lines[-1].endswith("2,125 training examples, 375 for validation")
