import re

import pytest

from tests.helpers import ROOT
from tests.install_lines import Image, changes, images, pins

IMAGES = images()


def test_a_package_that_would_change_is_named() -> None:
    before = pins("# python: 3.13\nrich==13.9.4\nTensorFlow_Hub==0.16.1\n")
    assert before == {"rich": "13.9.4", "tensorflow-hub": "0.16.1"}
    assert changes(before, {**before, "textual": "8.2.8"}) == []
    assert changes(before, {"textual": "8.2.8"}) == []  # ours needs neither
    assert changes(before, before | {"rich": "15.0.0"}) == ["rich 13.9.4 → 15.0.0"]


def test_there_is_a_list_for_every_place() -> None:
    assert {image.name for image in IMAGES} == {
        "colab", "colab-tpu", "kaggle", "kaggle-tpu", "tpu-vm-2.19", "tpu-vm-2.20",
    }  # fmt: skip
    assert all(image.packages["keras"] and image.python for image in IMAGES)


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_the_documentation_gives_the_line_that_was_resolved(image: Image) -> None:
    assert f"`pip install {image.install}`" in (ROOT / "docs" / "install.md").read_text(encoding="utf-8")


def test_nothing_says_to_install_from_an_index_while_the_package_is_on_none() -> None:
    files = [path for folder in ("docs", "engine", "presets", "tui") for path in (ROOT / folder).rglob("*.*")]
    texts = {
        path: path.read_text(encoding="utf-8") for path in [*files, *ROOT.glob("*.md")] if path.suffix in {".md", ".py"}
    }
    wrong = re.compile(r"pip install[^\n`]*\btpu-console\b|tpu-console\[")
    assert {path.name: found[0] for path, text in texts.items() if (found := wrong.search(text))} == {}
