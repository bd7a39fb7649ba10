from __future__ import annotations

from tpu_console.engine.config.catalog import DATASETS, OFFLINE_PRESETS
from tpu_console.presets import all_presets


def test_presets_named_where_a_download_fails_are_those_with_nothing_to_download() -> None:
    found, _ = all_presets()
    built_in = [preset for preset in found if preset.is_builtin and preset.config.dataset in DATASETS]
    assert list(OFFLINE_PRESETS) == [p.name for p in built_in if not DATASETS[p.config.dataset].files]
