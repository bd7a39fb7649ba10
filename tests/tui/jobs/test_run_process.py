from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers import small_config
from tests.tui.live_fakes import until
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.data.kinds.named_kind import Feature, NamedFacts
from tpu_console.engine.data.places import Download
from tpu_console.engine.errors import DataError
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.process.launch import WarmHost
from tpu_console.engine.storage.keyed_store import KeyedStore
from tpu_console.engine.storage.paths import runs_folder
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.jobs.run_process import HostedRun, Prewarmer, launch


@pytest.fixture
def started() -> list[WarmHost]:
    return []


@pytest.fixture
def prewarmer(started: list[WarmHost]) -> Iterator[Prewarmer]:
    def start(environment: dict[str, str], variables: dict[str, str]) -> WarmHost:
        started.append(WarmHost.start(environment, variables))
        return started[-1]

    made = Prewarmer(start, is_idle=lambda: True)
    yield made
    made.close()


TENSORFLOW = small_config(backend="tensorflow")


def test_it_keeps_one_process_and_replaces_it_when_the_backend_changes(
    prewarmer: Prewarmer, started: list[WarmHost]
) -> None:
    prewarmer.want(TENSORFLOW, Hardware())
    prewarmer.want(TENSORFLOW.model_copy(update={"epochs": 9}), Hardware())
    assert len(started) == 1
    prewarmer.want(small_config(backend="jax", accelerator="cpu"), Hardware())
    first, second = started
    assert first.process.returncode is not None
    assert {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}.items() <= second.variables.items()
    assert prewarmer.take(TENSORFLOW) is None, "it is on the other backend"


def test_it_gives_the_process_away_once_and_ends_the_one_nobody_took(
    prewarmer: Prewarmer, started: list[WarmHost]
) -> None:
    prewarmer.want(TENSORFLOW, Hardware())
    taken = prewarmer.take(TENSORFLOW)
    assert taken is started[0]
    assert prewarmer.take(TENSORFLOW) is None
    taken.end()
    prewarmer.want(TENSORFLOW, Hardware())
    prewarmer.close()
    assert started[1].process.returncode is not None


def test_it_starts_none_on_a_busy_machine_and_no_tensorflow_on_one_with_a_tpu(
    prewarmer: Prewarmer, started: list[WarmHost]
) -> None:
    busy = Prewarmer(is_idle=lambda: False)
    busy.want(TENSORFLOW, Hardware())
    assert busy.take(TENSORFLOW) is None
    prewarmer.want(small_config(backend="tensorflow", accelerator="cpu"), Hardware(tpu="/dev/accel0"))
    assert not started


def test_start_hands_the_run_to_it(prewarmer: Prewarmer, started: list[WarmHost]) -> None:
    prewarmer.want(TENSORFLOW, Hardware())
    hosted = launch(TENSORFLOW, in_process=False, prewarmer=prewarmer)
    assert isinstance(hosted, HostedRun)
    assert hosted.process is started[0].process
    assert hosted.tend()
    hosted.process.kill()
    hosted.process.wait()


async def test_a_form_that_stays_the_same_has_one_ready_and_the_console_ends_it() -> None:
    asked: list[RunConfig] = []
    prewarmer: Any = SimpleNamespace(want=lambda config, hardware: asked.append(config), close=asked.clear)
    app = ConsoleApp(prewarmer=prewarmer)
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
