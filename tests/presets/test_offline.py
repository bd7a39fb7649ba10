from __future__ import annotations

from engine.catalog import DATASETS, OFFLINE_PRESETS
from presets import all_presets


def test_presets_named_where_a_download_fails_are_those_with_nothing_to_download() -> None:
    found, _ = all_presets()
    offline = [preset.name for preset in found if preset.is_builtin and not DATASETS[preset.config.dataset].files]
    assert list(OFFLINE_PRESETS) == offline
