from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.helpers import small_config
from tests.tui.live_fakes import until
from tpu_console.engine.data.download import Download
from tpu_console.engine.data.kinds.named_kind import Feature, NamedFacts
from tpu_console.engine.errors import DataError
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.storage.keyed_store import KeyedStore
from tpu_console.engine.storage.paths import runs_folder
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.jobs.run_process import HostedRun, Prewarmer, launch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpu_console.engine.config.run_config import RunConfig


@pytest.fixture
def prewarmer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Prewarmer]:
    monkeypatch.setenv("TPU_CONSOLE_PREWARM", "true")
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr("tpu_console.engine.machine.resources.free_memory_bytes", lambda: 8 << 30)
    made = Prewarmer()
    yield made
    made.close()


def test_it_keeps_one_process_and_replaces_it_when_the_backend_changes(prewarmer: Prewarmer) -> None:
    config = small_config(backend="tensorflow")
    prewarmer.want(config, Hardware())
    first = prewarmer._host
    assert first is not None
    prewarmer.want(config.model_copy(update={"epochs": 9}), Hardware())
    assert prewarmer._host is first
    prewarmer.want(small_config(backend="jax", accelerator="cpu"), Hardware())
    assert first.process.returncode is not None
    assert prewarmer._host is not None
    assert {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}.items() <= prewarmer._host.variables.items()
    assert prewarmer.take(config) is None, "it is on the other backend"


def test_it_gives_the_process_away_once_and_ends_the_one_nobody_took(prewarmer: Prewarmer) -> None:
    config = small_config(backend="tensorflow")
    prewarmer.want(config, Hardware())
    taken = prewarmer.take(config)
    assert taken is not None
    assert prewarmer.take(config) is None
    taken.end()
    prewarmer.want(config, Hardware())
    kept = prewarmer._host
    assert kept is not None
    prewarmer.close()
    assert kept.process.returncode is not None


@pytest.mark.parametrize(
    ("variable", "target", "value"),
    [
        ("false", "os.getloadavg", lambda: (0.0, 0.0, 0.0)),
        ("true", "os.getloadavg", lambda: (99.0, 0.0, 0.0)),
        ("true", "tpu_console.engine.machine.resources.free_memory_bytes", lambda: (4 << 30) - 1),
    ],
)
def test_it_starts_none_where_the_machine_or_the_user_is_against_it(
    prewarmer: Prewarmer, monkeypatch: pytest.MonkeyPatch, variable: str, target: str, value: object
) -> None:
    monkeypatch.setenv("TPU_CONSOLE_PREWARM", variable)
    monkeypatch.setattr(target, value)
    prewarmer.want(small_config(), Hardware())
    assert prewarmer.take(small_config()) is None


def test_tensorflow_is_not_imported_early_on_a_machine_with_a_tpu(prewarmer: Prewarmer) -> None:
    config = small_config(backend="tensorflow", accelerator="cpu")
    prewarmer.want(config, Hardware(tpu="/dev/accel0"))
    assert prewarmer.take(config) is None


def test_start_hands_the_run_to_it(prewarmer: Prewarmer) -> None:
    config = small_config(backend="tensorflow")
    prewarmer.want(config, Hardware())
    waiting = prewarmer._host
    assert waiting is not None
    hosted = launch(config, in_process=False, prewarmer=prewarmer)
    assert isinstance(hosted, HostedRun)
    assert hosted.process is waiting.process
    assert hosted.tend()
    hosted.process.kill()
    hosted.process.wait()


async def test_a_form_that_stays_the_same_has_one_ready_and_the_console_ends_it() -> None:
    app = ConsoleApp()
    asked: list[RunConfig] = []
    prewarmer = SimpleNamespace(want=lambda config, hardware: asked.append(config), close=asked.clear)
    app._prewarmer = prewarmer  # type: ignore[assignment]  # the part of it that the console uses here
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: asked)
        assert [config.name for config in asked] == ["digits-cnn"]
        await pilot.press("ctrl+q")
    assert asked == []


def test_a_run_whose_data_cannot_be_downloaded_is_not_left_behind() -> None:
    features = {"image": Feature("image", (8, 8, 3)), "label": Feature("class", (), ("a", "b"))}
    far = NamedFacts(
        features, {"train": 9}, download=Download("far", "/nowhere", "copy it", hosts=("nowhere.invalid",))
    )
    KeyedStore[NamedFacts]("named.json", NamedFacts).put("tfds:far", far)
    config = small_config(dataset="tfds", data={"options": {"name": "far"}})
    with pytest.raises(DataError, match=r"far is not on this machine.*nowhere\.invalid.*copy it"):
        launch(config, in_process=False)
    assert not runs_folder().exists()
