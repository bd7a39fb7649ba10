from typing import Any

import pytest

from tests.helpers import small_config
from tpu_console.engine.errors import ConfigError
from tpu_console.engine.sweeps.axes import LR_FIND, SweptKey, cells_of, combination, parse_axes, parse_baseline


def axis(text: str) -> SweptKey:
    (found,) = parse_axes([text])
    return found


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("batch_size=32,128", "batch_size", (32, 128)),
        ("batch_size = 32, 32 ,128", "batch_size", (32, 128)),
        ("accelerator=cpu,sim:8", "accelerator", ("cpu", "sim:8")),
        ("learning_rate=1e-3,0.01", "optimizer.learning_rate", (1e-3, 0.01)),
        ("hidden=[8],[16, 16]", "model_options.hidden", ([8], [16, 16])),
        ("model_options.units=4", "model_options.units", (4,)),
        ("batch_size=8..32:4", "batch_size", (8, 16, 24, 32)),
        ("batch_size=08..032:4", "batch_size", (8, 16, 24, 32)),
        ("batch_size=1_000..2_000:2", "batch_size", (1000, 2000)),
        ("dropout=0...1.:3", "model_options.dropout", (0.0, 0.5, 1.0)),
        ("learning_rate=1e-4..1e-1:log:4", "optimizer.learning_rate", (1e-4, 1e-3, 1e-2, 1e-1)),
    ],
)
def test_values_are_toml_lists_or_ranges(text: str, key: str, values: tuple[Any, ...]) -> None:
    found = axis(text)
    assert (found.key, found.values) == (key, values)


def test_a_sweep_of_an_earlier_version_goes_through_a_key_that_is_an_option_now() -> None:
    cells = cells_of(small_config(), parse_axes(["clip_norm=0,5"]))
    assert [cell.config.optimizer.name for cell in cells if cell.config] == ["adam", "adam(clipnorm=5)"]


def test_a_range_without_a_number_of_values_is_for_a_search() -> None:
    found = axis("learning_rate=1e-4..1e-1:log")
    assert (found.values, found.low, found.high, found.is_log, found.is_whole) == ((), 1e-4, 0.1, True, False)
    assert axis("batch_size=8..64").is_whole
    with pytest.raises(ConfigError, match="a range needs --search"):
        cells_of(small_config(), [found])


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ([], "--over: is missing"),
        (["batchsize=3"], "batchsize: unknown key; did you mean 'batch_size'?"),
        (["name=a,b"], "name: unknown key"),
        (["batch_size"], "batch_size: is not KEY=VALUE,VALUE"),
        (["batch_size=3", "batch_size=4"], "batch_size is given twice"),
        (["learning_rate=0..1:log:3"], "is not a range"),
        (["seed=1..300:201"], "is not a range"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(texts: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence.replace("?", r"\?")):
        parse_axes(texts)


def test_every_combination_comes_once_before_any_is_repeated_with_another_seed() -> None:
    axes = parse_axes(["accelerator=cpu,sim:2", "batch_size=16,32"])
    cells = cells_of(small_config(seed=5), axes, 2)
    assert [cell.number for cell in cells] == [*range(1, 9)]
    assert [cell.values for cell in cells[:4]] == [("cpu", 16), ("cpu", 32), ("sim:2", 16), ("sim:2", 32)]
    assert [(cell.repeat, cell.config.seed) for cell in cells if cell.config] == [(1, 5)] * 4 + [(2, 6)] * 4
    assert combination(axes, cells[0].values) == "accelerator=cpu batch_size=16"


def test_values_that_do_not_fit_together_are_refused_and_wrong_ones_are_an_error() -> None:
    axes = parse_axes(["backend=tensorflow,jax", "accelerator=cpu,tpu:host"])
    cells = cells_of(small_config(), axes)
    assert [bool(cell.refused) for cell in cells] == [False, False, False, True]
    assert "backend" in cells[3].refused
    with pytest.raises(ConfigError, match="batch_size: "):
        cells_of(small_config(), parse_axes(["batch_size=abc,32", "epochs=1,2"]))
    with pytest.raises(ConfigError, match=r"'v5e-8'.*preflight --on"):
        cells_of(small_config(), parse_axes(["accelerator=cpu,v5e-8"]))
    with pytest.raises(ConfigError, match="300 runs"):
        cells_of(small_config(), parse_axes(["seed=1..150:150", "epochs=1,2"]))


def test_finding_a_learning_rate_tries_eleven() -> None:
    values = [cell.values[0] for cell in cells_of(small_config(), parse_axes([LR_FIND]))]
    assert (len(values), values[0], values[-1]) == (11, 1e-5, 1.0)


def test_the_baseline_names_values_of_the_sweep() -> None:
    axes = parse_axes(["accelerator=cpu,sim:2", "batch_size=16,32"])
    assert parse_baseline("", axes) == {"accelerator": "cpu"}
    assert parse_baseline("batch_size=32,accelerator=sim:2", axes) == {"batch_size": 32, "accelerator": "sim:2"}
    with pytest.raises(ConfigError, match=r"batch_size=64 is .*16,32"):
        parse_baseline("batch_size=64", axes)
    with pytest.raises(ConfigError, match="seed=1 is not in the table"):
        parse_baseline("seed=1", axes)
