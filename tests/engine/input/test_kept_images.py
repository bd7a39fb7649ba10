"""Decoded images are kept between runs: the next run decodes nothing, and gets the same batches to the last bit."""

from __future__ import annotations

import errno
import os
import shutil
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from tests.engine.input.test_decoding import build, config
from tests.images import damage_inside, write_image_folder, write_odd
from tpu_console.engine.accelerators.accelerator import Share
from tpu_console.engine.data.examples import ImageFiles
from tpu_console.engine.data.input_speed import save_input_speed
from tpu_console.engine.data.sources.load import load_examples
from tpu_console.engine.input import kept_images
from tpu_console.engine.input.kept_images import KeptImages
from tpu_console.engine.input.pipeline import build_pipeline
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning.plan import make_plan
from tpu_console.engine.storage.caches import DECODED, cache_files
from tpu_console.tui.text.numbers import input_speed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from tpu_console.engine.input.pipeline import Pipeline

CHANGED = {"flip": "horizontal", "rotation": 20.0, "cutmix": 0.5}
COUNT, SHAPE = 30, (5, 7, 3)
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, *SHAPE), np.uint8)
KNOWN = np.arange(COUNT) != 3


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """30 images of three classes, in several formats and sizes."""
    folder = write_image_folder(tmp_path / "photos", per_class=8)
    write_image_folder(folder, ("daisy",), per_class=2, size=(70, 40), suffix=".png")
    for kind in ("turned jpeg", "grey png", "rgba png", "webp"):
        write_odd(folder / "rose", kind)
    return folder


def read(pipeline: Pipeline) -> list[Any]:
    """Return the batches of two epochs and a bit, and of validation, while images are decoded and kept."""
    with pipeline.reading(lambda _: None):
        train = list(islice(pipeline.train.as_numpy_iterator(), 2 * pipeline.steps_per_epoch + 2))
        read = [train, list(pipeline.validation.as_numpy_iterator())]
    return list(tf.nest.flatten(read))


def is_same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(np.array_equal, one, other))


# Decoding into memory is in the tests below.
def test_kept_images_give_the_same_batches_as_decoding(photos: Path) -> None:
    changes: dict[str, Any] = {"augmentation": CHANGED, "class_weight": "balanced"}
    settings = {cache: config(photos, cache, **changes) for cache in ("disk", "memory")}
    plain = read(build(settings["memory"], photos.parent, None))
    assert is_same(read(build(settings["disk"], photos.parent)), plain)
    examples = load_examples(settings["disk"], lambda _: None)
    shutil.rmtree(photos)
    for cache, again in settings.items():
        folder = photos.parent / f"cache in {cache}"
        pipeline = build_pipeline(examples, again, 1, cache_folder=folder, on_decoding=lambda _: None)
        assert pipeline.cache.kind == cache
        assert pipeline.cache.reason.endswith("; decoded by an earlier run")
        with_weights = list(next(pipeline.train_from(5).as_numpy_iterator()))  # so there are three parts
        assert is_same(with_weights, plain[15:18])
        assert is_same(read(pipeline), plain)


def test_another_split_and_order_use_the_same_kept_images(photos: Path) -> None:
    read(build(config(photos), photos.parent))
    settings = config(photos, seed=5, batch_size=3)
    pipeline = build(settings, photos.parent)
    assert pipeline.images is not None
    assert pipeline.images.were_kept
    assert is_same(read(pipeline), read(build(settings, photos.parent, None)))


def test_a_plan_knows_that_the_images_are_decoded(photos: Path) -> None:
    settings = config(photos)
    assert not make_plan(settings, Hardware()).is_decoded
    pipeline = build(settings, photos.parent)
    assert not make_plan(settings, Hardware()).is_decoded, "not before they are kept"
    read(pipeline)
    plan = make_plan(config(photos, seed=5, batch_size=3), Hardware())
    assert input_speed(plan) == "images decoded by an earlier run"
    save_input_speed(settings, [{"name": "first", "per_s": 100.0}, {"name": "later", "per_s": 2000.0}])
    plan = make_plan(settings, Hardware())
    assert input_speed(plan) == "2,000 examples/s (measured on this machine), images decoded by an earlier run"
    assert not make_plan(config(photos, cache="off"), Hardware()).is_decoded
    assert not make_plan(config(photos, options={"image_size": [16, 17]}), Hardware()).is_decoded
    write_image_folder(photos, ("daisy",), per_class=3, size=(70, 40), suffix=".png")
    assert not make_plan(settings, Hardware()).is_decoded, "there are more files now"


def test_each_host_gets_its_share_of_the_same_batches(photos: Path) -> None:
    settings, share = config(photos, augmentation=CHANGED), Share(1, 2)
    examples = load_examples(settings, lambda _: None)
    plain, decoded = (
        build_pipeline(examples, settings, 2, share=share, on_decoding=on_decoding)
        for on_decoding in (None, lambda _: None)
    )
    assert decoded.images is not None
    assert is_same(read(decoded), read(plain))


def test_left_out_images_are_left_out_again(photos: Path) -> None:
    damage_inside(photos / "rose" / "rose_3.jpg")
    settings = config(photos, skip_bad=True)
    first = build(settings, photos.parent)
    plain = read(first)
    again = build(settings, photos.parent)
    assert again.images is not None
    assert again.images.is_decoded.sum() == 29
    assert again.notices == first.notices
    assert is_same(read(again), plain)


def test_the_key_changes_with_the_files_and_with_how_they_are_decoded(photos: Path) -> None:
    def key(**changes: Any) -> str:
        files = load_examples(config(photos, **changes), lambda _: None).files
        assert files is not None
        return files.key

    keys = [key(), key(options={"image_size": [16, 17]}), key(options={"resize": "crop"})]
    file = photos / "tulip" / "tulip_0.jpg"
    os.utime(file, ns=(0, 1))
    keys.append(key())
    file.write_bytes(file.read_bytes() + b"\xff\xd9")
    os.utime(file, ns=(0, 1))
    keys.append(key())
    file.rename(file.with_name("other.jpg"))
    keys.append(key())
    assert len(set(keys)) == len(keys)
    assert key(seed=3, batch_size=2) == keys[-1]


def kept(key: str = "key") -> KeptImages:
    none = np.empty(0, np.int64)

    def unused(*_: Any) -> Any:
        raise NotImplementedError

    return KeptImages(
        ImageFiles(COUNT, SHAPE, unused, key, none, none, none, none, skips_damaged=False, without=unused)
    )


def save(key: str = "key") -> Path:
    kept(key).save(KNOWN, lambda numbers: IMAGES[numbers])
    return next(file for file in cache_files(DECODED) if file.name == f"{key}.images")


def loaded(key: str = "key") -> tuple[Any, NDArray[np.uint8]]:
    images = np.zeros_like(IMAGES)

    def write(numbers: Any, some: Any) -> None:
        images[numbers] = some

    return kept(key).load(write), images


@pytest.mark.parametrize("chunk_bytes", [1, 1000, 32 << 20])
def test_what_is_saved_is_loaded(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    monkeypatch.setattr(kept_images, "_CHUNK_BYTES", chunk_bytes)
    file = save()
    known, images = loaded()
    assert np.array_equal(known, KNOWN)
    assert np.array_equal(images, IMAGES)
    assert loaded("other")[0] is None
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-100],
        lambda content: content[:40],
        lambda _: b"",
        lambda content: content + b"\0",
        lambda content: content[:-500] + bytes([content[-500] ^ 1]) + content[-499:],
        lambda content: content[:30] + bytes([content[30] ^ 1]) + content[31:],
        lambda content: content[:-2000] + bytes(2000),
        lambda content: b"tpucimg0" + content[8:],
    ],
)
def test_damaged_kept_images_do_not_count_and_are_replaced(damage: Callable[[bytes], bytes]) -> None:
    file = save()
    file.write_bytes(damage(file.read_bytes()))
    assert loaded()[0] is None
    save()
    assert np.array_equal(loaded()[0], KNOWN)


def test_a_pipe_or_folder_in_the_place_of_kept_images_is_passed_over() -> None:
    place = save()
    place.unlink()
    os.mkfifo(place)
    assert loaded()[0] is None
    place.unlink()
    place.mkdir()
    assert loaded()[0] is None
    kept().save(KNOWN, lambda numbers: IMAGES[numbers])
    assert loaded()[0] is None


def test_the_least_recently_used_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = save("first"), save("second")
    for file in (first, second):
        os.utime(file, ns=(0, 1))
    loaded("first")
    monkeypatch.setattr(kept_images, "MOST_BYTES", 2 * first.stat().st_size)
    third = save("third")
    assert {*cache_files(DECODED)} == {first, third}


@pytest.mark.parametrize("limit", ["MOST_BYTES", "_LEFT_FREE_BYTES", "disk"])
def test_a_full_disk_or_too_many_images_only_keep_nothing(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    def full(_: object) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if limit != "disk":
        monkeypatch.setattr(kept_images, limit, 0 if limit == "MOST_BYTES" else 1 << 62)
    kept().save(KNOWN, full if limit == "disk" else lambda numbers: IMAGES[numbers])
    assert cache_files(DECODED) == []


def test_a_run_that_writes_the_same_images_meanwhile_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_while_another_saves(numbers: Any) -> Any:
        with monkeypatch.context() as other:
            other.setattr(os, "getpid", lambda: 1)
            save()
        return IMAGES[numbers]

    kept().save(KNOWN, read_while_another_saves)
    assert np.array_equal(loaded()[1], IMAGES)
