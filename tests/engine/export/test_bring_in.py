"""What other tools recorded becomes runs: complete, once, and safely."""

import io
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.helpers import all_of
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.export.bring_in import import_runs
from tpu_console.engine.messages import Reporter
from tpu_console.engine.runs.events import EpochEnded
from tpu_console.engine.runs.follower import RunFollower, StateReader
from tpu_console.engine.runs.heartbeat import Liveness
from tpu_console.engine.runs.run_directory import find_run, list_runs
from tpu_console.engine.runs.state import RunState

LOSSES = [0.9, 0.5, 0.25]


def bring_in(*places: Path) -> dict[str, Any]:
    return import_runs(Reporter(io.StringIO()), [str(place) for place in places])


def state_of(result: dict[str, Any]) -> RunState:
    (run,) = result["runs"]
    assert result["errors"] == []
    return StateReader(find_run(run["run"])).catch_up()


def write_csv(path: Path) -> Path:
    logger = keras.callbacks.CSVLogger(str(path))
    logger.set_model(keras.Sequential())
    logger.on_train_begin()
    for epoch, loss in enumerate(LOSSES):
        logger.on_epoch_end(epoch, {"accuracy": 1 - loss, "loss": loss, "val_loss": loss + 0.1, "learning_rate": 0.01})
    logger.on_train_end()
    return path


def write_events(folder: Path, tag: str = "epoch_loss") -> Path:
    for part, more in (("train", 0.0), ("validation", 0.1)):
        with tf.summary.create_file_writer(str(folder / part)).as_default():
            for epoch, loss in enumerate(LOSSES):
                tf.summary.scalar(tag, loss + more, step=epoch)
                tf.summary.text("note", "hello", step=epoch)
    return folder


def test_a_link_in_a_folder_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "log.csv").symlink_to(write_csv(tmp_path / "private.csv"))
    with pytest.raises(ConsoleError, match="nothing to import"):
        bring_in(tmp_path / "logs")
    assert state_of(bring_in(tmp_path / "logs" / "log.csv")).epochs, "the user names this one"


def test_a_log_of_keras_becomes_a_finished_run(tmp_path: Path) -> None:
    result = bring_in(write_csv(tmp_path / "old-training.csv"))
    state = state_of(result)
    assert [epoch.logs["val_loss"] for epoch in state.epochs] == pytest.approx([1.0, 0.6, 0.35])
    assert [epoch.learning_rate for epoch in state.epochs] == [0.01] * 3
    assert state.started is not None
    assert (state.started.label, state.started.source) == ("old-training", "imported")
    snapshot = RunFollower(find_run(result["runs"][0]["run"])).catch_up()
    assert snapshot.is_over
    assert snapshot.liveness is not Liveness.ALIVE
    assert "old-training.csv" in state.notices[0]
    assert state.monitor == "val_loss"


def test_the_event_files_of_training_and_validation_become_one_run(tmp_path: Path) -> None:
    state = state_of(bring_in(write_events(tmp_path / "logs")))
    assert [epoch.logs["loss"] for epoch in state.epochs] == pytest.approx(LOSSES)
    assert [epoch.logs["val_loss"] for epoch in state.epochs] == pytest.approx([1.0, 0.6, 0.35])
    assert list(state.train.metrics["loss"].values) == pytest.approx(LOSSES)
    assert state.started is not None
    assert state.started.label == "logs"


def test_scalars_without_epochs_become_curves_over_steps(tmp_path: Path) -> None:
    result = bring_in(write_events(tmp_path / "torch", "Loss"))
    state = state_of(result)
    assert set(state.train.metrics) == {"Loss", "val_Loss"}
    (epoch,) = all_of(find_run(result["runs"][0]["run"]), EpochEnded)
    assert epoch.logs == pytest.approx({"Loss": 0.25, "val_Loss": 0.35})


def test_the_same_content_is_imported_once(tmp_path: Path) -> None:
    log = write_csv(tmp_path / "a.csv")
    first = bring_in(log)
    again = bring_in(tmp_path)
    assert again["runs"] == [{**first["runs"][0], "is_known": True}]
    assert len(list_runs()) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("loss\n1\n", "line 1: the header"),
        ("epoch,loss\n0,1\n1\n", "line 3: it has 1 values instead of 2"),
        ("epoch,loss\n0,1\n0,2\n", "line 3: the epoch"),
        ("epoch,loss\n1e400,1\n", "line 2: the epoch"),
        ("epoch,loss\n", "it holds no metrics"),
        ("epoch,\x1b]0;x\x07\n0,x\n", "it holds no metrics"),
        (f"epoch,loss\n0,1\n1,{'1' * 140_000}\n", "line 3: field larger"),
        (f"epoch,{'x' * 140_000}\n", "line 1: field larger"),
    ],
)
def test_a_broken_log_is_one_sentence_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "broken.csv").write_text(text)
    result = bring_in(tmp_path / "broken.csv")
    assert result["runs"] == []
    assert problem in result["errors"][0]
    assert "broken.csv" in result["errors"][0]
    assert list_runs() == []
    (tmp_path / "zz.csv").write_text("epoch,loss\n0,1\n")
    assert [run["source"] for run in bring_in(tmp_path)["runs"]] == [str(tmp_path / "zz.csv")]


def test_a_huge_log_is_refused_without_reading_all_of_it(tmp_path: Path) -> None:
    with (tmp_path / "log.csv").open("wb") as file:
        file.write(b"epoch,")
        file.truncate(1 << 40)
    assert "too large" in bring_in(tmp_path / "log.csv")["errors"][0]


def test_a_broken_event_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1").write_bytes(b"nothing of the kind" * 10)
    (error,) = bring_in(tmp_path)["errors"]
    assert "tfevents.1: it holds no event" in error


def test_names_from_a_file_are_safe_to_show(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m.csv").write_text("epoch,lo\x1bss,\u202ex\n0,1,2\n")
    state = state_of(bring_in(tmp_path / "a\x1b[31m.csv"))
    assert all(name.isprintable() for name in state.epochs[0].logs)
    assert state.started is not None
    assert state.started.label.isprintable()
    assert all(text.isprintable() for text in state.notices)


def test_a_place_without_logs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("name,size\na,1\n")
    with pytest.raises(ConsoleError, match="nothing to import"):
        bring_in(tmp_path)
    with pytest.raises(ConsoleError, match="File name too long"):
        bring_in(tmp_path / f"{'x' * 400}.csv")
