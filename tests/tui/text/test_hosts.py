"""What is said of hosts, replicas and the input; and that nothing is said that was not measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers import replace
from tests.tui.tpu_fakes import GIB, NO_DISK, NO_DUTY, REMEDY, FakeTpu
from tpu_console.engine.runs.events import EpochEnded, FitStarted, InputMeasured, ReplicaMemory
from tpu_console.engine.runs.journal import JournalReader
from tpu_console.engine.runs.state import RunState, fold
from tpu_console.tui.text.hosts import (
    account_of,
    gauges_of,
    hosts_of,
    input_verdict,
    kinds_text,
    lost_text,
    slow_text,
    topology_text,
)
from tpu_console.tui.widgets.replica_panel import ReplicaTable, table_of

if TYPE_CHECKING:
    from pathlib import Path


def state_of(run: FakeTpu) -> RunState:
    state, reader = RunState(), JournalReader(run.run.journal)
    while records := reader.read():
        state = fold(state, records)
    return state


def trained(folder: Path, hosts: int = 1, chips: int = 8, seconds: int = 3, **values: object) -> FakeTpu:
    run = FakeTpu(folder, hosts, chips)
    run.begin()
    for _ in range(seconds):
        run.second(**values)  # type: ignore[arg-type]  # the arguments of `second`
    return run


def rows_of(table: ReplicaTable) -> list[dict[str, str]]:
    return [{column.title: line.cells.get(column.title, "") for column in table.columns} for line in table.lines]


def test_a_replica_has_its_share_of_what_its_host_takes(tmp_path: Path) -> None:
    table = table_of(state_of(trained(tmp_path, rates=[12_000.0])), 120, 0)
    assert "  ".join(rows_of(table)[3]) == "#  device  kind  coords  batch  examples/s  duty  peak  memory"
    figures = "3  TPU:3  TPU v5 lite  1,1,0  128  1,500  64%  11.0 GiB  9.3/15.8 GiB"
    assert "  ".join(rows_of(table)[3].values()) == figures


def test_a_host_is_slow_more_than_a_tenth_below_the_median_and_not_for_a_second(tmp_path: Path) -> None:
    slow, near, once = (
        trained(tmp_path / str(rate), 3, 4, seconds=9, rates=[12_000, 12_000, rate]) for rate in (9_000, 10_850, 12_000)
    )
    once.second(rates=[12_000, 12_000, 6_000])
    for run, behind in ((slow, [2]), (near, []), (once, [])):
        assert [host.process for host in hosts_of(state_of(run)).values() if host.behind] == behind
    text = slow_text(hosts_of(state_of(slow))[2])
    assert text.startswith("host 2 (tpu-vm-2) ")
    assert "9,000 examples/s, 25% " in text


def test_a_lost_host_has_no_figures_and_says_why(tmp_path: Path) -> None:
    run = trained(tmp_path, 2, 4)
    run.lose(1)
    state = state_of(run)
    assert lost_text(state.lost[0]).startswith("host 1 (tpu-vm-1) ")
    assert lost_text(state.lost[0]).endswith(" 12 s")
    table = table_of(state, 120, 0)
    assert rows_of(table)[4]["host"] == "lost tpu-vm-1"
    assert [rows_of(table)[4][name] for name in ("examples/s", "duty", "memory")] == ["–", "–", "–"]
    assert any("lost" in remark for remark in table.remarks)
    assert all("lost" in gauge.why_not for gauge in gauges_of(state, 1)[1:])


def test_each_missing_figure_says_why(tmp_path: Path) -> None:
    memory = [
        ReplicaMemory(0, 3 * GIB, None, 16 * GIB, "", None, NO_DUTY),
        ReplicaMemory(1, None, None, None, "JAX does not report", None, NO_DUTY),
        ReplicaMemory(2, None, None, 16 * GIB, "only the limit is known", None, NO_DUTY),
    ]
    table = table_of(state_of(trained(tmp_path, 1, 4, memory=memory, rates=[None])), 120, 0)
    assert [row["memory"] for row in rows_of(table)] == ["3.0/16.0 GiB", "–", "–", "–"]
    assert {"examples/s", "duty"}.isdisjoint(rows_of(table)[0]), "a column without any figure is left out"
    assert list(table.remarks)[-6:] == [
        "examples/s: the batch size is unknown",
        f"duty: {NO_DUTY}",
        "duty: no data yet",
        "memory: JAX does not report",
        "memory: only the limit is known",
        "memory: no data yet",
    ]


def test_before_training_nothing_is_claimed(tmp_path: Path) -> None:
    run = FakeTpu(tmp_path)
    run.begin()
    table = table_of(state_of(run), 120, 0)
    assert [column.title for column in table.columns] == ["#", "device", "kind", "coords", "batch"]
    assert table.remarks[-3:] == [f"{figure}: no data yet" for figure in ("examples/s", "duty", "memory")]
    assert [gauge.value for gauge in gauges_of(state_of(run), 0)] == [""] * 4


def test_columns_come_back_with_the_width(tmp_path: Path) -> None:
    state = state_of(trained(tmp_path, 2, 4))
    shown = [{column.title for column in table_of(state, width, 0).columns} for width in range(10, 140)]
    assert shown[0] == {"#", "duty"}
    assert {"examples/s", "duty", "memory"} <= shown[26]
    assert {"#", "device", "kind", "coords", "host", "batch", "examples/s", "duty", "memory"} <= shown[-1]
    hidden = table_of(state, 36, 0)
    assert "8 × TPU v5 lite on tpu-vm-0, tpu-vm-1" in hidden.remarks
    assert any("mesh 2×4" in remark for remark in hidden.remarks)


def test_many_replicas_are_a_row_a_host_and_the_chosen_ones_replicas(tmp_path: Path) -> None:
    state = state_of(trained(tmp_path, 64, 8, seconds=1, rates=[12_000] * 5 + [9_000]))
    table = table_of(state, 100, 5)
    rows = rows_of(table)
    assert len(rows) == 64 + 8
    figures = "host 5|slow tpu-vm-5|128|9,000|64%|11.0 GiB|9.7/15.8 GiB"
    assert "|".join(text for name, text in rows[5].items() if text and name != "kind") == figures
    assert (rows[6]["device"], rows[6]["examples/s"]) == ("TPU:40", "1,125")
    assert "h: next host" in table.remarks


@pytest.mark.parametrize(
    ("wait_s", "span_s", "limit", "text"),
    [
        (0.38, 1.0, "input", "input-bound (38% waiting for data). Cache it."),
        (0.02, 1.0, "accelerator", "compute-bound (2% waiting for data)"),
        (0.1, 1.0, "balanced", "input and compute are balanced (10% waiting for data)"),
        (0.0, 0.0, "accelerator", "compute-bound (not measured)"),
    ],
)
def test_the_limit_is_shown_with_its_share(wait_s: float, span_s: float, limit: str, text: str) -> None:
    assert input_verdict(InputMeasured(1, 9, 9.0, 10, wait_s, span_s, limit, "Cache it.")) == text


def test_an_account_of_time_has_validation_the_input_and_what_is_possible() -> None:
    assert account_of(RunState()) == []
    epoch = EpochEnded(1, 9, 9, 10.0, 10.0, 0.0, 0.4, 4.0, 1.0, 1e-3, {"loss": 1.0})
    fit = FitStarted(2, 9, 32, 32, 1, best_step_ms=1.0)
    state = replace(RunState(), epochs=(epoch, epoch), fit=fit)
    assert ["25%" in text for text in account_of(state)] == [True]
    assert account_of(replace(state, epochs=())) == account_of(replace(state, fit=None)) == []
    measured = replace(state, fit=None, input=InputMeasured(1, 9, 9.0, 10, 0.02, 1.0, "accelerator"))
    assert account_of(measured) == ["compute-bound (2% waiting for data)"]
    validating = replace(measured, epochs=(replace(epoch, validation_s=4.8),) * 2)
    assert account_of(validating) == ["validation takes 48% of the time", *account_of(measured)]


def test_gauges_name_what_the_host_does_and_why_not_and_the_topology_what_computes(tmp_path: Path) -> None:
    gauges = {gauge.name: gauge for gauge in gauges_of(state_of(trained(tmp_path, disk=False)), 0)}
    assert [*gauges] == ["waits", "cpu", "memory", "disk"]
    assert gauges["waits"].value == "38%"
    assert gauges["memory"].value == "20.3/188.0 GiB"
    assert (gauges["disk"].value, gauges["disk"].why_not) == ("", NO_DISK)
    assert REMEDY in input_verdict(state_of(trained(tmp_path)).input)  # type: ignore[arg-type]  # it was measured
    ready = state_of(trained(tmp_path / "other")).accelerator
    assert ready is not None
    expected = "JAX (a TPU is here and JAX is ready for it); DataParallel; mesh 2×4, 1 processes × 8 devices"
    assert topology_text(ready) == expected
    assert kinds_text(ready) == "8 × TPU v5 lite on tpu-vm-0"
