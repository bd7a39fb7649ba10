from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile_runs import HOSTILE, UNSAFE
from tpu_console.engine import sanitize
from tpu_console.engine.errors import ConfigError, ConsoleError, Problem, one_line
from tpu_console.engine.sanitize import LONGEST_TEXT, printable, printable_lines, printable_values, unsafe_character


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, é, 日本, naïve", "plain, é, 日本, naïve"),
        ("👩‍🔬 क्‍ष می‌خواهم ❤️", "👩‍🔬 क्‍ष می‌خواهم ❤️"),
        ("\x1b]52;c;x\x07", "\ufffd]52;c;x\ufffd"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b\x1b[0m[31m", "\ufffd[31m"),
        ("a\x9b31mb\x9d0;c\x9c", "a\ufffd31mb\ufffd0;c\ufffd"),
        ("a\rb\nc\td\u2028e\x85f", "a b c d e f"),
        ("\u202etxt.exe\u2066\u200f\u061c", "\ufffdtxt.exe\ufffd\ufffd\ufffd"),
        ("a\u200bb\ufeffc\u2060d\u00ade", "a\ufffdb\ufffdc\ufffdd\ufffde"),
        ("\ud800\udfff", "\ufffd\ufffd"),
        ("\U000e0041", "\ufffd"),
        ("\x7f\x00\x08", "\ufffd\ufffd\ufffd"),
    ],
)
def test_what_becomes_of_a_text(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


def test_a_text_of_several_lines_keeps_them() -> None:
    assert printable_lines("a\r\nb\rc\nd\u2028e\x1b[2J") == "a\nb\nc\nd\ne\ufffd[2J"


@given(st.text(max_size=50))
def test_nothing_unsafe_is_left_of_any_text(text: str) -> None:
    for shown in (printable(text), printable_lines(text)):
        assert not UNSAFE & set(shown)
        shown.encode()  # no lone surrogate
    assert "\n" not in printable(text)
    assert bool(unsafe_character(text)) <= (printable(text) != text)


def test_values_are_cleaned_all_the_way_down_and_keys_too() -> None:
    found = printable_values({HOSTILE: [HOSTILE, {"a": (HOSTILE, 1, None, True, 0.5)}]})
    assert not UNSAFE & set(str(found).replace("\\n", ""))
    assert printable_values({"a\n": "x\ny"}) == {"a ": "x y"}
    assert printable_values({"a\n": "x\ny"}, keeps_lines=True) == {"a ": "x\ny"}


@pytest.mark.parametrize(("limit", "longest"), [((), LONGEST_TEXT), ((10,), 10)])
def test_texts_are_cut_off_behind_the_longest_that_is_whole(limit: tuple[int, ...], longest: int) -> None:
    assert printable_values("x" * longest, *limit) == "x" * longest
    assert printable_values("x" * (longest + 1), *limit) == "x" * longest + "…"
    assert printable_values({"x" * (longest + 1): 1}, *limit) == {"x" * longest: 1}


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}, lambda value: [1, {"a": value}]])
def test_values_that_are_nested_too_deeply_are_refused(wrap: Callable[[Any], Any]) -> None:
    value: Any = "text"
    for _ in range(64 // (2 if isinstance(wrap(0), list) and len(wrap(0)) > 1 else 1)):
        value = wrap(value)
    assert printable_values(value) == value
    with pytest.raises(sanitize.TooDeepError, match="64"):
        printable_values([value])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *(("a\tb\n", ""), ("naïve 日本", ""), ("a\x1bb", "U+001B"), ("\u202e", "U+202E")),
        *(("\t\n\r", "U+000D"), ("\x85", "U+0085")),
    ],
)
def test_the_first_character_that_a_setting_may_not_contain_is_named(text: str, found: str) -> None:
    assert unsafe_character(text) == found


def test_errors_are_safe_to_show_whatever_they_quote() -> None:
    error = ConsoleError(f"{HOSTILE} is damaged.", why=HOSTILE, remedy=HOSTILE)
    wrong = ConfigError([Problem(HOSTILE, HOSTILE)], HOSTILE)
    texts = [error.what, error.why, error.remedy, str(error), str(wrong), wrong.problems[0].key]
    texts.append(one_line(Exception(HOSTILE)))
    assert all(not UNSAFE & set(text) for text in texts)
