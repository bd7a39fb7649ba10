"""The form: one draft after the other."""

import asyncio

from textual.app import App, ComposeResult

from tpu_console.presets.catalog import find_preset
from tpu_console.tui.forms.field_row import FieldRow
from tpu_console.tui.forms.fields import Draft
from tpu_console.tui.forms.run_form import RunForm


class Host(App[None]):
    def compose(self) -> ComposeResult:
        yield RunForm()


async def test_drafts_that_are_loaded_at_the_same_time_are_shown_one_after_the_other() -> None:
    """As when another preset is chosen while the fields of another model are being added."""
    drafts = [Draft(find_preset(name)) for name in ("digits-cnn", "imdb-text", "nmt-transformer", "mnist-mlp")]
    app = Host()
    async with app.run_test(size=(80, 24)):
        form = app.query_one(RunForm)
        await form.load(drafts[0])
        await form.show_all(True)
        for chosen in (drafts, drafts[::-1]):
            await asyncio.gather(*map(form.load, chosen))
            shown = [(row.spec, row.text) for row in app.query(FieldRow)]
            assert shown == [(spec, chosen[-1].text(spec)) for spec in chosen[-1].fields()]
