"""How the user looks at the curves of a preset, kept for its next run."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from tpu_console.engine.storage.keyed_store import KeyedStore


@dataclass(frozen=True, slots=True)
class ChartView:
    """How charts are drawn, and in which order; smoothing and a logarithmic scale belong to the run that is open."""

    axis: str = "step"  # a value of `tui.charts.curve.Axis`
    marker: str = "braille"  # what curves are drawn with
    order: tuple[str, ...] = ()  # the titles of the charts that come first


VIEWS = KeyedStore[ChartView]("views.json", ChartView)
"""By preset."""


def with_choices(view: ChartView, chosen: ChartView) -> ChartView:
    """Return a view with everything in which another one differs from the default."""
    default = ChartView()
    names = [field.name for field in fields(ChartView)]
    choices = {name: getattr(chosen, name) for name in names if getattr(chosen, name) != getattr(default, name)}
    return replace(view, **choices)
