"""Presets: their descriptions, and errors that name the file."""

import tomllib
from pathlib import Path

import pytest

from tpu_console.engine.config.catalog import DATASETS, OFFLINE_PRESETS
from tpu_console.engine.config.reading import parse_config, with_changes
from tpu_console.engine.errors import ConfigError, ConsoleError
from tpu_console.presets import catalog as presets
from tpu_console.presets import preset_files
from tpu_console.presets.catalog import About, all_presets, find_preset, load_preset, save_preset

BUILTIN = sorted(Path(presets.__file__).parent.glob("*.toml"))
GOOD = "dataset = 'digits'\nmodel = 'mlp'\nbatch_size = 8\nepochs = 1\n"


def own(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", BUILTIN, ids=lambda path: str(path.stem))
def test_every_preset_loads_and_has_a_full_description(path: Path) -> None:
    stated = tomllib.loads(path.read_text(encoding="utf-8"))["preset"]
    assert stated.keys() | {"data"} == About.model_fields.keys()
    preset = load_preset(path)
    assert all(value.strip() == value and value for value in preset.about.model_dump().values())
    assert preset.about.command == f"tpu-console run {path.stem}"
    assert preset.name == preset.config.name == path.stem
    assert preset.is_builtin


def test_presets_are_the_published_examples() -> None:
    fashion = find_preset("fashion-mnist-cnn").config
    assert (fashion.batch_size, fashion.steps_per_epoch, fashion.epochs, fashion.validation_freq) == (1000, 60, 5, 5)
    assert (fashion.model_options["filters"], fashion.loss) == ([64], "sparse_categorical_crossentropy")
    assert (fashion.optimizer.name, fashion.optimizer.learning_rate, fashion.data.pixels) == ("adam", 1e-3, "raw")
    cifar, vgg = find_preset("cifar10-cnn").config, find_preset("cifar10-vgg-augmented").config
    assert (cifar.epochs, cifar.batch_size) == (20, 32)
    assert (vgg.augmentation.rotation, vgg.augmentation.translation, vgg.augmentation.flip) == (20.0, 0.2, "horizontal")
    assert (vgg.early_stopping.patience, vgg.early_stopping.monitor, vgg.epochs) == (5, "val_loss", 200)
    plain, augmented, hub, efficientnet = (
        find_preset(f"plant-pathology-{name}").config for name in ("cnn", "augmented", "hub", "efficientnet")
    )
    assert {(one.batch_size, one.loss) for one in (plain, augmented, hub, efficientnet)} == {
        (8, "categorical_crossentropy")
    }
    assert (plain.epochs, plain.steps_per_execution, plain.augmentation.is_active) == (60, 32, False)
    assert (augmented.early_stopping.patience, augmented.augmentation.is_active) == (20, True)
    assert efficientnet.fine_tuning.after_epochs
    mlp = find_preset("mnist-mlp").config
    assert mlp.batch_size * int(mlp.steps_per_epoch) == 60_000  # every image in every epoch


def test_an_unknown_preset_suggests_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="There is no preset 'digits-cn'; did you mean 'digits-cnn'"):
        find_preset("digits-cn")


def test_presets_of_the_user_replace_those_of_the_package(private_home: Path, tmp_path: Path) -> None:
    folder = private_home / "presets"
    own(folder, "mine", GOOD + "[preset]\ntitle = 'Mine'\n")
    own(folder, "digits-cnn", GOOD)
    extra = own(tmp_path, "given", GOOD)
    assert find_preset("mine").about.title == "Mine"
    assert not find_preset("mine").is_builtin
    assert find_preset("digits-cnn").config.model == "mlp"
    assert find_preset("given", [extra]).about.title == "given"
    assert "given" not in preset_files()


def test_a_broken_preset_is_skipped_and_its_problems_reported(private_home: Path) -> None:
    path = own(private_home / "presets", "broken", GOOD + "epoch = 3\n[preset]\ntitel = 'x'\nexpected_score = 0.9\n")
    found, broken = all_presets()
    assert "broken" not in {preset.name for preset in found}
    assert len(found) == len(BUILTIN)
    (error,) = broken
    told = {problem.key: problem.message for problem in error.problems}
    assert told.keys() == {"preset.titel", "preset.title", "preset.expected_score", "epoch"}
    assert "'preset.title'" in told["preset.titel"]
    assert all(line.startswith(f"{path}: ") for line in str(error).splitlines())


def test_a_saved_preset_is_found_and_trains_the_same(private_home: Path) -> None:
    base = find_preset("digits-cnn").config
    config = with_changes(base, [("optimizer.learning_rate", 0.5), ("early_stopping.patience", 3)])
    path = save_preset(config, "mine", 'Mine, "quoted"')
    assert path == private_home / "presets" / "mine.toml"
    preset = find_preset("mine")
    assert preset.config == with_changes(config, [("name", "mine")])
    assert preset.about.title == 'Mine, "quoted"'
    assert preset.about.command.endswith(" run mine")


def test_a_preset_that_cannot_be_saved_is_refused(private_home: Path) -> None:
    config = parse_config(tomllib.loads(GOOD))
    for name in ("", "../escape", "a b", ".hidden"):
        with pytest.raises(ConfigError, match="name: "):
            save_preset(config, name, "Mine")
    assert not private_home.exists()
    save_preset(config, "mine", "Mine")
    for name in ("mnist-mlp", "mine"):
        with pytest.raises(ConsoleError, match=f"'{name}' already exists"):
            save_preset(config, name, "Another")
    assert find_preset("mine").about.title == "Mine"
    with pytest.raises(ConsoleError, match=r"other\.toml cannot be written: Not a directory"):
        save_preset(config, "other", "Mine", private_home / "presets" / "mine.toml")


def test_presets_named_where_a_download_fails_are_those_with_nothing_to_download() -> None:
    found, _ = all_presets()
    built_in = [preset for preset in found if preset.is_builtin and preset.config.dataset in DATASETS]
    assert list(OFFLINE_PRESETS) == [p.name for p in built_in if not DATASETS[p.config.dataset].files]
