"""Where decoded examples are kept: memory while they fit into half of what is free, else a file, else nowhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.helpers import run_forked, run_host, small_config, the
from tpu_console.engine.errors import DataError
from tpu_console.engine.input.pipeline import Cache, Room, choose_cache
from tpu_console.engine.runs.events import DataReady, RunFailed

if TYPE_CHECKING:
    from pathlib import Path

MEGABYTE = 1_000_000
COUNT, EACH = 1000, MEGABYTE - 256  # 1 GB with what TensorFlow needs beside


def chosen(asked: str = "auto", memory: float = 64, disk: float = 64) -> Cache:
    """What is chosen for 1 GB of examples, with so many GB free."""
    return choose_cache(asked, COUNT, EACH, Room(int(memory * 1e9), int(disk * 1e9)))


@pytest.mark.parametrize(
    ("memory", "disk", "kind"), [(2.0, 0, "memory"), (1.9, 1.2, "disk"), (1.9, 1.1, "off"), (1.9, 0, "off")]
)
def test_auto_takes_the_fastest_place_with_room(memory: float, disk: float, kind: str) -> None:
    cache = chosen(memory=memory, disk=disk)
    assert cache.kind == kind
    assert "1,000 examples (1.0 GB)" in cache.reason
    assert bool(cache.notice) == (kind == "off")


@pytest.mark.parametrize(("count", "each"), [(None, EACH), (COUNT, None)])
def test_examples_of_unknown_size_are_cached_only_on_request(count: int | None, each: int | None) -> None:
    cache = choose_cache("auto", count, each, Room(10**12, 10**12))
    assert cache.kind == "off"
    assert "data.cache=" in cache.notice


def test_examples_that_may_change_are_cached_only_on_request() -> None:
    room = Room(10**12, 10**12)
    cache = choose_cache("auto", COUNT, EACH, room, is_fixed=False)
    assert (cache.kind, cache.notice) == ("off", "")
    assert choose_cache("memory", COUNT, EACH, room, is_fixed=False).kind == "memory"


def test_the_configured_cache_is_used() -> None:
    assert chosen("memory", memory=0.1).kind == "memory"
    assert chosen("disk", memory=64).kind == "disk"
    assert chosen("off").kind == "off"
    assert not any(chosen(asked).notice for asked in ("memory", "disk", "off"))


def test_a_file_that_the_disk_has_no_room_for_is_refused() -> None:
    with pytest.raises(DataError, match=r"1,000 examples .* 500 MB"):
        chosen("disk", disk=0.5)


def test_a_shuffle_of_examples_outside_memory_is_bounded() -> None:
    assert chosen("memory", memory=1).shuffle_most is None
    assert chosen("disk", memory=1).shuffle_most == chosen("off", memory=1).shuffle_most == 125


@pytest.mark.slow
def test_a_failed_run_removes_its_cache_file(tmp_path: Path) -> None:
    code = """
def fails(input_shape, classes):
    import keras, tensorflow as tf

    class Breaks(keras.layers.Layer):
        def call(self, x, training=False):
            with tf.control_dependencies([tf.debugging.assert_less(tf.reduce_max(x), -1.0)]):
                return tf.identity(x)

    return keras.Sequential([keras.Input(input_shape), keras.layers.Flatten(), Breaks(), keras.layers.Dense(10)])
"""
    (tmp_path / "broken.py").write_text(code, encoding="utf-8")
    config = small_config(data={"cache": "disk"}, model=f"{tmp_path / 'broken.py'}:fails", model_options={})
    run = run_host(config, tmp_path / "runs")
    assert the(run, RunFailed).what
    assert "data.cache=disk" in the(run, DataReady).cache
    assert not run.cache.exists()


_PEAK = """
import json, sys
from pathlib import Path
import tensorflow as tf
from tpu_console.engine.input.pipeline import Room
from tpu_console.engine.data.examples import Examples, Input, Signature, Task
from tpu_console.engine.input.pipeline import build_pipeline
from tests.helpers import small_config

folder, memory, count = Path(sys.argv[1]), int(sys.argv[2]), 2000
def peak():  # of this process: what getrusage tells begins with that of whoever started it
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024

def decode(number):  # a quarter of a megabyte each, half a gigabyte in all
    return tf.fill((256, 341, 3), tf.cast(number % 255, tf.uint8)), tf.cast(number % 10, tf.int32)

data = tf.data.Dataset.range(count).map(decode, num_parallel_calls=2)
examples = Examples(data, None, count, 0, Signature(Task.CLASSES, {"image": Input((256, 341, 3))}, 10), 255.0)
config = small_config(batch_size=8, augmentation={"flip": "horizontal"})
pipeline = build_pipeline(examples, config, 1, cache_folder=folder, room=Room(memory, 10**12))
Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
before, sums = peak(), []
batches = iter(pipeline.train)
for epoch in range(2):
    sums.append(sum(int(tf.reduce_sum(next(batches)[1])) for _ in range(pipeline.steps_per_epoch)))
print(json.dumps({"kind": pipeline.cache.kind, "bytes": peak() - before, "sums": sums, "notices": pipeline.notices}))
"""


@pytest.mark.slow
def test_memory_stays_bounded_if_the_data_is_larger_than_its_share(tmp_path: Path) -> None:
    data, memory = 2000 * 256 * 341 * 3, 400_000_000
    figures = json.loads(run_forked(_PEAK, str(tmp_path / "cache"), str(memory), cwd=tmp_path))
    assert figures["kind"] == "disk"
    assert figures["sums"] == [9000, 9000]  # each epoch has every example once
    assert figures["bytes"] < 1.2 * memory < data  # the allocator keeps some of what was freed
    assert "examples instead of 2,000" in figures["notices"][0]
