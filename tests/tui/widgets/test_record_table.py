"""A table that drops its least important columns."""

from operator import itemgetter

from textual.app import App, ComposeResult

from tests.tui.live_fakes import resize, until
from tpu_console.tui.text.tables import Column
from tpu_console.tui.widgets.record_table import RecordTable

SHAPE = tuple(
    Column(title, importance, value=itemgetter(title))
    for title, importance in (("Name", 3), ("Comment", 1), ("Loss", 2))
)
ROW = {"Name": "n" * 30, "Comment": "c" * 40, "Loss": "1.2345"}


class Host(App[None]):
    CSS = ".-empty { display: none; }"

    def __init__(self) -> None:
        super().__init__()
        self.table = RecordTable(SHAPE, "rows")

    def compose(self) -> ComposeResult:
        self.table.set_class(True, "-empty")
        yield self.table


def titles(table: RecordTable) -> list[str]:
    return [str(column.label).strip() for column in table.ordered_columns]


async def test_columns_fit_the_screen_before_the_table_is_shown_and_come_and_go_with_the_width() -> None:
    app = Host()
    async with app.run_test(size=(60, 10)) as pilot:
        assert not app.table.size
        app.table.show({"a": ROW})
        assert titles(app.table) == ["Name", "Loss"]
        app.table.set_class(False, "-empty")
        for width, kept in ((100, ["Name", "Comment", "Loss"]), (40, ["Name"]), (60, ["Name", "Loss"])):
            await resize(pilot, (width, 10))
            await until(pilot, lambda kept=kept: titles(app.table) == kept)  # type: ignore[misc]


async def test_the_cursor_stays_on_its_record() -> None:
    app = Host()
    async with app.run_test(size=(60, 10)) as pilot:
        app.table.set_class(False, "-empty")
        app.table.show(dict.fromkeys("abc", ROW))
        app.table.focus()
        await pilot.press("down")
        app.table.show({"c": ROW, "b": ROW | {"Loss": "0.5"}})
        assert (app.table.chosen, app.table.record["Loss"]) == ("b", "0.5")
        app.table.show({"c": ROW, "b": ROW | {"Loss": "0.4"}})
        assert str(app.table.get_row("b")[1]).strip() == "0.4"
        app.table.show(dict.fromkeys("cdefg", ROW))
        assert app.table.chosen == "d"  # the row of the one that is gone
        app.table.show({})
        assert (app.table.chosen, app.table.record) == ("", None)
        await pilot.press("enter")


async def test_the_row_under_the_cursor_stays_in_view() -> None:
    app = Host()
    async with app.run_test(size=(60, 20)) as pilot:
        app.table.set_class(False, "-empty")
        app.table.show({str(number): ROW for number in range(100)})
        app.table.focus()
        await pilot.press("end", *["up"] * 15)

        def is_in_view() -> bool:
            at = app.table.cursor_row - round(app.table.scroll_y)
            return app.table.chosen == chosen and 0 <= at < app.table.size.height - 1

        chosen = "84"
        for size in ((100, 10), (40, 20), (60, 8)):
            await resize(pilot, size)
            await until(pilot, is_in_view)
        app.table.show({str(number): ROW for number in range(-50, 100)})
        await until(pilot, is_in_view)
