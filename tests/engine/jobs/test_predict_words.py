"""Predicting labels of texts, translations and ratings with real runs."""

from __future__ import annotations

import gzip
import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.engine.jobs.predicting import Job, train
from tests.helpers import small_config
from tpu_console.engine.errors import DataError
from tpu_console.engine.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def test_labels_of_texts(job: Job, home: Path) -> None:
    lines = [
        f"{'a fine and good film' if n % 2 else 'a dull and bad film'} {n},{'pos' if n % 2 else 'neg'}"
        for n in range(200)
    ]
    (home / "reviews.csv").write_text("text,label\n" + "\n".join(lines) + "\n")
    options = {"path": str(home / "reviews.csv"), "length": 8, "vocabulary": 50}
    small = {"filters": [8], "width": 8, "hidden": 8, "kernel_size": 3}
    run = train(
        small_config(
            dataset="text-csv",
            model="text",
            model_options=small,
            data={"options": options},
            epochs=15,
            optimizer={"learning_rate": 0.02},
        ),
        home,
    )
    new = home / "new.csv"
    new.write_text("review_id,text,label\n7,a fine <b>and good</b> film,\n8,A DULL and bad film!,\n")
    rows = job(run, new)
    assert [(row["review_id"], row["label"]) for row in rows] == [("7", "pos"), ("8", "neg")]
    new.write_text("text\na fine and good film\n")
    assert [(row["row"], row["label"]) for row in job(run, new, force=True)] == [("1", "pos")]
    new.write_text("words\ngood fine\n")
    with pytest.raises(DataError, match="no column 'text'"):
        job(run, new, force=True)


def test_translations(job: Job, home: Path) -> None:
    words = ["one", "two", "three", "four"]
    pairs = [f"{a} {b}.\tx{a} x{b}\tattribution" for a in words for b in words] * 4
    with gzip.open(home / "pairs.txt.gz", "wt") as file:
        file.write("\n".join(pairs))
    config = small_config(
        dataset="text-pairs",
        model="transformer",
        model_options={"width": 16, "heads": 2, "layers": 1, "hidden": 16},
        data={"options": {"path": str(home / "pairs.txt.gz"), "length": 4, "vocabulary": 20}},
        batch_size=16,
        loss="sparse_categorical_crossentropy",
    )
    run = train(config, home)
    (home / "new.txt").write_text("one two\n\nThree four.\tignored\n" + "two\n" * 70 + "\n")
    rows = job(run, home / "new.txt")
    assert [row["source"] for row in rows][:3] == ["one two", "", "Three four."]  # an empty line keeps its place
    assert rows[1]["translation"] == ""
    assert len(rows) == 74  # the last line is empty, too
    assert {word for row in rows for word in row["translation"].split()} <= {f"x{word}" for word in words} | {"[UNK]"}
    assert job.records[-1]["done"] == 74


@pytest.fixture(scope="module")
def films(home: Path) -> RunDirectory:
    """Ratings of 60 films by 20 users: three quarters of them, another quarter left out by each; every third is bad."""
    rated = [(user, item) for user in range(20) for item in range(60) if (user + item) % 4]
    lines = [f"{user},m{item},{5 if item % 3 else 1},{user + item}" for user, item in rated]
    (home / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "\n".join(lines) + "\n")
    config = small_config(
        dataset="ratings-csv",
        model="recommender",
        model_options={"width": 4},
        data={"options": {"path": str(home / "ratings.csv")}},
        loss="mean_squared_error",
        metrics=["root_mean_squared_error"],
        epochs=30,
        optimizer={"learning_rate": 0.03},
    )
    return train(config, home)


def test_ratings_of_pairs(job: Job, films: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("userId,movieId\n3,m3\n3,m4\nnobody,m4\n")
    rows = job(films, tmp_path / "pairs.csv")
    assert list(rows[0]) == ["userId", "movieId", "rating"]
    assert float(rows[0]["rating"]) < 3 < float(rows[1]["rating"])
    assert "1 of 3 rows have a user" in job.notes


def test_the_best_items_are_those_that_a_user_has_not_rated(job: Job, films: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("userId\n3\n4\n3\n")
    rows = job(films, tmp_path / "users.csv")
    listed = [(row["userId"], row["rank"]) for row in rows]
    assert listed == [(user, str(rank)) for user in "343" for rank in range(1, 11)]
    for row in rows:
        user, film = int(row["userId"]), int(row["movieId"][1:])
        assert (user + film) % 4 == 0, "rated by this user, for training or validation"
        assert film % 3, "good"
    ratings = [float(row["rating"]) for row in rows]
    assert ratings[:10] == sorted(ratings[:10], reverse=True) == ratings[20:]


def test_a_user_without_known_ratings_gets_the_best_items_of_all(job: Job, films: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("userId\nnobody\n3\n")
    (tmp_path / "moved").mkdir()
    run = RunDirectory(shutil.copytree(films.path, tmp_path / "moved" / films.run_id))
    record = json.loads(run.inputs.read_text())
    known = job(run, tmp_path / "users.csv")
    assert {(3 + int(row["movieId"][1:])) % 4 for row in known[:10]} != {0}
    run.inputs.write_text(json.dumps({key: value for key, value in record.items() if key != "rated"}))
    unknown = job(run, tmp_path / "users.csv", force=True)
    assert unknown[:10] == known[:10]
    assert unknown[10:] != known[10:]
    assert "no record of what its users rated" in job.notes
    for broken in ("eJxjYGBgAAAABAAB", "what?", 3, ""):
        run.inputs.write_text(json.dumps(record | {"rated": broken}))
        with pytest.raises(DataError, match=r"inputs\.json is damaged"):
            job(run, tmp_path / "users.csv", force=True)


def test_a_user_who_has_rated_nearly_everything_gets_fewer(job: Job, home: Path, tmp_path: Path) -> None:
    lines = [f"{user},m{item},{item % 5}" for user in range(9) for item in range(12) if user or item < 10]
    (home / "all.csv").write_text("userId,movieId,rating\n" + "\n".join(lines) + "\n")
    config = small_config(
        dataset="ratings-csv",
        model="recommender",
        model_options={"width": 2},
        data={"options": {"path": str(home / "all.csv")}},
        loss="mean_squared_error",
        metrics=["root_mean_squared_error"],
    )
    (tmp_path / "users.csv").write_text("userId\n5\n0\n")
    rows = job(train(config, home), tmp_path / "users.csv")
    assert {(row["userId"], row["movieId"]) for row in rows} == {("0", "m10"), ("0", "m11")}
