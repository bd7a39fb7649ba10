"""What is said of hosts, replicas and the input; most of it is recorded in `tests/record/texts/hosts.txt`."""

from pathlib import Path

from tests.helpers import epoch_ended, replace
from tests.record import of_each, same_text
from tests.tui.tpu_fakes import GIB, NO_DUTY, state_of, trained
from tpu_console.engine.runs.events import EpochEnded, FitStarted, InputMeasured, ReplicaMemory
from tpu_console.engine.runs.state import RunState
from tpu_console.tui.text import hosts
from tpu_console.tui.text.hosts import account_of, hosts_of, input_verdict, validating_text
from tpu_console.tui.text.tables import Column
from tpu_console.tui.widgets.host_panes import table_of


def made_states(folder: Path) -> dict[str, tuple[RunState, int, int]]:
    """Runs whose hosts and replicas tests write, each with the columns of the terminal and the chosen host."""
    memory = [
        ReplicaMemory(0, 3 * GIB, None, 16 * GIB, "", None, NO_DUTY),
        ReplicaMemory(1, None, None, None, "JAX does not report", None, NO_DUTY),
        ReplicaMemory(2, None, None, 16 * GIB, "only the limit is known", None, NO_DUTY),
    ]
    lost, two = trained(folder, 2, 4), state_of(trained(folder, 2, 4))
    lost.lose(1)
    return {
        "one host": (state_of(trained(folder, rates=[12_000.0])), 120, 0),
        "before training": (state_of(trained(folder, seconds=0)), 120, 0),
        "missing figures": (state_of(trained(folder, 1, 4, memory=memory, rates=[None], disk=False)), 120, 0),
        "a lost host": (state_of(lost), 120, 1),
        "a slow host": (state_of(trained(folder, 3, 2, 9, rates=[12_000, 12_000, 9_000], limit="accelerator")), 80, 2),
        "two hosts": (two, 36, 0),
        "many hosts": (state_of(trained(folder, 64, 8, 1, rates=[12_000] * 5 + [9_000])), 100, 5),
    }


def texts(folder: Path) -> str:
    written = {}
    for name, (state, width, chosen) in made_states(folder).items():
        table = table_of(state, width, chosen)
        rows = [[column.title for column in table.columns]]
        rows += [[line.cells[column.title] for column in table.columns] for line in table.lines]
        lines = ["  ".join(map(Column.cell, table.columns, row)).rstrip() for row in rows]
        lines += [f"{gauge.name}: {gauge.value or gauge.why_not}" for gauge in hosts.gauges_of(state, chosen)]
        lines += [hosts.slow_text(host) for host in hosts_of(state).values() if host.behind]
        lines += [*map(hosts.lost_text, state.lost), *account_of(state)]
        lines += [hosts.kinds_text(state.accelerator)] if state.accelerator is not None else []
        written[f"{name}, {width} columns"] = [*lines, *table.remarks]
    return of_each(written)


def test_hosts_and_replicas_are_written_as_recorded(tmp_path: Path) -> None:
    same_text("hosts.txt", texts(tmp_path))


def test_a_host_is_slow_more_than_a_tenth_below_the_median_and_not_for_a_second(tmp_path: Path) -> None:
    for rate, last, behind in ((9_000, 9_000, [2]), (10_850, 10_850, []), (12_000, 6_000, [])):
        run = trained(tmp_path / str(rate), 3, 4, seconds=9, rates=[12_000, 12_000, rate])
        run.second(rates=[12_000, 12_000, last])
        assert [host.process for host in hosts_of(state_of(run)).values() if host.behind] == behind


def test_the_limit_is_shown_with_its_share() -> None:
    for wait_s, span_s, limit, text in (
        (0.38, 1.0, "input", "input-bound (38% waiting for data). Cache it."),
        (0.02, 1.0, "accelerator", "compute-bound (2% waiting for data)"),
        (0.1, 1.0, "balanced", "input and compute are balanced (10% waiting for data)"),
        (0.0, 0.0, "accelerator", "compute-bound (not measured)"),
    ):
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
