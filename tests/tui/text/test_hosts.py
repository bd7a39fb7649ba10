"""What is said of hosts, replicas and the input; most of it is recorded in `tests/record/texts/hosts.txt`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers import epoch_ended, replace
from tests.record.shown import host_texts, same_text
from tests.tui.tpu_fakes import state_of, trained
from tpu_console.engine.runs.events import EpochEnded, FitStarted, InputMeasured
from tpu_console.engine.runs.state import RunState
from tpu_console.tui.text.hosts import account_of, hosts_of, input_verdict, validating_text
from tpu_console.tui.widgets.replica_panel import table_of

if TYPE_CHECKING:
    from pathlib import Path


def test_hosts_and_replicas_are_written_as_recorded(tmp_path: Path) -> None:
    same_text("hosts.txt", host_texts(tmp_path))


def test_a_host_is_slow_more_than_a_tenth_below_the_median_and_not_for_a_second(tmp_path: Path) -> None:
    for rate, last, behind in ((9_000, 9_000, [2]), (10_850, 10_850, []), (12_000, 6_000, [])):
        run = trained(tmp_path / str(rate), 3, 4, seconds=9, rates=[12_000, 12_000, rate])
        run.second(rates=[12_000, 12_000, last])
        assert [host.process for host in hosts_of(state_of(run)).values() if host.behind] == behind


def test_columns_come_back_with_the_width(tmp_path: Path) -> None:
    state = state_of(trained(tmp_path, 2, 4))
    shown = [{column.title for column in table_of(state, width, 0).columns} for width in range(10, 140)]
    assert shown[0] == {"#", "duty"}
    assert {"examples/s", "duty", "memory"} <= shown[26]
    assert {"#", "device", "kind", "coords", "host", "batch", "examples/s", "duty", "memory"} <= shown[-1]


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
    epoch = epoch_ended(1, steps=9, seconds=10.0, validation_s=0.4, step_ms=4.0)
    fit = FitStarted(2, 9, 32, 32, 1, best_step_ms=1.0)
    state = replace(RunState(), epochs=(epoch, epoch), fit=fit)
    assert ["25%" in text for text in account_of(state)] == [True]
    assert account_of(replace(state, epochs=())) == account_of(replace(state, fit=None)) == []
    measured = replace(state, fit=None, input=InputMeasured(1, 9, 9.0, 10, 0.02, 1.0, "accelerator"))
    assert [text.split()[0] for text in account_of(measured)] == ["compute-bound"]
    validating = replace(measured, epochs=(replace(epoch, validation_s=4.8),) * 2)
    assert ["48%" in text for text in account_of(validating)] == [True, False]


class CountedEpochs(list[EpochEnded]):
    """Epochs that count how many of them are read."""

    read = 0

    def __getitem__(self, part):  # type: ignore[no-untyped-def]
        found = super().__getitem__(part)
        self.read += len(found) if isinstance(part, slice) else 1
        return found


def test_each_epoch_of_a_long_run_costs_as_much_as_of_a_short_one() -> None:
    short, long = (CountedEpochs([epoch_ended(1, validation_s=0.5)] * count) for count in (1_000, 10_000))
    assert all("50%" in validating_text(RunState(epochs=epochs)) for epochs in (short, long))
    assert short.read == long.read
