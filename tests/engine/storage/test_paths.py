from __future__ import annotations

import sys

import platformdirs
import pytest

from tpu_console.engine.storage import paths


@pytest.mark.skipif(sys.platform != "linux", reason="only there are the folders found without platformdirs")
@pytest.mark.parametrize("folder", ["/elsewhere", "", "not/absolute"])
def test_the_folders_of_the_user_are_those_of_platformdirs(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(paths.HOME_VARIABLE, raising=False)
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, folder)
    assert paths.runs_folder() == platformdirs.user_data_path("tpu-console") / "runs"
    assert paths.user_presets_folder() == platformdirs.user_config_path("tpu-console") / "presets"
    assert paths.cache_folder() == platformdirs.user_cache_path("tpu-console")
