from pathlib import Path
from tempfile import TemporaryDirectory

from tests.record import TEXTS
from tests.record.shown import all_texts, inspected, recorded

if __name__ == "__main__":
    TEXTS.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, recorded(Path(folder)) as home:
        texts = all_texts(home) | {"inspect.json": inspected(home)}
    for old in TEXTS.iterdir():
        old.unlink()
    for name, text in texts.items():
        (TEXTS / name).write_text(text, encoding="utf-8")
