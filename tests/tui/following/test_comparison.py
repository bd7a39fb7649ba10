"""Which run is best, what differs, and how that is written."""

import csv
import math

import pytest

from tests.helpers import replace
from tests.hostile_runs import HOSTILE, UNSAFE
from tests.tui.made_runs import made_run
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs.events import DataReady, Steered
from tpu_console.engine.runs.journal import encode
from tpu_console.engine.runs.run_directory import create_run
from tpu_console.tui.following import comparison as compared
from tpu_console.tui.following.comparison import read_comparison


def best_of(comparison: compared.Comparison) -> str | None:
    return comparison.best.mark if comparison.best is not None else None


def test_the_best_run_is_that_with_the_highest_score_or_the_lowest_loss() -> None:
    runs = [made_run([{"loss": 0.3, "val_accuracy": 0.7}]), made_run([{"loss": 0.4, "val_accuracy": 0.8}])]
    assert best_of(read_comparison(runs, "val_accuracy")) == "B"
    assert best_of(read_comparison(runs, "loss")) == "A"
    equal = [made_run([{"val_loss": 0.3, "val_accuracy": 0.7}]), made_run([{"val_loss": 0.2, "val_accuracy": 0.7}])]
    assert best_of(read_comparison(equal, "val_accuracy")) == "B"


@pytest.mark.parametrize(
    ("right", "chance"),
    [
        ((356, 357), "often gives such a difference (p = 0.704)."),
        ((341, 351), "often gives such a difference (p = 0.054)."),
        ((340, 351), "rarely gives such a difference (p = 0.037)."),
        ((330, 357), "rarely gives such a difference (p < 0.001)."),
    ],
)
def test_a_sentence_says_which_run_is_better_and_whether_chance_would_do(right: tuple[int, int], chance: str) -> None:
    found = read_comparison([made_run([{"val_accuracy": count / 360}]) for count in right])
    assert "Chance" not in found.verdict, "the number of validation examples is unknown"
    data = DataReady(1437, 360, (8, 8, 1), 10)
    seen = [replace(run.overview, state=replace(run.state, data=data)) for run in found.runs]
    runs = tuple(replace(run, overview=one) for run, one in zip(found.runs, seen, strict=True))
    verdict = replace(found, runs=runs).verdict
    assert f"{right[1] / 360:.4g} against {right[0] / 360:.4g}" in verdict
    assert verdict.endswith(f" Chance alone {chance}")


def test_a_run_on_other_data_is_not_called_better_without_saying_so() -> None:
    def verdict_of(*paths: str) -> str:
        runs = []
        for score, path in zip((0.5, 0.9), paths, strict=True):
            options = {"options": {"path": path, "label": "kind"}}
            runs.append(made_run([{"val_accuracy": score}], dataset="table-csv", data=options))
        return read_comparison(runs).verdict

    assert "Their data differ" in verdict_of("/here/irises.csv", "/here/wines.csv")
    assert "Their data differ" not in verdict_of("/here/irises.csv", "/there/irises.csv")
    others = [made_run(), made_run([{"val_accuracy": 0.8}], dataset="mnist")]
    assert "Their data differ" in read_comparison(others).verdict


def test_equal_runs_and_losses_have_a_sentence_too() -> None:
    equal = [made_run([{"val_accuracy": 0.5}])] * 2
    assert read_comparison(equal).verdict.endswith("best val_accuracy, 0.5.")
    losses = [made_run([{"val_loss": 0.2}], monitor="val_loss"), made_run([{"val_loss": 0.1}], monitor="val_loss")]
    assert "val_loss 0.1 against 0.2" in read_comparison(losses).verdict
    assert read_comparison(losses[:1]).verdict == ""


def test_runs_are_called_by_what_differs() -> None:
    runs = [made_run(), made_run(batch_size=64)]
    found = read_comparison(runs)
    assert [found.label_of(run) for run in found.runs] == ["batch_size 16", "batch_size 64"]
    lists = read_comparison([made_run(metrics=["accuracy", "auc"]), made_run()])
    assert [lists.label_of(run) for run in lists.runs] == ["metrics accuracy, auc", "metrics accuracy"]
    alike = read_comparison([made_run(), made_run()])
    assert [alike.label_of(run) for run in alike.runs] == [run.name for run in alike.runs]


def test_a_score_names_the_best_epoch_and_the_final_value_and_times_keep_the_first_epoch_apart() -> None:
    logs = [{"val_loss": 0.9}, {"val_loss": 0.2}, {"val_loss": math.nan}]
    stopped = [{"val_loss": 0.9}, {"loss": 0.2}]  # before it was validated
    one, two, three = read_comparison(
        [made_run(logs), made_run(stopped), made_run([{"loss": 1.0}] * 2, replicas=2, speed=500.0)]
    ).runs
    score = one.score("val_loss")
    assert (score.best, score.epoch, math.isnan(score.final or 0.0)) == (0.2, 2, True)
    assert (one.score("val_auc"), two.score("val_loss").final) == (compared.Score(), 0.9)
    facts = three.overview.facts
    assert (three.first_epoch_s, three.later_epoch_s, facts.examples_per_s) == (5.0, 2.0, 500.0)
    assert (facts.accelerator, facts.replicas) == ("sim:2", 2)


def test_only_settings_that_differ_are_listed() -> None:
    runs = [made_run(), made_run(batch_size=64), made_run(epochs=3), made_run(has_config=False)]
    comparison = read_comparison(runs)
    first = comparison.runs[0].settings
    assert comparison.differences == {
        "batch_size": [first["batch_size"], 64, first["batch_size"], None],
        "epochs": [first["epochs"], first["epochs"], 3, None],
    }
    assert any("configuration" in note and note.endswith(" D.") for note in compared.notes_of(comparison))


def test_what_was_changed_while_a_run_trained_is_among_the_differences_and_no_secret() -> None:
    runs = [made_run(), made_run()]
    assert read_comparison(runs).differences == {}
    for before, after, refused in ((0.01, 0.001, ""), (None, None, "it follows a schedule")):
        with runs[1].journal.open("ab") as journal:
            event = Steered("learning_rate", "asked", 1, 5, 1.0, before, after, refused)
            journal.write(encode(event, 1_800_000_000.0))
    comparison = read_comparison(runs)
    assert comparison.differences == {compared.STEERED: [None, "learning rate 0.01 → 0.001"]}
    assert any("learning rate 0.01 → 0.001" in line for line in compared.difference_lines(comparison, None))
    runs = [made_run(), made_run(alerts={"webhook": "https://hooks.example.com/T123/secret"})]
    assert "secret" not in compared.as_json(read_comparison(runs))


def test_runs_are_compared_by_a_metric_that_all_have() -> None:
    both = {"loss": 1.0, "val_loss": 1.0}
    for logs, monitors, metric in (
        ([{"loss": 1.0, "val_auc": 0.5}, {"loss": 1.0, "val_auc": 0.6}], ["val_auc", "val_auc"], "val_auc"),
        ([both, {**both, "val_auc": 0.5}], ["", "val_auc"], "val_loss"),
        ([{"loss": 1.0}, {"loss": 1.0, "val_auc": 0.5}], ["loss", "val_auc"], "loss"),
        ([{"rmse": 1.0}, {"val_auc": 0.5}], ["rmse", "val_auc"], ""),
    ):
        runs = [made_run([one], monitor=monitor) for one, monitor in zip(logs, monitors, strict=True)]
        comparison = read_comparison(runs)
        assert comparison.metric == metric
        assert (best_of(comparison) is None) == (metric == "")


def test_metrics_that_only_some_have_are_named() -> None:
    runs = [made_run([{"loss": 1.0}]), made_run([{"loss": 2.0, "val_auc": 0.5}])]
    assert any("val_auc: only B" in line for line in compared.as_text(read_comparison(runs), None))
    with pytest.raises(ConsoleError, match="None of these runs has a metric 'auc'"):
        read_comparison(runs, "auc")


def test_a_crashed_a_damaged_and_an_unreadable_run_take_part() -> None:
    crashed, empty, pipe = made_run(end=None), create_run("empty"), create_run("folder")
    empty.journal.write_bytes(b"\x00garbage\n")
    pipe.journal.mkdir()
    comparison = read_comparison([crashed, empty, pipe, made_run()])
    states = [run.overview.status.value for run in comparison.runs]
    assert states == ["crashed", "not started", "unreadable", "finished"]
    assert comparison.metric == "val_accuracy"
    lines = compared.as_text(comparison, None)
    assert [line.endswith("★") for line in lines[1:5]] == [True, False, False, False]
    assert any("cannot be read" in line for line in lines)


def test_a_table_that_is_too_wide_for_the_differences_groups_the_runs_by_value() -> None:
    runs = [made_run(batch_size=32 * (1 + n % 2), epochs=10_000 + n // 19) for n in range(compared.MOST_RUNS + 1)]
    assert len(compared.similar_runs(runs[0])) == compared.MOST_RUNS
    comparison = read_comparison(runs)
    assert compared.difference_lines(comparison, None)[0].split() == ["setting", *"ABCDEFGHIJKLMNOPQRST"]
    lines = compared.difference_lines(comparison, 80)
    assert lines[0].split() == ["batch_size", "32:", *"ACEGIKMOQS"]
    assert lines[3].split() == ["10001:", "T"]
    assert all(len(line) <= 80 for line in lines)


def test_text_fits_its_width_and_keeps_the_end_of_names() -> None:
    runs = [made_run(label="digits-cnn-with-a-long-name-1"), made_run(label="digits-cnn-with-a-long-name-2")]
    for width in (40, 80, 120, 200):
        lines = compared.as_text(read_comparison(runs), width)
        assert all(len(line) <= width for line in lines)
        assert width == 40 or any("long-name-2" in line for line in lines)


def test_hostile_text_is_harmless_in_every_form() -> None:
    run = made_run([{f"val_{HOSTILE}": 0.5, "=1+1|`<img>": 1.0}], has_config=False)
    comparison = read_comparison([run, made_run([{"=1+1|`<img>": 0.5}], model_options={"note": "=cmd|' /C calc'!A0"})])
    forms = ["\n".join(compared.as_text(comparison, None)), compared.as_json(comparison), compared.as_csv(comparison)]
    markdown = "\n".join(compared.as_markdown(comparison))
    assert not any(UNSAFE & {*form} for form in [*forms, markdown])
    assert "<img>" not in markdown
    cells = [cell for row in csv.reader(compared.as_csv(comparison).splitlines()) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]


def test_similar_runs_are_those_of_the_same_preset_newest_first() -> None:
    runs = [made_run(label=label) for label in ("one", "two", "one", "one")]
    assert compared.similar_runs(runs[2]) == [runs[2], runs[3], runs[0]]
