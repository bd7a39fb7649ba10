"""The private name of plotext: it does what is expected and is still needed."""

from __future__ import annotations

from textual_plotext.plot import Plot

from tpu_console.tui.terminal.plotext_compat import set_plot_size


def rows(plot: Plot) -> int:
    plot.scatter([1, 2], [1, 2])
    return len(plot.build().splitlines())


def test_a_plot_takes_the_size_of_its_widget() -> None:
    plot = Plot()
    for height in (10, 300, 20):
        set_plot_size(plot, 60, height)
        assert rows(plot) == height


def test_the_public_call_still_limits_a_plot_to_the_terminal() -> None:
    plot = Plot()
    plot.plotsize(60, 300)
    assert rows(plot) < 300, "set_plot_size may use plotsize alone"
    assert not hasattr(plot, "limit_size"), "set_plot_size may lift the limit with it"
