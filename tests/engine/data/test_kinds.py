"""A kind of dataset is one class: `npz` is known everywhere, from the form to the exported script."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.engine.jobs.predicting import Job, train
from tests.helpers import run_forked, small_config
from tpu_console.engine.code import Imports
from tpu_console.engine.config.reading import parse_config, valid_keys
from tpu_console.engine.data.kinds.kind import DatasetKind
from tpu_console.engine.data.kinds.table import KINDS
from tpu_console.engine.data.survey.formats import config_for, first_run, guess
from tpu_console.engine.errors import ConfigError, DataError
from tpu_console.engine.export.export import export_run
from tpu_console.engine.jobs.inspect import inspect_dataset
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.messages import Reporter
from tpu_console.engine.planning.plan import make_plan
from tpu_console.engine.preflight.inputs import batch_of
from tpu_console.tui.forms.fields import OPTION_TABLES, fields_of, option_fields
from tpu_console.tui.text.inspection import page

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture
def file(tmp_path: Path) -> Path:
    numbers = np.random.default_rng(1).normal(size=(120, 4)).astype("float32")
    np.savez(tmp_path / "mine.npz", x=numbers, y=(numbers.sum(axis=1) > 0).astype("int32"))
    return tmp_path / "mine.npz"


def test_a_kind_is_recognized_planned_and_in_the_form(file: Path) -> None:
    assert guess(str(file)) == ("npz", {"path": str(file)})
    config = config_for("npz", {"path": str(file), "inputs": "x", "labels": "y"})
    assert (config.model, "data.options.inputs" in valid_keys()) == ("mlp", True)
    plan = make_plan(config, Hardware())
    assert (plan.train_examples, plan.unit, plan.steps_per_epoch) == (96, "example", 3)
    batch = batch_of(config)
    assert (batch.signature.shape, batch.signature.classes, batch.assumed) == ((4,), 2, "")
    (choice,) = [spec for spec in fields_of() if spec.key == "dataset"]
    assert "npz" in choice.choices
    fields = {spec.key: spec.help for spec in option_fields(OPTION_TABLES["data.options"], "npz")}
    assert "x_train" in fields["data.options.inputs"]
    with pytest.raises(ConfigError, match="inputs"):
        parse_config(config.model_dump(mode="json") | {"data": {"options": {"path": str(file), "input": "x"}}})


def test_a_kind_is_inspected_trained_predicted_and_exported(file: Path, job: Job, tmp_path: Path) -> None:
    guessed = config_for(*guess(str(file)))
    with (tmp_path / "messages").open("w") as messages:
        reporter = Reporter(messages)
        found = inspect_dataset(reporter, guessed.model_dump(mode="json"))
        counts = [entry["train"] + entry["validation"] for entry in found["classes"]]
        assert counts == np.bincount(np.load(file)["y"]).tolist()
        shown = "\n".join(page("npz", guessed.data.options, found, 80))
        assert "npz: NumPy arrays" in shown
        wanted = first_run(str(file)).config
        assert (wanted.name, wanted.model, wanted.batch_size) == ("mine", "mlp", 8)
        config = small_config(dataset="npz", data=wanted.data.model_dump(mode="json"), epochs=1)
        run = train(config, tmp_path)
        rows = job(run, file)
        assert len(rows) == 120
        assert {row["label"] for row in rows} <= {"0", "1"}
        script = tmp_path / "plain.py"
        export_run(reporter, str(run.path), str(script), "script")
    assert "loss:" in run_forked(script.read_text(), cwd=tmp_path)


def test_a_bad_file_of_a_kind_is_refused_with_its_sentence_everywhere(file: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.npz"
    np.savez(bad, images=np.zeros(3))
    config = config_for("npz", {"path": str(bad)})
    said = "which are the inputs and the labels is unclear"
    assert any(said in finding.text for finding in make_plan(config, Hardware()).advice)
    with pytest.raises(DataError, match=said):
        batch_of(config)
    with (tmp_path / "messages").open("w") as messages:
        found = inspect_dataset(Reporter(messages), config.model_dump(mode="json"))
    assert said in found["trouble"]["what"]


def test_that_a_kind_cannot_be_exported_is_said(file: Path) -> None:
    config = config_for("npz", {"path": str(file)})
    with pytest.raises(DataError, match="dataset=npz"):
        DatasetKind.code(KINDS["npz"], config, 0, {}, Imports())
