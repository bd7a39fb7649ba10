"""Tables as Parquet and JSON lines: recognized, loaded and predicted as the same table in a CSV is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.data.data_code import opened
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.data.survey.formats import guess
from tpu_console.engine.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

WORDS = ("good lovely great", "bad poor sad")
TABLES: dict[str, dict[str, list[Any]]] = {
    "table-csv": {
        "age": [20 + n % 40 for n in range(60)],
        "fare": [None if n == 7 else n * 1.5 for n in range(60)],
        "port": ["SCQ"[n % 3] for n in range(60)],
        "class": [n % 2 for n in range(60)],
    },
    "text-csv": {
        "text": [f"{WORDS[n % 2]}, said {n % 7} of them" for n in range(60)],
        "label": [("up", "down")[n % 2] for n in range(60)],
    },
}


def written(folder: Path, kind: str) -> dict[str, Path]:
    table = pd.DataFrame(TABLES[kind])
    files = {ending: folder / f"table.{ending}" for ending in ("csv", "parquet", "jsonl")}
    table.to_csv(files["csv"], index=False)
    table.to_parquet(files["parquet"])
    table.to_json(files["jsonl"], orient="records", lines=True)
    return files


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_means_the_same_in_every_format(kind: str, tmp_path: Path) -> None:
    found = {}
    for ending, path in written(tmp_path, kind).items():
        name, options = guess(str(path))
        assert name == kind
        values = {"dataset": name, "model": {"table-csv": "mlp"}.get(kind, "text"), "batch_size": 8, "epochs": 1}
        examples = load_examples(parse_config({**values, "data": {"options": options}}), lambda _: None)
        batches = [*examples.train.batch(60).as_numpy_iterator()]
        found[ending] = ({**options, "path": ""}, batches)
    options, (first,) = found["csv"]
    for other, (batch,) in found.values():
        assert other == options
        for one, two in zip(batch, first, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("bad.jsonl", b'{"a": 1, "label": 2}\n{"a": 1,\n', "line 2"),
        ("bad.jsonl", b'{"a": 1, "label": 2}\n\n[1, 2]\n', "line 3"),
        ("deep.jsonl", b"[" * 100_000, "line 1"),
        ("bad.parquet", b"PAR1" + b"\0" * 100, "bad.parquet"),
    ],
)
def test_a_damaged_table_is_one_sentence(name: str, content: bytes, part: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=part):
        guess(str(tmp_path / name))


def test_a_script_is_refused() -> None:
    assert opened("table.csv") == "TABLE"
    with pytest.raises(DataError):
        opened("table.parquet")


def test_values_of_json_that_no_table_has_are_texts(tmp_path: Path) -> None:
    rows = [{"text": f"{WORDS[n % 2]} {n % 5}", "label": n % 2, "more": {"a": [n]}} for n in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert guess(str(tmp_path / "rows.jsonl"))[0] == "text-csv"
