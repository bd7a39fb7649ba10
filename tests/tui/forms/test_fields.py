import shlex
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.engine.config.options import METRICS
from tpu_console.engine.config.reading import parse_config, valid_keys
from tpu_console.engine.config.values import Section
from tpu_console.engine.data.kinds.table import KINDS
from tpu_console.engine.errors import ConfigError
from tpu_console.presets.catalog import About, Preset, all_presets, find_preset, load_preset
from tpu_console.tui.forms.field_row import ControlKind, FieldSpec, NameSuggester, field_of
from tpu_console.tui.forms.fields import GROUPS, OPTION_TABLES, Draft, fields_of, option_fields
from tpu_console.tui.text.names import to_text


def spec_of(draft: Draft, key: str) -> FieldSpec:
    return next(spec for spec in draft.fields() if spec.key == key)


def enter(draft: Draft, *texts: str) -> None:
    """Type texts into fields, each written ``key=text``."""
    for key, _, text in (text.partition("=") for text in texts):
        draft.set(spec_of(draft, key), text)


def problems_of(draft: Draft) -> dict[str, str]:
    """The messages about a draft that is refused, by the keys of their fields."""
    with pytest.raises(ConfigError) as caught:
        draft.config()
    found = [(field_of(problem, draft.fields()), problem.message) for problem in caught.value.problems]
    return {spec.key: message for spec, message in found if spec is not None}


@pytest.fixture
def digits() -> Draft:
    return Draft(find_preset("digits-cnn"))


def test_every_key_of_the_configuration_has_a_field_with_a_group_and_a_help() -> None:
    options = [
        spec for table in OPTION_TABLES.values() for name in table.sections() for spec in option_fields(table, name)
    ]
    specs = [*fields_of(), *options]
    assert {spec.key for spec in specs} == valid_keys().keys() - OPTION_TABLES.keys()
    assert all(spec.help and spec.group in GROUPS for spec in specs)


def test_a_new_key_appears_by_itself() -> None:
    class Grown(Section):
        sound: Annotated[Literal["beep", "bell"], "What it `plays`."] = "beep"
        loud: Annotated[bool, "Whether it is heard."] = True

    sound, loud = fields_of(Grown)
    assert (sound.kind, sound.choices, sound.help) == (ControlKind.CHOICE, ("beep", "bell"), "What it plays.")
    assert (loud.kind, loud.default, loud.label) == (ControlKind.SWITCH, "true", "Loud")


@pytest.mark.parametrize("preset", all_presets()[0], ids=lambda preset: preset.name)
def test_an_untouched_draft_is_the_preset(preset: Preset) -> None:
    draft = Draft(preset)
    assert draft.config() == preset.config
    assert not draft.is_edited


@given(
    batch=st.integers(1, 10**6),
    rate=st.floats(1e-12, 1e6),
    filters=st.lists(st.integers(1, 4096), min_size=1, max_size=6),
    cache=st.sampled_from(["auto", "memory", "disk", "off"]),
)
def test_what_is_typed_is_what_the_configuration_holds(batch: int, rate: float, filters: list[int], cache: str) -> None:
    draft = Draft(find_preset("digits-cnn"))
    enter(draft, f"batch_size={to_text(batch)}", f"optimizer.learning_rate={to_text(rate)}")
    enter(draft, f"model_options.filters={to_text(filters)}", f"data.cache={cache}")
    config = draft.config()
    assert (config.batch_size, config.optimizer.learning_rate) == (batch, rate)
    assert (config.model_options["filters"], config.data.cache) == (filters, cache)


@pytest.mark.parametrize("text", ["", "abc", "0", "-3", "2.5", "1,000", "٣", "1e3", "inf", "nan", "0x10"])
def test_a_wrong_batch_size_is_a_problem_of_that_field(digits: Draft, text: str) -> None:
    enter(digits, f"batch_size={text}")
    assert problems_of(digits).keys() == {"batch_size"}
    assert digits.text(spec_of(digits, "batch_size")) == text


def test_all_problems_come_together(digits: Draft) -> None:
    enter(digits, "epochs=many", "model_options.filters=32, no", "metrics=acuracy")
    found = problems_of(digits)
    assert found.keys() == {"epochs", "model_options.filters", "metrics"}
    assert "mean 'accuracy'?" in found["metrics"]


def test_an_empty_text_means_the_default(digits: Draft) -> None:
    enter(digits, "seed= ", "data.validation_fraction= ", "model_options.filters= ", "early_stopping.monitor= ")
    config = digits.config()
    assert (config.seed, config.data.validation_fraction, config.early_stopping.monitor) == (0, 0.2, "val_loss")
    assert "filters" not in config.model_options


def test_options_of_a_model_outlive_a_look_at_another(digits: Draft) -> None:
    enter(digits, "model_options.filters=8, 16", "model=mlp")
    assert "model_options.filters" not in {spec.key for spec in digits.fields()}
    enter(digits, "model_options.hidden=300")
    assert digits.config().model_options == {"hidden": [300]}
    enter(digits, "model=cnn")
    assert digits.config().model_options["filters"] == [8, 16]


def test_a_custom_model_takes_any_keyword_arguments(digits: Draft) -> None:
    enter(digits, "model=mine.py:build", 'model_options=units=64, wide=true, kind=deep, name="a, b"')
    with pytest.raises(ConfigError) as caught:
        digits.config()
    assert caught.value.problems[0].key == "model_options"
    enter(digits, "model_options=units=64, wide=true, kind=deep")
    assert digits.config().model_options == {"units": 64, "wide": True, "kind": "deep"}


@pytest.mark.parametrize("name", KINDS)
def test_the_path_of_a_file_dataset_is_an_essential_field(digits: Draft, name: str) -> None:
    enter(digits, f"dataset={name}")
    source = KINDS[name].source
    key = f"data.options.{source}"
    assert [spec.key for spec in digits.fields() if spec.is_essential][:2] == ["dataset", key]
    assert problems_of(digits).keys() == {key}
    enter(digits, f"{key}=somewhere")
    assert digits.config().data.options == {source: "somewhere"}


def test_options_of_a_dataset_outlive_a_look_at_another(digits: Draft) -> None:
    enter(digits, "dataset=image-csv", "data.options.path=train.csv", "data.options.label=2020, healthy")
    enter(digits, "data.options.image_size=64, 96", "dataset=image-folder")
    assert digits.text(spec_of(digits, "data.options.path")) == ""
    enter(digits, "data.options.path=photos", "data.options.image_size=")  # the default
    assert digits.config().data.options == {"path": "photos"}
    enter(digits, "dataset=image-csv")
    expected = {"path": "train.csv", "label": ["2020", "healthy"], "image_size": [64, 96]}
    assert digits.config().data.options == expected


def test_a_preset_on_files_is_untouched_at_first() -> None:
    options = {"path": "photos", "image_size": [64, 64], "skip_bad": True}
    values = {"dataset": "image-folder", "model": "cnn", "batch_size": 8, "epochs": 1, "data": {"options": options}}
    draft = Draft(Preset("photos", About(title="Photos"), parse_config(values), Path("photos.toml")))
    assert not draft.is_edited
    assert draft.config() == parse_config(values)
    enter(draft, "data.options.skip_bad=false")
    assert draft.config().data.options == options | {"skip_bad": False}


def test_losses_weights_and_metrics_of_outputs_are_typed_as_text(digits: Draft) -> None:
    enter(
        digits, "model=mine.py:build", "loss=price=mae, team=sparse_categorical_crossentropy", "loss_weights=team=0.2"
    )
    enter(digits, "metrics=team=accuracy, price=mse", "checkpoint.monitor=auto")
    config = digits.config()
    assert config.losses == {"price": "mean_absolute_error", "team": "sparse_categorical_crossentropy"}
    assert config.loss_weights == {"team": 0.2}
    assert config.metrics[1].endswith("=mean_squared_error")
    assert to_text(config.loss_weights) == "team=0.2"


def test_the_accelerator_is_chosen_or_simulated_or_an_address(digits: Draft) -> None:
    spec = spec_of(digits, "accelerator")
    assert spec.choices == ("auto", "cpu", "gpu", "tpu")
    assert spec.own is not None
    for text, value in (("8", "sim:8"), ("sim:8", "sim:8"), ("tpu:10.0.0.2:8470", "tpu:10.0.0.2:8470")):
        assert spec.own.value(text) == value


async def test_the_last_of_several_names_is_completed() -> None:
    suggester = NameSuggester(tuple(METRICS))
    assert await suggester.get_suggestion("accuracy, f1_") == "accuracy, f1_score"
    assert await suggester.get_suggestion("prec") == "precision"
    for complete in ("", "accuracy", "accuracy, ", "auc(curve=PR), zzz"):
        assert await suggester.get_suggestion(complete) is None


def test_a_preset_file_from_the_command_line_is_in_the_command(tmp_path: Path) -> None:
    path = tmp_path / "extra one.toml"
    path.write_text('dataset = "digits"\nmodel = "mlp"\nbatch_size = 8\nepochs = 1\nname = "extra"\n')
    draft = Draft(load_preset(path))
    assert shlex.split(draft.command(draft.config()))[2:] == ["extra one", "--preset-file", str(path)]
