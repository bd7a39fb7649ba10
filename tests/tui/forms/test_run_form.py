"""The form, which shows one draft after the other, and the controls of its fields."""

import asyncio

from textual.app import App, ComposeResult
from textual.widgets import Input, OptionList, Select

from tests.tui.live_fakes import screen_text, until
from tpu_console.presets.catalog import find_preset
from tpu_console.tui.forms.field_row import Choice, FieldRow, TickBox
from tpu_console.tui.forms.fields import Draft
from tpu_console.tui.forms.run_form import RunForm


class Host(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.changes = 0

    def compose(self) -> ComposeResult:
        yield Choice({"cpu": "cpu [here]", "gpu": "gpu (none found)"}, "cpu")
        yield Input()

    @property
    def choice(self) -> Choice:
        return self.query_one(Choice)

    def on_choice_changed(self) -> None:
        self.changes += 1


async def test_a_choice_has_a_list_only_while_it_is_open() -> None:
    app = Host()
    async with app.run_test(size=(40, 12)) as pilot:
        assert "cpu [here]" in screen_text(pilot)
        assert not app.choice.query(Select)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.focused, OptionList) and "gpu (none found)" in screen_text(pilot))
        await until(pilot, lambda: app.focused is app.choice and not app.choice.query(Select), after=("down", "enter"))
        assert (app.choice.value, app.changes) == ("gpu", 1)
        assert "gpu (none found)" in screen_text(pilot)
        assert "cpu" not in screen_text(pilot)


async def test_closing_the_list_keeps_the_value_and_gives_back_the_focus() -> None:
    app = Host()
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.click(Choice)
        await until(pilot, lambda: isinstance(app.focused, OptionList))
        await until(pilot, lambda: app.focused is app.choice and not app.choice.query(Select), after=("down", "escape"))
        assert (app.choice.value, app.changes) == ("cpu", 0)


class OneBox(App[None]):
    def compose(self) -> ComposeResult:
        yield TickBox("search", compact=True)


async def test_on_and_off_differ_without_colors() -> None:
    async with OneBox().run_test() as pilot:
        box = pilot.app.query_one(TickBox)
        off = box.render().plain
        await pilot.press("tab", "space")
        assert box.value
        assert "X" in box.render().plain
        assert "X" not in off
        await pilot.press("space")
        assert box.render().plain == off


class OneForm(App[None]):
    def compose(self) -> ComposeResult:
        yield RunForm()


async def test_drafts_that_are_loaded_at_the_same_time_are_shown_one_after_the_other() -> None:
    """As when another preset is chosen while the fields of another model are being added."""
    drafts = [Draft(find_preset(name)) for name in ("digits-cnn", "imdb-text", "nmt-transformer", "mnist-mlp")]
    app = OneForm()
    async with app.run_test(size=(80, 24)):
        form = app.query_one(RunForm)
        await form.load(drafts[0])
        await form.show_all(True)
        for chosen in (drafts, drafts[::-1]):
            await asyncio.gather(*map(form.load, chosen))
            shown = [(row.spec, row.text) for row in app.query(FieldRow)]
            assert shown == [(spec, chosen[-1].text(spec)) for spec in chosen[-1].fields()]
