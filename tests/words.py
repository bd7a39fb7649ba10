"""Made-up files of texts and ratings, in the formats that users have, with a pattern to learn."""

import csv
import gzip
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.config.run_config import RunConfig

_SUBJECTS = {"I": "yo", "you": "tú", "the dog": "el perro", "the woman": "la mujer", "my brother": "mi hermano"}
_VERBS = {"see": "mira", "eat": "come", "buy": "compra", "find": "encuentra", "love": "ama", "draw": "dibuja"}
_ADJECTIVES = {"red": "rojo", "big": "grande", "old": "viejo", "cheap": "barato", "strange": "extraño"}
_NOUNS = {"apple": "manzana", "house": "casa", "book": "libro", "car": "coche", "bread": "pan", "tree": "árbol"}
_CREDIT = "CC-BY 2.0 (France) Attribution: tatoeba.org #{} (CK) & #{} (Leono)"

_GOOD = ("wonderful", "moving", "brilliant", "superb", "delightful", "gripping")
_BAD = ("dreadful", "boring", "clumsy", "awful", "tedious", "wooden")
_FILLER = re.findall(
    r"\w+",
    "the film was about a man who went to the sea with his friend and it has an ending that i did not see coming "
    "while music and light of that night made their story seem real",
)


MODELS = {"text-pairs": "transformer", "text-csv": "text", "ratings-csv": "recommender"}
"""The kinds of the files that are written here, and what trains on them."""


def config(dataset: str, path: Path | str, options: dict[str, Any] | None = None, **changes: Any) -> RunConfig:
    values: dict[str, Any] = {"model": MODELS[dataset], "batch_size": 4, "epochs": 1, "accelerator": "cpu"}
    if dataset == "ratings-csv":
        values |= {"loss": "mean_squared_error", "metrics": ["root_mean_squared_error"]}
    data = {"options": {"path": str(path), **(options or {})}}
    return parse_config(values | {"dataset": dataset, "data": data} | changes)


def pairs(count: int, *, seed: int = 0) -> list[tuple[str, str]]:
    """At most 1,800 different sentences and their translations: word by word, with the adjective behind the noun."""
    made = []
    for subject, verb, adjective, noun in product(_SUBJECTS, _VERBS, _ADJECTIVES, _NOUNS):
        said = f"{subject} {verb} the {adjective} {noun}"
        translated = f"{_SUBJECTS[subject]} {_VERBS[verb]} un {_NOUNS[noun]} {_ADJECTIVES[adjective]}".capitalize()
        made += [(f"{said.capitalize()}.", f"{translated}."), (f"Did {said}?", f"¿Acaso {translated.lower()}?")]
    order = np.random.default_rng(seed).permutation(len(made))[:count]
    return [made[index] for index in order]


def write_pairs(path: Path, count: int, *, seed: int = 0) -> Path:
    """Write a file such as Anki's: source, target and attribution separated by tabs, gzipped if its name ends so."""
    lines = ["\t".join([*pair, _CREDIT.format(n, n + 1)]) for n, pair in enumerate(pairs(count, seed=seed))]
    content = ("\n".join(lines) + "\n").encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def review(random: np.random.Generator, *, is_good: bool) -> str:
    """A film review with the marks, tags and quotes that real ones have."""
    words = [str(word) for word in random.choice(_FILLER, int(random.integers(20, 60)))]
    for place in random.integers(0, len(words), 3):
        words[place] = str(random.choice(_GOOD if is_good else _BAD))
    middle = len(words) // 2
    opening, rest = " ".join(words[:middle]), " ".join(words[middle:])
    return f'{opening.capitalize()}, "{rest}".<br /><br />It wasn\'t 10/10!'


def write_reviews(path: Path, count: int, *, seed: int = 0) -> Path:
    """Write a CSV such as Kaggle's ``IMDB Dataset.csv``: review and sentiment."""
    random = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "sentiment"])
        for number in range(count):
            is_good = number % 2 == 0
            writer.writerow([review(random, is_good=is_good), "positive" if is_good else "negative"])
    return path


def write_text_folder(folder: Path, per_class: int) -> Path:
    """Write text files in a folder for each class, ``bad`` and ``good``; each has markup and a dash."""
    for name in ("good", "bad"):
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            text = f"{name} film; it's <br />{name} — {number % 7}\n"
            (folder / name / f"{number}.txt").write_text(text, encoding="utf-8")
    return folder


def ratings(users: int, items: int, count: int, *, seed: int = 0) -> list[tuple[int, int, float, int]]:
    """Made-up user, item, rating in halves from 0.5 to 5, and time; the numbers have gaps, as MovieLens's have.

    A rating is what a user likes times what an item has, and a little chance.
    """
    random = np.random.default_rng(seed)
    likes, has = random.normal(size=(users, 2)), random.normal(size=(items, 2))
    chosen = random.choice(users * items, count, replace=False)
    user, item = chosen // items, chosen % items
    score: NDArray[np.float64] = 3.3 + (likes[user] * has[item]).sum(axis=1) * 0.6 + random.normal(size=count) * 0.1
    rated = np.clip(np.round(score * 2) / 2, 0.5, 5.0)
    times = 964_982_703 + random.permutation(count)
    return [(int(u) + 1, int(i) * 7 + 1, float(r), int(t)) for u, i, r, t in zip(user, item, rated, times, strict=True)]


def write_ratings(path: Path, rows: list[tuple[int, int, float, int]]) -> Path:
    """Write a file such as MovieLens's ``ratings.csv``, or ``ratings.dat`` of its older ones, by the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_old = path.suffix == ".dat"
    lines = [] if is_old else ["userId,movieId,rating,timestamp"]
    lines += [("::" if is_old else ",").join(str(cell) for cell in row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
