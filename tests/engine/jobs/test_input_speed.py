"""Measuring the input pipeline in a bounded time, and counting values in bins."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.images import write_image_folder
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.data.describing import histogram
from tpu_console.engine.data.kinds.formats import config_for
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.jobs.inspect import measure
from tpu_console.engine.messages import Reporter


def measured(config: RunConfig) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A short measurement, and the messages during it."""
    stream = io.StringIO()
    examples = load_examples(config, lambda _: None)
    found = measure(config, examples, Reporter(stream), seconds=0.05)
    return found, [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_image_folder(tmp_path_factory.mktemp("photos"), per_class=16, size=(192, 192))


@pytest.fixture
def config(photos: Path) -> RunConfig:
    return config_for("image-folder", {"path": str(photos), "image_size": [64, 64]})


def test_the_first_and_later_epochs_are_measured(config: RunConfig) -> None:
    augmented = with_changes(config, [("augmentation.flip", "horizontal"), ("augmentation.brightness", 0.1)])
    found, messages = measured(augmented)
    first, later = found["parts"]
    assert (first["name"], later["name"]) == ("first", "later")
    assert 32 <= first["examples"] <= 48
    # The first epoch reads and decodes, later ones come from memory.
    assert later["per_s"] > first["per_s"] > 0
    assert (found["unit"], found["cache"]) == ("images", "memory")
    assert {line["what"] for line in messages} == {"measuring first epoch", "measuring later epochs"}


def test_without_a_cache_there_are_no_faster_epochs_and_nothing_is_left_behind(
    config: RunConfig, private_home: Path
) -> None:
    found, _ = measured(with_changes(config, [("data.cache", "off")]))
    assert [part["name"] for part in found["parts"]] == ["first"]
    assert any("data.cache=disk" in text for text in found["advice"])
    measured(with_changes(config, [("data.cache", "disk")]))
    assert list(private_home.iterdir()) == []


def test_values_are_counted_in_bins() -> None:
    few = histogram(np.array([1.0, 2.0, 2.0, 5.0]))
    assert [tuple(entry.values()) for entry in few] == [(1, 1, 1), (2, 2, 2), (5, 5, 1)]
    bins = histogram(np.arange(1, 101))
    assert (len(bins), sum(entry["count"] for entry in bins)) == (10, 100)
    assert (bins[0]["low"], bins[0]["high"], bins[1]["low"], bins[-1]["high"]) == (1, 10, 11, 100)
    assert histogram(np.append(np.linspace(0, 1, 1000), 1e6))[-1]["high"] == 1e6
