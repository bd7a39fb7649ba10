"""How long compiling a step will probably take, from its size and this machine's earlier compiles."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from ..storage.keyed_store import KeyedStore
from ..storage.paths import cache_folder

_SECONDS_PER_LINE = 60 / 13_600
"""What ResNet-50 took on two cores with libtpu 0.0.51, if nothing was compiled on this machine yet."""

_SECONDS_PER_GROUPED = 10.0
"""What each grouped convolution of ConvNeXtTiny took with 64 large images per device; with 8 small ones, nothing."""

_MOST = 100
_SIMILAR = 3.0  # how many times larger or smaller a program may be to count as similar
_KEY = "all"


@dataclass(frozen=True, slots=True)
class _Compiles:
    """The lines of lowered steps, and the seconds that compiling each of them took, in the same order."""

    lines: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()


_TIMES = KeyedStore[_Compiles]("compile-times.json", _Compiles, cache_folder)


def save_compile_time(lines: int, seconds: float) -> None:
    """Remember how long a lowered step of so many lines took."""
    before = _TIMES.get(_KEY) or _Compiles()
    _TIMES.put(_KEY, _Compiles((*before.lines, lines)[-_MOST:], (*before.seconds, seconds)[-_MOST:]))


def expected_seconds(lines: int, grouped: int = 0) -> tuple[float, float]:
    """Return how long compiling a lowered step will probably take, at least and at most.

    `lines` are those of the step, and `grouped` its convolutions of groups of channels, such as depthwise ones.
    """
    known = _TIMES.get(_KEY) or _Compiles()
    compiles = [(size, spent) for size, spent in zip(known.lines, known.seconds, strict=False) if size > 0]
    similar = [(size, spent) for size, spent in compiles if 1 / _SIMILAR <= size / max(1, lines) <= _SIMILAR]
    rates = [spent / size for size, spent in similar or compiles]
    least = lines * (median(rates) if rates else _SECONDS_PER_LINE)
    return least, least + grouped * _SECONDS_PER_GROUPED
