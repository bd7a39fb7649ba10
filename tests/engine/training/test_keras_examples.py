"""The programs of the page on custom models, data and metrics, and a preset of KerasHub."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import pytest

from tests.engine.jobs.predicting import Job, train
from tests.helpers import ROOT, all_of, the
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.runs.events import EpochEnded, RunFinished
from tpu_console.engine.runs.run_directory import list_runs

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.slow

MINE = """
import numpy as np

random = np.random.default_rng(0)


def text(input_shape, classes):
    import keras_hub

    return keras_hub.models.TextClassifier.from_preset("bert", num_classes=2)


def films():
    labels = random.integers(0, 2, 64)
    return np.array(["bad film", "good film"])[labels], labels


def film():
    return np.array(["good film", "bad film"])
"""


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")


def test_a_preset_of_kerashub_in_a_folder_trains_on_texts_and_predicts_them(tmp_path: Path) -> None:
    keras_hub = pytest.importorskip("keras_hub")
    tokenizer = keras_hub.tokenizers.BertTokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]
    )
    backbone = keras_hub.models.BertBackbone(8, 1, 2, 8, 16, max_sequence_length=8)
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=8)
    keras_hub.models.BertTextClassifier(backbone, 2, preprocessor=preprocessor).save_to_preset(tmp_path / "bert")
    given = {"dataset": "mine.py:films", "model": "mine.py:text", "epochs": 2, "batch_size": 16}
    run = train(parse_config({**given, **SETTINGS}), tmp_path)
    assert len(all_of(run, EpochEnded)) == 2
    rows = Job(tmp_path)(run, "mine.py:film")
    assert list(rows[0]) == ["index", "label", "probability"]
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)


PAGE = (ROOT / "docs" / "own-code.md").read_text(encoding="utf-8")
FILES = sorted((ROOT / "examples" / "own-code").glob("*.py"))
PROGRAMS = {
    "mine": [re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[0] for language in ("python", "toml")],
    **{
        program.stem: [
            path.read_text(encoding="utf-8") for path in (program, program.with_suffix(".toml")) if path.exists()
        ]
        for program in FILES
    },
}
SETTINGS = {"accelerator": "cpu", "sinks": [], "checkpoint": {"monitor": "auto"}}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_of_the_page_trains(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *settings = PROGRAMS[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{name}.py").write_text(program, encoding="utf-8")
    if not settings:
        exec(compile(program, f"{name}.py", "exec"), {"__name__": "__main__"})
        (run,) = list_runs()
    else:
        run = train(parse_config({**tomllib.loads(settings[0]), **SETTINGS, "name": "own"}), tmp_path)
    assert len(all_of(run, EpochEnded)) == 2
    assert the(run, RunFinished).outcome == "completed"
    if "new_data" in program:
        rows = Job(tmp_path)(run, f"{name}.py:new_data")
        assert list(rows[0]) == ["index", "prediction"]
        assert len(rows) == 5


def test_the_page_names_every_program() -> None:
    assert [path.name for path in FILES if f"(../examples/own-code/{path.name})" not in PAGE] == []
    assert len(PROGRAMS) == 8
