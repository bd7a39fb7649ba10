"""Image files: what cannot be used is found before training, everything else is decoded as Pillow shows it."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray
from PIL import Image, ImageOps

from tests import images
from tests.images import BAD_FILES, ODD_FILES, damage_inside, smooth, write_odd
from tpu_console.engine.data.images.check import check_image, check_images, check_some
from tpu_console.engine.data.images.examples import Decoding, as_png, decode_bytes, decoded

Resize = Literal["stretch", "crop", "pad"]


REASONS = {
    "empty": "is empty",
    "text": "is not an image of a known format",
    "cut jpeg": "is cut off or damaged: image file is truncated",
    "cut png": "is cut off or damaged: Truncated File Read",
    "cut webp": "cannot be read: could not create decoder object",
    "cut gif": "is cut off or damaged: image file is truncated",
    "cut bmp": "is cut off or damaged: image file is truncated",
    "moving gif": "is an animation of 3 pictures",
    "moving webp": "is an animation of 3 pictures",
    "corrupt png": "is cut off or damaged: broken PNG file",
    "gigapixel png": "claims to have more than 100 million pixels",
    "gigapixel jpeg": "claims to have more than 100 million pixels",
}


def problem(path: Path) -> str:
    return check_image(str(path)).problem


@pytest.mark.parametrize("kind", BAD_FILES)
def test_problems_are_reported(tmp_path: Path, kind: str) -> None:
    facts = check_image(str(images.write_bad(tmp_path, kind)))
    assert facts.problem.startswith(REASONS[kind])
    assert (facts.orientation, facts.is_gray) == (1, False)


@pytest.mark.parametrize("kind", ODD_FILES)
def test_odd_files_can_be_used(tmp_path: Path, kind: str) -> None:
    facts = check_image(str(write_odd(tmp_path, kind)))
    assert (facts.problem, facts.height, facts.width) == ("", 40, 60)
    assert facts.orientation == (6 if kind == "turned jpeg" else 1)
    assert facts.is_gray == (kind in {"grey jpeg", "grey png", "16-bit png"})


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_an_image_is_turned_upright_as_its_header_says(tmp_path: Path, suffix: str) -> None:
    upright, turned, unknown = (1, 2, 3, 4), (5, 6, 7, 8), (0, 9)
    paths = []
    for orientation in (*upright, *turned, *unknown):
        exif = Image.Exif()
        exif[0x0112] = orientation
        smooth(64, 96).save(path := tmp_path / f"{orientation}.{suffix}", quality=95, exif=exif)
        facts = check_image(str(path))
        if orientation not in unknown:
            paths.append(path)
        assert (facts.width, facts.height) == ((64, 96) if orientation in turned else (96, 64))
        assert facts.orientation == (1 if orientation in unknown else orientation)
    for path, image in zip(paths, decode(paths, Decoding((40, 40))), strict=True):
        shown = as_pillow_shows(path).resize((40, 40), Image.Resampling.BILINEAR)
        assert np.abs(image - np.asarray(shown)).mean() < 2


def test_a_short_look_checks_at_least_one_image_and_never_one_twice(tmp_path: Path) -> None:
    paths = [images.write_bad(tmp_path, kind) for kind in BAD_FILES]
    texts = list(map(str, paths))
    assert len(check_some(texts, 0)) == 1
    assert check_some(texts, 60) == dict(enumerate(map(check_image, texts)))


def test_missing_files_and_other_formats_are_reported(tmp_path: Path) -> None:
    smooth().save(tmp_path / "scan.jpg", "TIFF")
    assert problem(tmp_path / "none.jpg") == "is not there"
    assert problem(tmp_path / "scan.jpg").startswith("is a TIFF file; JPEG, PNG,")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [10_000, 10_001])
def test_the_largest_claim_that_is_believed(tmp_path: Path, side: int) -> None:
    (tmp_path / "a.png").write_bytes(images.png_claiming(side, 10_000))
    images.jpeg_claiming(tmp_path / "a.jpg", side, 10_000)
    expected = "" if side == 10_000 else "claims to have 10,001 × 10,000 pixels"
    assert [problem(tmp_path / name) for name in ("a.png", "a.jpg")] == [expected] * 2


def test_bytes_behind_the_end_of_a_jpeg_are_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    for tail in (bytes(3000), b"camera" * 2000):
        smooth().save(path)
        path.write_bytes(path.read_bytes() + tail)
        assert problem(path) == ""


@pytest.mark.parametrize("name", ["a.jpg", "a.png"])
def test_every_cut_of_a_jpeg_or_png_is_found(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    smooth().save(path)
    content = path.read_bytes()
    for length in range(0, len(content) - 1, 23):
        path.write_bytes(content[:length])
        assert problem(path), f"{length} bytes"


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.gif", "a.webp", "a.bmp"])
def test_any_content_of_a_file_is_handled(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    smooth().save(path)
    content, dice = path.read_bytes(), random.Random(name)
    for _ in range(40):
        changed = bytearray(content)
        for _ in range(dice.randint(1, 8)):
            changed[dice.randrange(min(len(changed), 600))] = dice.randrange(256)
        path.write_bytes(changed)
        facts = check_image(str(path))
        assert facts.problem or facts.width * facts.height <= 100_000_000


def test_facts_have_the_order_of_the_files_and_progress_is_reported(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}.png") for number in range(20)]
    for number, path in enumerate(paths):
        Image.new("RGB", (number + 1, 5)).save(path)
    told: list[str] = []
    facts = check_images(paths, told.append, check_image, "decoding", every_s=-1.0)
    assert [(fact.path, fact.width) for fact in facts] == [(path, width) for width, path in enumerate(paths, 1)]
    assert told == ["decoding 20 images", *(f"decoding images: {done} of 20" for done in range(1, 21))]


def test_a_check_ends_if_the_report_of_its_progress_raises(tmp_path: Path) -> None:
    def stop(news: str) -> None:
        if ":" in news:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        check_images([str(write_odd(tmp_path, "jpeg"))] * 100, stop, check_image, every_s=-1.0)


def as_pillow_shows(path: Path) -> Image.Image:
    image = ImageOps.exif_transpose(Image.open(path))
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image) // 256).astype(np.uint8)).convert("RGB")
    if image.mode == "RGBA":
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def decode(paths: Sequence[Path], decoding: Decoding) -> list[NDArray[np.int64]]:
    facts = [check_image(str(path)) for path in paths]
    return [image.astype(int) for image in decoded(facts, decoding).as_numpy_iterator()]


@pytest.mark.parametrize("kind", ODD_FILES)
def test_a_file_is_decoded_as_pillow_does(tmp_path: Path, kind: str) -> None:
    path = write_odd(tmp_path, kind)
    (image,) = decode([path], Decoding((40, 60)))
    difference = np.abs(image - np.asarray(as_pillow_shows(path)))
    # Two JPEG decoders round differently, and so do two ways to convert CMYK.
    assert difference.max() <= (6 if "jpeg" in kind else 0)
    assert difference.mean() < 1.5


def test_what_a_palette_leaves_transparent_is_white(tmp_path: Path) -> None:
    image = Image.new("P", (60, 40))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.save(tmp_path / "a.gif", transparency=0)
    (decoded_image,) = decode([tmp_path / "a.gif"], Decoding((40, 60)))
    assert decoded_image.min() == 255


def test_crop_keeps_the_middle_and_pad_keeps_everything(tmp_path: Path) -> None:
    pixels = np.zeros((60, 120, 3), np.uint8)
    pixels[:, 30:90] = (250, 250, 250)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    (cropped,) = decode([tmp_path / "a.png"], Decoding((30, 30), "crop"))
    (padded,) = decode([tmp_path / "a.png"], Decoding((40, 40), "pad"))
    (stretched,) = decode([tmp_path / "a.png"], Decoding((40, 40)))
    assert cropped.min() == 250
    white = padded.max(axis=2) > 125
    assert white.sum() == 20 * 20
    assert white[10:30, 10:30].all()
    assert (stretched.max(axis=2) > 125).sum() == 40 * 20


@pytest.mark.parametrize(
    ("resize", "size", "ratio"),
    [
        ("stretch", (256, 256), 2),
        ("stretch", (255, 256), 1),
        ("stretch", (600, 2000), 4),
        ("stretch", (100, 2000), 1),
        ("crop", (600, 2000), 4),
        ("pad", (600, 2000), 8),
        ("stretch", (9000, 9000), 8),
    ],
)
def test_large_jpegs_are_decoded_at_a_fraction(resize: Resize, size: tuple[int, int], ratio: int) -> None:
    assert Decoding((128, 128), resize).ratio(*size) == ratio


@pytest.mark.parametrize("resize", ["stretch", "crop", "pad"])
def test_a_large_photo_looks_like_itself(tmp_path: Path, resize: Resize) -> None:
    photo = smooth(1100, 275)
    photo.save(tmp_path / "a.jpg", quality=95)
    (image,) = decode([tmp_path / "a.jpg"], Decoding((64, 64), resize))
    shown: dict[str, Any] = {"stretch": Image.Image.resize, "crop": ImageOps.fit, "pad": ImageOps.pad}
    expected = shown[resize](photo, (64, 64), Image.Resampling.BILINEAR)
    assert np.abs(image - np.asarray(expected)).mean() < 2


def test_contents_out_of_a_shard_are_decoded_alike(tmp_path: Path) -> None:
    paths, decoding = [write_odd(tmp_path, kind) for kind in ODD_FILES], Decoding((10, 10))
    facts = [check_image(str(path)) for path in paths]

    def from_contents(contents: Any, orientation: Any) -> Any:
        return decode_bytes(contents, decoding, orientation)

    contents = [path.read_bytes() if one.is_plain else as_png(one.path) for path, one in zip(paths, facts, strict=True)]
    rows = (contents, [one.orientation for one in facts])
    stored = tf.data.Dataset.from_tensor_slices(rows).map(from_contents)
    assert stored.element_spec.shape == decoding.shape
    pairs = zip(stored.as_numpy_iterator(), decode(paths, decoding), ODD_FILES, strict=True)
    assert [kind for image, expected, kind in pairs if not np.array_equal(image, expected)] == []


@pytest.mark.parametrize("place", [0, 5])
def test_an_error_in_decoding_names_the_file(tmp_path: Path, place: int) -> None:
    paths = [tmp_path / f"{number}.jpg" for number in range(6)]
    for path in paths:
        smooth(100, 150).save(path)
    damage_inside(paths[place])
    facts = [check_image(str(path)) for path in paths]
    assert not any(fact.problem for fact in facts)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"The image file {paths[place]} is damaged"):
        list(decoded(facts, Decoding((32, 32)), np.arange(6)))


def test_a_file_that_is_deleted_while_training_is_named(tmp_path: Path) -> None:
    paths = [write_odd(tmp_path, kind) for kind in ("jpeg", "bmp")]
    facts = [check_image(str(path)) for path in paths]
    paths[1].unlink()
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"The image file {paths[1]} is"):
        list(decoded(facts, Decoding((32, 32))))
