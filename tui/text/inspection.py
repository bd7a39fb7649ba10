"""Formats what `inspect` found in a dataset as lines of text, and draws pictures as characters.

In color, two pixels per cell: the upper half block ``▀`` has one as its foreground and the one below as background.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from rich.cells import set_cell_size
from rich.color import Color, ColorSystem

from tpu_console.engine.config.catalog import DATASETS
from tpu_console.engine.runs.class_report import Picture
from tpu_console.engine.storage.paths import user_path

from .numbers import NONE, duration, plural, shape, size
from .tables import Bar, bar_chart, clipped, labelled, paragraphs, wrapped

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Facts = Iterable[tuple[str, str]]
    """Names and texts."""

    Pixels = NDArray[np.int64]
    """Rows of red, green and blue, from 0 to 255."""

_MOST_CLASSES = 24
_ENDS = 10  # how many of the largest and of the smallest classes are listed if there are more
_SHORT = 20  # what is left of a file's name at least
_GAP = 2  # cells between two pictures
_SHADES = " .:-=+*#%@"  # from black to white on a dark background
_RESET = "\x1b[0m"


class Depth(StrEnum):
    """How many colors a terminal shows."""

    TRUE = "24 bit"
    INDEXED = "256 colors"
    GREY = "shades in ASCII"


def page(
    dataset: str, options: Mapping[str, Any], found: Mapping[str, Any], width: int, depth: Depth = Depth.GREY
) -> list[str]:
    """Write what the job `inspect` found in a dataset."""

    def written(facts: Facts) -> list[str]:
        return [line for name, text in facts for line in wrapped(name, text, width)]

    pictures = [
        Picture(entry["caption"], entry["height"], entry["width"], base64.b64decode(entry["rgb"]))
        for entry in found.get("pictures", ())
    ]
    bad = []
    if (broken := found.get("bad")) and broken["count"]:
        from tpu_console.engine.data.tables import short_name

        bad.append(f"{plural(broken['count'], 'bad file')}; data.options.skip_bad=true skips them")
        for one in broken["first"]:
            name = short_name(one["file"], max(_SHORT, width - len(one["problem"]) - 3))
            bad.append(clipped(f"  {name} {one['problem']}", width))
        if more := broken["count"] - len(broken["first"]):
            bad.append(f"  and {more:,} more")
    blocks = [
        written(_about(dataset, options, found)),
        written(found.get("facts", {}).items()),
        bad,
        _classes(found.get("classes", ()), width),
        *_texts(found, width),
    ]
    if (ratings := found.get("ratings")) is not None:
        user, item = ratings["by_user"], ratings["by_item"]
        counts = f"{ratings['ratings']:,} by {plural(ratings['users'], 'user')} of {plural(ratings['items'], 'item')}"
        each = (
            f"{user['min']:,.0f} to {user['max']:,.0f} per user (median {user['median']:,.0f}), "
            f"{item['min']:,.0f} to {item['max']:,.0f} per item (median {item['median']:,.0f})"
        )
        shares = f"{ratings['density']:.2%} of all pairs; mean {ratings['mean']:.2f}"
        facts = [("ratings", f"{counts}; {shares}"), ("", each)]
        blocks.append([*written(facts), *_histogram(ratings["histogram"], "rating", "ratings", width)])
    blocks.append(gallery(pictures, width, depth))
    if (speed := found.get("speed")) is not None:
        rates = [(part["what"], part["per_s"]) for part in speed["parts"]]
        bars = [Bar(what, rate, (f"{rate:,.0f}", duration(1 / rate) if rate else NONE)) for what, rate in rates]
        chart = bar_chart(bars, ("part", f"{speed['unit']}/s", "each"), width)
        blocks.append([*chart, *written([("note", text) for text in speed["advice"]])])
    return paragraphs(blocks)


def _about(dataset: str, options: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what the dataset is, how many examples and which images it has, and notices."""
    from tpu_console.engine.data.kinds.table import kind_of

    yield "dataset", f"{dataset}: {kind_of(dataset).title}"
    if "path" in options:
        yield "files", str(options["path"])
    if (info := DATASETS.get(dataset)) is not None:
        yield "licence", info.licence
        if info.files:
            state = "not downloaded yet" if info.missing_files() else "downloaded"
            yield "download", f"{size(info.download_bytes)}, {state}, in {user_path(info.files[0].location.parent)}"
    if "train" in found:
        parts = [(found["train"], "training"), (found["validation"], "validation")]
        yield "examples", ", ".join(f"{'unknown' if count is None else f'{count:,}'} {what}" for count, what in parts)
        shapes = {name: (shape(tuple(one["shape"])), one["dtype"]) for name, one in found["inputs"].items()}
        yield "inputs", "; ".join(f"{name} {sides or 'a number'}, {dtype}" for name, (sides, dtype) in shapes.items())
        if sizes := ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in found["sizes"].items()):
            yield "sizes", sizes
    if (images := found.get("images")) and images["usable"]:
        height, width = images["height"], images["width"]
        spread = (("smallest", "min"), ("median", "median"), ("largest", "max"))
        sides = ", ".join(f"{label} {height[key]:,.0f}×{width[key]:,.0f}" for label, key in spread)
        if all(side["min"] == side["max"] for side in (height, width)):
            sides = f"all {height['min']:,.0f}×{width['min']:,.0f}"
        yield "image size", f"{sides} (height×width)"
        formats = ", ".join(f"{count:,} {name}" for name, count in images["formats"].items())
        turned = f"; {images['turned']:,} rotated according to EXIF" if images["turned"] else ""
        yield "formats", f"{formats}{turned}; total {size(images['bytes'])}"
    yield from (("note", text) for text in found.get("notices", ()))


def _classes(classes: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """Draw how many examples each class has, and say which are the largest and the smallest."""
    if not classes:
        return []
    totals = [entry["train"] + entry["validation"] for entry in classes]
    whole = sum(totals) or 1
    bars = [
        Bar(entry["name"], total, (f"{entry['train']:,}", f"{entry['validation']:,}", f"{total / whole:.1%}"))
        for entry, total in zip(classes, totals, strict=True)
    ]
    ordered = sorted(bars, key=lambda bar: -bar.value)
    text = f"{len(bars):,}, of {plural(totals[0], 'example')} each"
    if min(totals) != max(totals):
        smallest, largest = ordered[-1], ordered[0]
        extremes = f"the smallest is {smallest.label} with {plural(int(smallest.value), 'example')}"
        text = f"{len(bars):,}; {extremes}, the largest {largest.label} with {largest.value:,.0f}"
    if len(bars) > _MOST_CLASSES:
        bars = [*ordered[:_ENDS], Bar(f"… {len(bars) - 2 * _ENDS:,} more", 0, ("", "", "")), *ordered[-_ENDS:]]
    return [*wrapped("classes", text, width), *bar_chart(bars, ("class", "train", "validation", "share"), width)]


def _texts(found: Mapping[str, Any], width: int) -> Iterator[list[str]]:
    if not (texts := found.get("texts")):
        return
    for name, words in texts["words"].items():
        middle = f"{words['min']:,.0f} to {words['max']:,.0f} words, median {words['median']:,.0f}"
        title = f"{middle}; {words['cut']:.1%} are cut at {texts['cut_at']:,}"
        yield [*wrapped(name, title, width), *_histogram(words["histogram"], "words", "texts", width)]
    shares = [
        f"{share:.1%} of the words of {name} ({part})"
        for part, names in found.get("unknown_words", {}).items()
        for name, share in names.items()
    ]
    if shares:
        yield wrapped("unknown", f"{', '.join(shares)} are not in the vocabulary", width)
    yield [clipped(labelled(name, text), width) for sample in texts["samples"] for name, text in sample.items()]


def _histogram(bins: Sequence[Mapping[str, float]], of: str, counted: str, width: int) -> list[str]:
    bars = []
    for entry in bins:
        low, high = entry["low"], entry["high"]
        label = f"{low:g}" if low == high else f"{low:,.4g} to {high:,.4g}"
        bars.append(Bar(label, entry["count"], (f"{entry['count']:,.0f}",)))
    return bar_chart(bars, (of, counted), width)


def depth_of(environment: Mapping[str, str], *, is_terminal: bool, is_utf8: bool) -> Depth:
    """Return how many colors pictures can be drawn with; `NO_COLOR` is honored, and half blocks need UTF-8."""
    term = environment.get("TERM", "")
    if not is_terminal or not is_utf8 or environment.get("NO_COLOR") or term in {"", "dumb"}:
        return Depth.GREY
    has_true = environment.get("COLORTERM", "").lower() in {"truecolor", "24bit"} or term.endswith("-direct")
    return Depth.TRUE if has_true else Depth.INDEXED


def gallery(pictures: Sequence[Picture], width: int, depth: Depth, rows: int = 2) -> list[str]:
    """Draw pictures side by side, each above its caption; those that do not fit into the rows are dropped."""
    side = min(28 if width >= 120 else 16, width)  # in cells, and in pixels, because a cell is twice as high as wide
    each = max(1, (width + _GAP) // (side + _GAP))
    lines: list[str] = []
    for start in range(0, min(len(pictures), rows * each), each):
        shown = pictures[start : start + each]
        drawn = zip_longest(*(_drawn(picture, side, depth) for picture in shown), fillvalue=" " * side)
        captions = [set_cell_size(clipped(picture.caption, side), side) for picture in shown]
        lines += [(" " * _GAP).join(row).rstrip(" ") for row in (*drawn, captions)]
    return lines


def _drawn(picture: Picture, side: int, depth: Depth) -> list[str]:
    """Draw one picture as large as fits into a square `side` cells wide; pad every line to that width."""
    scale = side / max(picture.height, picture.width)
    width = max(1, round(picture.width * scale))
    height = max(2, 2 * round(picture.height * scale / 2))
    if depth is Depth.GREY:
        # By luminance (ITU-R BT.601), stretched to the picture's range because there are few shades.
        light = _scaled(picture, height // 2, width) @ [299, 587, 114]
        least, most = int(light.min()), int(light.max())
        if least == most:
            least, most = 0, 255_000
        steps = ((light - least) * (len(_SHADES) - 1) / (most - least)).round().astype(int)
        return ["".join(_SHADES[step] for step in row).ljust(side) for row in steps]
    pixels = _scaled(picture, height, width)
    system = ColorSystem.TRUECOLOR if depth is Depth.TRUE else ColorSystem.EIGHT_BIT
    lines = []
    for row in range(0, height, 2):
        parts, before = [], ""
        for pair in zip(pixels[row].tolist(), pixels[row + 1].tolist(), strict=True):
            upper, lower = (Color.from_rgb(*pixel).downgrade(system) for pixel in pair)
            code = f"\x1b[{';'.join((*upper.get_ansi_codes(), *lower.get_ansi_codes(foreground=False)))}m"
            parts.append("▀" if code == before else f"{code}▀")
            before = code
        lines.append("".join(parts) + _RESET + " " * (side - width))
    return lines


def _scaled(picture: Picture, height: int, width: int) -> Pixels:
    """Scale a picture: each new pixel is the mean of the pixels it covers, or the one it lies in."""
    import numpy as np  # commands without pictures do without it

    pixels = np.frombuffer(picture.rgb, np.uint8).reshape(picture.height, picture.width, 3).astype(np.int64)
    covered = []
    for axis, side in enumerate((height, width)):
        starts = np.arange(side) * pixels.shape[axis] // side
        covered.append(np.maximum(1, np.diff(starts, append=pixels.shape[axis])))
        pixels = np.add.reduceat(pixels, starts, axis=axis)
    return pixels // np.multiply.outer(*covered)[..., None]
