"""Predicting labels of texts, translations and ratings with real runs."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from engine.errors import DataError
from tests.engine.predicting import Job, train
from tests.helpers import small_config

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("predict")


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
    (home / "new.txt").write_text("one two\n\nThree four.\tignored\n" + "two\n" * 70)
    rows = job(run, home / "new.txt")
    assert [row["source"] for row in rows][:3] == ["one two", "Three four.", "two"]
    assert len(rows) == 72
    assert {word for row in rows for word in row["translation"].split()} <= {f"x{word}" for word in words} | {"[UNK]"}
    assert job.records[-1]["done"] == 72


def test_ratings_and_the_best_items(job: Job, home: Path) -> None:
    lines = [f"{user},m{item},{5 if item % 3 else 1},{user + item}" for user in range(20) for item in range(30)]
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
    run = train(config, home)
    (home / "pairs.csv").write_text("userId,movieId\n3,m3\n3,m4\nnobody,m4\n")
    rows = job(run, home / "pairs.csv")
    assert list(rows[0]) == ["userId", "movieId", "rating"]
    assert float(rows[0]["rating"]) < 3 < float(rows[1]["rating"])
    assert "1 of 3 rows have a user" in job.notes
    (home / "users.csv").write_text("userId\n3\n4\n")
    best = job(run, home / "users.csv", force=True)
    assert [(row["userId"], row["rank"]) for row in best] == [(user, str(n)) for user in "34" for n in range(1, 11)]
    assert all(int(row["movieId"][1:]) % 3 for row in best)
    assert [float(row["rating"]) for row in best[:10]] == sorted(
        (float(row["rating"]) for row in best[:10]), reverse=True
    )
