"""Nonsense in configurations and on the command line ends with a sentence: no traceback, no hang, no exit code 0.

The folder of runs is a file here: whatever is accepted after all fails when its run is created, and never trains.
"""

import io
import os
import string
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from itertools import product
from pathlib import Path
from typing import Any

import click
import pytest
import tomli_w
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.hostile_runs import loop, zeros
from tpu_console.engine.config.reading import valid_keys
from tpu_console.engine.errors import ConfigError
from tpu_console.presets.catalog import find_preset, load_preset
from tpu_console.tui.cli import cli, main

COMMANDS = sorted(cli.list_commands(click.Context(cli)))
FAILED, REFUSED = 1, 2
NOT_STARTED = "The run folder"
FRAMEWORKS = {"tensorflow", "keras", "jax"}

# A control character, a right-to-left mark, a lone surrogate as the shell passes bytes that are not UTF-8, and so on.
ODD_TEXTS = ["", " ", "\x00", "\x1b[2J", "\u202eabc", "\udcff", "a\nb", "é" * 300]
ODD_TEXTS += ["=", "-", "--", "~", "%s", "{}", "[1"]
texts = st.sampled_from(ODD_TEXTS) | st.text(max_size=12)
numbers = (
    st.integers()
    | st.sampled_from([0, -1, 2**31, 2**63, 2**64, 10**30, -(10**30)])
    | st.floats()
    | st.sampled_from([float("nan"), float("inf"), float("-inf"), -0.0, 1e308])
)
toml_texts = texts.filter(lambda text: "\udcff" not in text)  # TOML is Unicode
toml_values = st.recursive(
    st.booleans() | numbers | toml_texts | st.dates() | st.times() | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(toml_texts, inner, max_size=3),
    max_leaves=4,
)
# No argument of a program holds a null character, and "~" is a folder.
words = texts.filter(lambda text: "\0" not in text and text not in {"~", "-"})


@pytest.fixture(autouse=True)
def nothing_trains(private_home: Path) -> Iterator[None]:
    """Make the folder of runs a file, and see that no framework is imported."""
    private_home.mkdir()
    (private_home / "runs").write_text("")
    before = FRAMEWORKS & set(sys.modules)
    yield
    assert FRAMEWORKS & set(sys.modules) == before


def called(arguments: Sequence[str]) -> tuple[int, str, str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        code = main(arguments)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.detach().getvalue().decode("utf-8", "surrogateescape"))
    return code, texts[0], texts[1]


def refused(*arguments: str, may_be_accepted: bool = False) -> str:
    """Check that a command line ends with a sentence and with the right exit code; return what it said."""
    code, out, err = called(arguments)
    is_accepted = code == FAILED and NOT_STARTED in err
    assert (may_be_accepted and is_accepted) or code == REFUSED, (arguments, code, out, err)
    return is_sentence(out, err)


def is_sentence(out: str, err: str) -> str:
    assert not any("Traceback" in text or "internal error" in text for text in (out, err)), err
    assert err.strip()
    return err


def written(content: bytes | str) -> str:
    path = Path(tempfile.gettempdir()) / f"nonsense-{os.getpid()}.toml"
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return str(path)


def changed(key: str, value: object) -> dict[str, Any]:
    values: dict[str, Any] = find_preset("digits-cnn").config.model_dump(mode="json")
    *sections, last = key.split(".")
    inner = values
    for section in sections:
        inner = inner.setdefault(section, {})
    inner[last] = value
    return values


KEYS = sorted({*valid_keys(), "preset", "preset.title", "data", "optimizer", "model_options", "data.options", "hosts"})


@settings(max_examples=80)
@given(key=st.sampled_from(KEYS), value=toml_values)
@example(key="model", value=[1, "a"])
@example(key="data.options.path", value="\x00")
@example(key="dataset", value={"a": 1})
@example(key="optimizer.learning_rate", value=float("nan"))
@example(key="epochs", value=10**400)
def test_a_file_with_any_value_of_any_key_is_refused_or_read(key: str, value: object) -> None:
    refused("run", written(tomli_w.dumps(changed(key, value))), may_be_accepted=True)


@pytest.mark.parametrize("key", KEYS)
def test_no_key_takes_a_value_of_the_wrong_kind(key: str) -> None:
    for value in ([[1, "a"]], {"a": {"b": 1}}):
        if key in {"model_options", "data.options"} and isinstance(value, dict):
            continue
        path = Path(written(tomli_w.dumps(changed(key, value))))
        with pytest.raises(ConfigError):
            load_preset(path)


@settings(max_examples=60)
@given(content=st.binary(max_size=60) | st.text(string.printable, max_size=60).map(str.encode))
@example(content=b"a = " + b"[" * 20_000)
@example(content=b"epochs = " + b"9" * 10_000)
@example(content=b"\xef\xbb\xbfepochs = 1")
@example(content=b"\x00" * 100)
@example(content=b"#" * (4 << 20))
def test_a_file_of_anything_is_refused(content: bytes) -> None:
    refused("run", written(content))


OPTIONS = ["--epochs", "--batch-size", "--accelerator", "--backend", "--hosts", "--host-index", "--coordinator"]
assignments = st.builds("--set={}={}".format, st.sampled_from(KEYS) | texts, texts | toml_values.map(repr))
options = st.builds("{}={}".format, st.sampled_from(OPTIONS), texts | numbers.map(str))


@settings(max_examples=80)
@given(word=assignments | options)
@example(word=f"--set=epochs={'[' * 20_000}")
@example(word=f"--set=epochs={'9' * 10_000}")
@example(word="--set=data.path=\x00")
@example(word=f"--epochs={'9' * 5000}")
@example(word=f"--accelerator=sim:{'9' * 30}")
@example(word="--accelerator=tpu:\x00")
@example(word="--coordinator=[::")
def test_any_assignment_and_any_value_of_an_option_is_refused_or_read(word: str) -> None:
    refused("run", "digits-cnn", word, may_be_accepted=True)


def test_an_invalid_count_is_refused() -> None:
    for option, value in product(["--epochs", "--batch-size", "--hosts"], ["0", "nan", "1.5", "", "١٢x"]):
        refused("run", "digits-cnn", f"{option}={value}")


@settings(max_examples=40)
@given(command=st.sampled_from(COMMANDS), name=st.text(string.ascii_lowercase, min_size=1, max_size=8))
def test_an_unknown_option_is_refused(command: str, name: str) -> None:
    assert "No such option" in refused(command, f"--no-{name}")


@settings(max_examples=40)
@given(command=st.sampled_from(["run", "attach", "stop", "show", "inspect", "preflight", "completion"]), name=words)
@example(command="inspect", name="/" + "x" * 5000)
@example(command="run", name="/" + "x" * 5000)
@example(command="show", name="..")
def test_a_name_of_nothing_is_refused(command: str, name: str) -> None:
    code, out, err = called([command, "--", name])
    assert code in {FAILED, REFUSED}
    is_sentence(out, err)


@settings(max_examples=40)
@given(arguments=st.lists(words.filter(lambda text: text != ""), min_size=3, max_size=5))
def test_too_many_arguments_are_refused(arguments: list[str]) -> None:
    for command in ("run", "show", "inspect", "runs", "doctor", "completion"):
        refused(command, "--", *arguments)


@pytest.mark.parametrize("command", ["run", "preflight", "inspect"])
def test_a_preset_that_is_not_a_file_is_refused_in_one_sentence(command: str, tmp_path: Path) -> None:
    for make in (zeros, loop, os.mkfifo, Path.mkdir):
        path = tmp_path / f"{make.__name__}.toml"
        make(path)
        (line,) = refused(command, str(path)).splitlines()
        assert str(path) in line
        assert "cannot be read" in line
