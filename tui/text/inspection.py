"""Formats what `inspect` found in a dataset as lines of text."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from tpu_console.engine.config.catalog import DATASETS
from tpu_console.engine.data.kinds.table import KINDS
from tpu_console.engine.data.tables import short_name
from tpu_console.engine.runs.class_report import Picture
from tpu_console.engine.storage.paths import user_path

from .cells import clipped
from .numbers import NONE, duration, plural, shape, size
from .pictures import Depth, gallery
from .tables import Bar, bar_chart, labelled, paragraphs, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MOST_CLASSES = 24
_ENDS = 10  # how many of the largest and of the smallest classes are listed if there are more
_UNEVEN = 2.0
_SHORT = 20  # what is left of a file's name at least


class Page:
    """Writes the lines about one dataset."""

    def __init__(self, width: int, depth: Depth) -> None:
        self._width = width
        self._depth = depth

    def lines(self, dataset: str, options: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
        """Write the page on the result of the job `inspect`."""
        notices = [line for text in found.get("notices", ()) for line in self._fact("note", text)]
        pictures = [
            Picture(entry["caption"], entry["height"], entry["width"], base64.b64decode(entry["rgb"]))
            for entry in found.get("pictures", ())
        ]
        parts = [
            [*self._what(dataset, options), *self._counts(found), *self._images(found), *notices],
            [line for name, text in found.get("facts", {}).items() for line in self._fact(name, text)],
            self._bad(found),
            self._classes(found.get("classes", ())),
            *self._texts(found),
            self._ratings(found.get("ratings")),
            gallery(pictures, self._width, self._depth),
            self._speed(found.get("speed")),
        ]
        return paragraphs(parts)

    def _fact(self, name: str, text: str) -> list[str]:
        return wrapped(name, text, self._width)

    def _what(self, dataset: str, options: Mapping[str, Any]) -> list[str]:
        info = DATASETS.get(dataset)
        if info is None:
            about = KINDS[dataset].title if dataset in KINDS else "custom function"
            place = [] if "path" not in options else self._fact("files", str(options["path"]))
            return [*self._fact("dataset", f"{dataset}: {about}"), *place]
        lines = [*self._fact("dataset", f"{dataset}: {info.title}"), *self._fact("licence", info.licence)]
        if not info.files:
            return [*lines, *self._fact("download", "not needed (part of scikit-learn)")]
        missing = info.missing_files()
        folder = user_path(info.files[0].location if len(info.files) == 1 else info.files[0].location.parent)
        state = "not downloaded yet" if missing else "downloaded"
        return [*lines, *self._fact("download", f"{size(info.download_bytes)}, {state}, in {folder}")]

    def _counts(self, found: Mapping[str, Any]) -> list[str]:
        if "train" not in found:
            return []
        parts = [(found["train"], "training"), (found["validation"], "validation")]
        counts = ", ".join(f"{'unknown number of' if count is None else f'{count:,}'} {what}" for count, what in parts)
        inputs = "; ".join(
            f"{name} {shape(tuple(part['shape'])) or 'a number'}, {part['dtype']}"
            for name, part in found["inputs"].items()
        )
        sizes = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in found["sizes"].items())
        return [
            *self._fact("examples", counts),
            *self._fact("inputs", inputs),
            *(self._fact("sizes", sizes) if sizes else []),
        ]

    def _images(self, found: Mapping[str, Any]) -> list[str]:
        images = found.get("images")
        if not images or not images["usable"]:
            return []
        height, width = images["height"], images["width"]
        sides = [f"{label} {height[key]:,.0f}×{width[key]:,.0f}" for label, key in _SPREAD]
        if all(side["min"] == side["max"] for side in (height, width)):
            sides = [f"all {height['min']:,.0f}×{width['min']:,.0f}"]
        formats = ", ".join(f"{count:,} {name}" for name, count in images["formats"].items())
        turned = f"; {images['turned']:,} rotated according to EXIF" if images["turned"] else ""
        return [
            *self._fact("image size", f"{', '.join(sides)} (height×width)"),
            *self._fact("formats", f"{formats}{turned}; total {size(images['bytes'])}"),
        ]

    def _bad(self, found: Mapping[str, Any]) -> list[str]:
        bad = found.get("bad")
        if not bad or not bad["count"]:
            return []
        shown = []
        for name, problem in ((file["file"], file["problem"]) for file in bad["first"]):
            shown.append(f"  {short_name(name, max(_SHORT, self._width - len(problem) - 3))} {problem}")
        more = bad["count"] - len(shown)
        title = f"{plural(bad['count'], 'bad file')}; data.options.skip_bad=true skips them"
        return [title, *(clipped(line, self._width) for line in shown), *([f"  and {more:,} more"] if more else [])]

    def _classes(self, classes: Sequence[Mapping[str, Any]]) -> list[str]:
        if not classes:
            return []
        totals = [entry["train"] + entry["validation"] for entry in classes]
        whole = sum(totals) or 1
        figures = [
            Bar(entry["name"], total, (f"{entry['train']:,}", f"{entry['validation']:,}", f"{total / whole:.1%}"))
            for entry, total in zip(classes, totals, strict=True)
        ]
        title = self._fact("classes", _balance(classes, totals))
        if len(figures) > _MOST_CLASSES:
            ordered = sorted(figures, key=lambda bar: -bar.value)
            gap = Bar(f"… {len(figures) - 2 * _ENDS:,} more", 0, ("", "", ""))
            figures = [*ordered[:_ENDS], gap, *ordered[-_ENDS:]]
        return [*title, *bar_chart(figures, ("class", "train", "validation", "share"), self._width)]

    def _texts(self, found: Mapping[str, Any]) -> Iterator[list[str]]:
        texts = found.get("texts")
        if not texts:
            return
        for name, words in texts["words"].items():
            middle = f"{words['min']:,.0f} to {words['max']:,.0f} words, median {words['median']:,.0f}"
            title = f"{middle}; {words['cut']:.1%} are cut at {texts['cut_at']:,}"
            yield [*self._fact(name, title), *self._histogram(words["histogram"], "words", "texts")]
        shares = [
            f"{share:.1%} of the {_PARTS[part]} words{'' if name == 'text' else f' of {name}'}"
            for part, names in found.get("unknown_words", {}).items()
            for name, share in names.items()
        ]
        if shares:
            yield self._fact("unknown", f"{', '.join(shares)} are not in the vocabulary")
        lines = (labelled(name, text) for sample in texts["samples"] for name, text in sample.items())
        yield [clipped(line, self._width) for line in lines]

    def _ratings(self, ratings: Mapping[str, Any] | None) -> list[str]:
        if ratings is None:
            return []
        user, item = ratings["by_user"], ratings["by_item"]
        counts = (
            f"{ratings['ratings']:,} by {plural(ratings['users'], 'user')} of {plural(ratings['items'], 'item')}; "
            f"{ratings['density']:.2%} of all pairs; mean {ratings['mean']:.2f}"
        )
        each = (
            f"{user['min']:,.0f} to {user['max']:,.0f} per user (median {user['median']:,.0f}), "
            f"{item['min']:,.0f} to {item['max']:,.0f} per item (median {item['median']:,.0f})"
        )
        return [
            *self._fact("ratings", counts),
            *self._fact("", each),
            *self._histogram(ratings["histogram"], "rating", "ratings"),
        ]

    def _histogram(self, bins: Sequence[Mapping[str, float]], of: str, counted: str) -> list[str]:
        bars = []
        for entry in bins:
            low, high = entry["low"], entry["high"]
            label = f"{low:g}" if low == high else f"{low:,.4g} to {high:,.4g}"
            bars.append(Bar(label, entry["count"], (f"{entry['count']:,.0f}",)))
        return bar_chart(bars, (of, counted), self._width)

    def _speed(self, speed: Mapping[str, Any] | None) -> list[str]:
        if speed is None:
            return []
        bars = [
            Bar(
                part["what"],
                part["per_s"],
                (f"{part['per_s']:,.0f}", duration(1 / part["per_s"]) if part["per_s"] else NONE),
            )
            for part in speed["parts"]
        ]
        chart = bar_chart(bars, ("part", f"{speed['unit']}/s", "each"), self._width)
        return [*chart, *(line for text in speed["advice"] for line in self._fact("note", text))]


_PARTS = {"train": "training", "validation": "validation"}
_SPREAD = (("smallest", "min"), ("median", "median"), ("largest", "max"))


def _balance(classes: Sequence[Mapping[str, Any]], totals: Sequence[int]) -> str:
    """Say how many classes there are, and how imbalanced they are."""
    names = [entry["name"] for entry in classes]
    least, most = min(totals), max(totals)
    text = f"{len(names):,}"
    if least == most:
        return f"{text}, of {plural(most, 'example')} each"
    smallest, largest = names[totals.index(least)], names[totals.index(most)]
    ratio = most / max(least, 1)
    times = f", {ratio:.1f} times as many" if ratio >= _UNEVEN else ""
    examples = plural(least, "example")
    return f"{text}; the smallest is {smallest} with {examples}, the largest {largest} with {most:,}{times}"
