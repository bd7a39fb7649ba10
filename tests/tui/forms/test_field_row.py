from __future__ import annotations

from textual.app import App

from tests.tui.live_fakes import screen_text, until
from tpu_console.tui.forms.field_row import FieldRow
from tpu_console.tui.forms.fields import fields_of


async def test_a_choice_that_is_still_being_mounted_gets_its_labels_later() -> None:
    spec = next(field for field in fields_of() if field.key == "accelerator")
    app: App[None] = App()
    async with app.run_test(size=(80, 24)) as pilot:
        row = FieldRow(spec, "auto")
        app.screen.mount(row)
        row.label_choices({"auto": "auto (CPU here)"})
        await until(pilot, lambda: "auto (CPU here)" in screen_text(pilot))
