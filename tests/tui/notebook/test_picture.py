"""The picture in a notebook's cell: the console's values, and neither changed by the user's style nor changing it."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

import matplotlib as mpl
import pytest
from PIL import Image

from tests.helpers import ROOT, replace, run_python
from tests.tui.live_fakes import FakeEngine
from tpu_console.engine.runs.events import EpochEnded, Progress
from tpu_console.engine.runs.follower import StateReader
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.tui.notebook.watching import draw, figure_of, size_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def state(tmp_path: Path) -> RunState:
    engine = FakeEngine(tmp_path)
    engine.begin(6)
    return StateReader(engine.run).catch_up()


def texts_of(state: RunState) -> list[list[str]]:
    return [[text.get_text() for text in axes.texts] for axes in figure_of(state).axes]


def test_every_metric_has_its_newest_and_best_values_as_on_the_console(state: RunState) -> None:
    loss, accuracy = texts_of(state)
    assert {"loss", "─ train 0.3333", "● val 0.4333 ★ 0.4333 (6)", "epoch"} <= {*loss}
    assert {"accuracy", "─ train 0.7500", "● val 0.7300 ★ 0.8800 (3)"} <= {*accuracy}


def test_the_picture_is_twice_its_size_and_transparent(state: RunState) -> None:
    image = Image.open(io.BytesIO(draw(state)))
    width, height = size_of(state)
    assert image.size == (2 * width, 2 * height)
    assert image.convert("RGBA").getpixel((0, 0))[3] == 0  # type: ignore[index]


def test_the_style_of_the_user_changes_nothing(state: RunState) -> None:
    expected = draw(state)
    style = {
        "text.usetex": True,
        "figure.facecolor": "red",
        "axes.grid": True,
        "font.family": "no such font",
        "lines.linestyle": "--",
        "lines.marker": "s",
        "path.sketch": (5, 50, 5),
        "savefig.dpi": 10,
        "figure.autolayout": True,
    }
    with mpl.rc_context(style):
        before = dict(mpl.rcParams)
        assert draw(state) == expected
        assert dict(mpl.rcParams) == before


def test_names_and_values_of_any_kind_can_be_drawn(state: RunState) -> None:
    state = reduce(state, Progress(7, 4, 124, 1.3, {"loss": math.nan, "ゼロ$x^{$": 0.0, "huge": 1e300}), 0.0)
    ended = EpochEnded(7, 140, 20, 1.4, 0.2, 0.0, 0.0, None, None, None, {"loss": math.inf, "val_ゼロ$x^{$": 0.0})
    state = reduce(state, ended, 0.0)
    assert draw(state)
    assert "??$x^{$" in [text for chart in texts_of(state) for text in chart]
    assert draw(reduce(RunState(), replace(ended, epoch=1), 0.0))


def test_drawing_leaves_pyplot_and_its_backend_alone(tmp_path: Path) -> None:
    run_python(
        "import sys\n"
        "from tpu_console.engine.runs.events import Progress\n"
        "from tpu_console.engine.runs.state import RunState, reduce\n"
        "from tpu_console.tui.notebook.watching import draw\n"
        "assert 'matplotlib' not in sys.modules\n"
        "draw(reduce(RunState(), Progress(1, 1, 1, 1.0, {'loss': 1.0}), 0.0))\n"
        "assert 'matplotlib.pyplot' not in sys.modules and 'IPython' not in sys.modules",
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
    )
