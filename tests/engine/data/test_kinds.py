"""A kind of dataset is one class: what a test registers trains, and is known everywhere."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pytest

from tests.engine.jobs.predicting import Job, train
from tests.helpers import run_forked, small_config
from tpu_console.engine.code import assigned
from tpu_console.engine.config.reading import parse_config, valid_keys
from tpu_console.engine.config.values import Count, Section
from tpu_console.engine.data.data_code import DataCode, datasets
from tpu_console.engine.data.examples import Examples, Input, Signature, Task
from tpu_console.engine.data.kinds.kind import DatasetKind, FilePath, Recognized
from tpu_console.engine.data.kinds.table import KINDS
from tpu_console.engine.data.predictions import BATCH, Table, chosen, probabilities
from tpu_console.engine.data.survey.formats import config_for, first_run, guess
from tpu_console.engine.data.survey.skimming import Survey
from tpu_console.engine.errors import ConfigError, DataError
from tpu_console.engine.export.export import export_run
from tpu_console.engine.jobs.inspecting.inspect import inspect_dataset
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.messages import Reporter
from tpu_console.engine.planning.plan import make_plan
from tpu_console.engine.preflight.inputs import batch_of
from tpu_console.tui.forms.fields import OPTION_TABLES, fields_of, option_fields
from tpu_console.tui.text.inspection import Page
from tpu_console.tui.text.pictures import Depth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tpu_console.engine.code import Imports
    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.data.predictions import Request, TrainedModel

pytestmark = pytest.mark.slow


class NpzOptions(Section):
    """Options of `npz`."""

    path: Annotated[FilePath, "The file."]
    held_out: Annotated[Count, "Rows at the end that are used for validation."] = 20


class Npz(DatasetKind[NpzOptions]):
    """Rows `x` and class numbers `y` in a file of NumPy."""

    name = "npz"
    title = "arrays of NumPy"
    Options = NpzOptions
    model = "mlp"
    needs_record = False

    def recognize(self, place: Path, given: Mapping[str, Any]) -> Recognized | None:
        return Recognized({"path": str(place)}, sure=1) if place.suffix == ".npz" else None

    def survey(self, path: Path, options: NpzOptions) -> Survey:
        _, labels = _arrays(path)
        counts = np.bincount(labels)
        return Survey(
            total=len(labels) - options.held_out,
            classes={str(number): int(count) for number, count in enumerate(counts)},
            validation=options.held_out,
        )

    def signature(self, config: RunConfig, found: Survey) -> tuple[Signature, str]:
        rows, _ = _arrays(Path(self.options(config).path))
        return Signature(Task.CLASSES, {"row": Input(rows.shape[1:])}, len(found.classes)), ""

    def load(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
        import tensorflow as tf

        options = self.options(config)
        rows, labels = _arrays(Path(options.path))
        ends = len(rows) - options.held_out
        return Examples(
            train=tf.data.Dataset.from_tensor_slices((rows[:ends], labels[:ends])),
            validation=tf.data.Dataset.from_tensor_slices((rows[ends:], labels[ends:])),
            train_count=ends,
            validation_count=options.held_out,
            signature=Signature(Task.CLASSES, {"row": Input(rows.shape[1:])}, int(labels.max()) + 1),
        )

    def predict(self, trained: TrainedModel, request: Request, reporter: Reporter) -> Table:
        rows, _ = _arrays(Path(request.only()))
        model = trained.load_model()
        names = trained.classes_of(model)
        batches = (rows[start : start + BATCH] for start in range(0, len(rows), BATCH))
        outputs = trained.outputs_of(model, batches, len(rows), reporter)
        return Table(("label", "probability"), (chosen(probabilities(output), names) for output in outputs))

    def code(self, config: RunConfig, held_out: int, record: dict[str, Any], imports: Imports) -> DataCode:
        imports.add("numpy as np")
        lines = [
            assigned("FILE", self.options(config).path),
            "arrays = np.load(FILE)",
            f"x_train, x_val = arrays['x'][:-{held_out}], arrays['x'][-{held_out}:]",
            f"y_train, y_val = arrays['y'][:-{held_out}], arrays['y'][-{held_out}:]",
        ]
        return DataCode([*lines, *datasets("x", "y")], "y_train")


def _arrays(path: Path) -> tuple[Any, Any]:
    try:
        with np.load(path) as archive:
            return archive["x"], archive["y"]
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path.name} has no arrays x and y.", remedy="Save them with np.savez.") from error


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    fields_of.cache_clear()  # the fields of the form are made once
    with monkeypatch.context() as patched:
        patched.setitem(KINDS, "npz", Npz())
        yield
    fields_of.cache_clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    numbers = np.random.default_rng(1).normal(size=(120, 4)).astype("float32")
    np.savez(tmp_path / "mine.npz", x=numbers, y=(numbers.sum(axis=1) > 0).astype("int32"))
    return tmp_path / "mine.npz"


def test_a_new_kind_is_recognized_planned_and_in_the_form(file: Path) -> None:
    assert guess(str(file)) == ("npz", {"path": str(file)})
    config = config_for("npz", {"path": str(file), "held_out": 24})
    assert (config.model, valid_keys()["data.options.held_out"]) == ("mlp", 20)
    plan = make_plan(config, Hardware())
    assert (plan.train_examples, plan.unit, plan.steps_per_epoch) == (96, "example", 3)
    batch = batch_of(config)
    assert (batch.signature.shape, batch.signature.classes, batch.assumed) == ((4,), 2, "")
    (choice,) = [spec for spec in fields_of() if spec.key == "dataset"]
    assert "npz" in choice.choices
    fields = {spec.key: spec.help for spec in option_fields(OPTION_TABLES["data.options"], "npz")}
    assert "validation" in fields["data.options.held_out"]
    with pytest.raises(ConfigError, match="held_out"):
        parse_config(config.model_dump(mode="json") | {"data": {"options": {"path": str(file), "held": 1}}})


def test_a_new_kind_is_inspected_trained_predicted_and_exported(file: Path, job: Job, tmp_path: Path) -> None:
    guessed = config_for(*guess(str(file)))
    with (tmp_path / "messages").open("w") as messages:
        reporter = Reporter(messages)
        found = inspect_dataset(reporter, guessed.model_dump(mode="json"))
        assert [entry["train"] + entry["validation"] for entry in found["classes"]] == _counts(file)
        shown = "\n".join(Page(80, Depth.GREY).lines("npz", guessed.data.options, found))
        assert "npz: arrays of NumPy" in shown
        wanted = first_run(str(file)).config
        assert (wanted.name, wanted.model, wanted.batch_size) == ("mine", "mlp", 8)
        config = small_config(dataset="npz", data=wanted.data.model_dump(mode="json"), epochs=3)
        run = train(config, tmp_path)
        rows = job(run, file)
        assert len(rows) == 120
        assert {row["label"] for row in rows} <= {"0", "1"}
        script = tmp_path / "plain.py"
        export_run(reporter, str(run.path), str(script), "script")
    assert "loss:" in run_forked(script.read_text(), cwd=tmp_path)


def _counts(file: Path) -> list[int]:
    return [int(count) for count in np.bincount(np.load(file)["y"])]


def test_a_bad_file_of_a_new_kind_is_refused_with_its_sentence_everywhere(file: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.npz"
    np.savez(bad, images=np.zeros(3))
    config = config_for("npz", {"path": str(bad)})
    said = "bad.npz has no arrays x and y"
    assert any(said in finding.text for finding in make_plan(config, Hardware()).advice)
    with pytest.raises(DataError, match=said):
        batch_of(config)
    with (tmp_path / "messages").open("w") as messages:
        found = inspect_dataset(Reporter(messages), config.model_dump(mode="json"))
    assert said in found["trouble"]["what"]


def test_what_a_kind_does_not_do_is_said(file: Path, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Npz, "predict")
    monkeypatch.delattr(Npz, "code")
    run = train(small_config(dataset="npz", data={"options": {"path": str(file)}}), tmp_path)
    with pytest.raises(DataError, match="run on npz cannot be read"):
        job(run, file)
    with (tmp_path / "messages").open("w") as messages, pytest.raises(DataError, match="dataset=npz"):
        export_run(Reporter(messages), str(run.path), str(tmp_path / "plain.py"), "script")
