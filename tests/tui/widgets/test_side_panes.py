"""Tests the pane with the settings of a run."""

from __future__ import annotations

from tpu_console.tui.following.run_settings import Setting
from tpu_console.tui.widgets.side_panes import SettingsPane


def test_a_setting_without_a_name_and_a_value_takes_a_row() -> None:
    pane = SettingsPane("settings")
    assert len(pane.laid_out([Setting("", ""), Setting("epochs", "3")])) == 2
