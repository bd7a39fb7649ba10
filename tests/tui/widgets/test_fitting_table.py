"""A table that drops its least important columns."""

from __future__ import annotations

from textual.app import App, ComposeResult
from textual.content import Content

from tests.tui.live_fakes import resize, until
from tpu_console.tui.text.tables import Column
from tpu_console.tui.widgets.fitting_table import FittingTable

SHAPE = (Column("Name", 3), Column("Comment", 1), Column("Loss", 2))
ROW = {"Name": Content("n" * 30), "Comment": Content("c" * 40), "Loss": Content("1.2345")}


class Host(App[None]):
    CSS = ".-empty { display: none; }"

    def __init__(self) -> None:
        super().__init__()
        self.table = FittingTable(SHAPE, "rows")

    def compose(self) -> ComposeResult:
        self.table.set_class(True, "-empty")
        yield self.table


def titles(table: FittingTable) -> list[str]:
    return [str(column.label).strip() for column in table.ordered_columns]


async def test_rows_given_to_a_hidden_table_fit_the_screen_at_once() -> None:
    app = Host()
    async with app.run_test(size=(60, 10)):
        assert not app.table.size
        app.table.show({"a": ROW})
        assert titles(app.table) == ["Name", "Loss"]


async def test_columns_come_and_go_with_the_width() -> None:
    app = Host()
    async with app.run_test(size=(60, 10)) as pilot:
        app.table.show({"a": ROW})
        app.table.set_class(False, "-empty")
        for width, kept in ((100, ["Name", "Comment", "Loss"]), (40, ["Name"]), (60, ["Name", "Loss"])):
            await resize(pilot, (width, 10))
            await until(pilot, lambda kept=kept: titles(app.table) == kept)  # type: ignore[misc]
