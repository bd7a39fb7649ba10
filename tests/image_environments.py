"""Uses the console in environments like the images': ``python -m tests.image_environments UV [NAMES]``.

For each list of ``tests/installs/``: installs every package as pinned, then the documented line with pip, which may
only add packages; asks the doctor; takes the plan's line where a run is refused; trains with each backend; and runs a
notebook whose cells draw a run of their own and one of another process. Needs the network, the list's Python (uv
downloads it where it can) and 5 GB in ``TMPDIR``.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.install_lines import Image, build, changes, images, pins
from tpu_console.engine.machine.install import TF_BUILDS

LIMIT_S = 600  # the first import of TensorFlow from a cold disk takes a minute
_PICTURES = 3  # the fewest different ones of a cell whose curves move
_FIT = """
import time, keras, numpy as np
from tpu_console import BridgeCallback
x, y = np.random.default_rng(0).normal(size=(64, 4)).astype("float32"), np.arange(64) % 3
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False)  # for tensorflow-tpu
slow = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: time.sleep(1))
model.fit(x, y, epochs=12, validation_split=0.25, verbose=0, callbacks=[slow, BridgeCallback("mine", display=True)])
"""
_WATCH = """
!tpu-console run digits-cnn --epochs 40 --detach
from tpu_console import watch
watch()
"""


class _Watched(NotebookClient):  # type: ignore[misc]
    """Runs a notebook and keeps every picture that a cell showed."""

    shown: dict[int, list[str]]

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        if png := msg["content"].get("data", {}).get("image/png"):
            self.shown.setdefault(cell_index, []).append(png)
        return super().process_message(msg, cell, cell_index)


@dataclass(frozen=True)
class Place:
    """An environment like an image's."""

    image: Image
    folder: Path
    uv: str

    @property
    def environ(self) -> dict[str, str]:
        """The variables of a shell there."""
        kept = ("HOME", "LANG", "LC_ALL", "TERM", "TMPDIR", "PIP_CACHE_DIR", "PIP_CERT")
        own = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "TPU_CONSOLE_HOME": f"{self.folder}/home"}
        return {name: os.environ[name] for name in kept if name in os.environ} | self.image.environ | own

    def build(self) -> None:
        """Install the image's packages, and no others, as some images lack what theirs require."""
        subprocess.run([self.uv, "venv", "--quiet", "--seed", "--python", self.image.python, self.folder], check=True)
        listed = [f"{name}=={version}" for name, version in self.image.packages.items()]
        python = ["--python", str(self.folder / "bin" / "python")]
        subprocess.run([self.uv, "pip", "install", "--quiet", "--no-deps", *python, *listed], check=True)
        assert changes(self.image.packages, self.packages()) == []

    def packages(self) -> dict[str, str]:
        return pins(self.say("pip list --format=freeze"))

    def say(self, line: str, *, code: int = 0) -> str:
        """Return what a shell there prints, once its exit code is checked."""
        command = ["bash", "-c", f"{line} 2>&1"]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environ, stdout=subprocess.PIPE, text=True, check=False
        )
        assert done.returncode == code, f"{line} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def install(self, line: str, may_change: str = "") -> list[str]:
        """Type an install line there, see that it only adds packages or changes the named one, and return these."""
        before, complaints = self.packages(), self.complaints()
        self.say(line)
        after, new = self.packages(), self.complaints() - complaints
        changed = [change for change in changes(before, after) if change.split()[0] != may_change]
        assert not (changed := changed + sorted({*before} - {*after})), f"{line} changes {changed}"
        assert not new, f"{line} breaks {new}"
        print(f"$ {line}\nadds {', '.join(added := sorted({*after} - {*before}))}", flush=True)
        return added

    def complaints(self) -> set[str]:
        """Return what pip says against the installed versions."""
        command = [str(self.folder / "bin" / "python"), "-m", "pip", "check"]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, check=False)
        return {line for line in done.stdout.splitlines() if line != "No broken requirements found."}

    def problems(self) -> list[str]:
        """Print what the doctor says, and return the checks that stand in the way of training."""
        print(self.say("tpu-console doctor || true"), flush=True)
        found = json.loads(self.say("tpu-console doctor --json || true"))["findings"]
        return [finding["check"] for finding in found if finding["verdict"] == "problem"]

    def settle(self) -> list[str]:
        """If the doctor names a problem, take the line of the run that is refused for it; return what that adds."""
        if not (problems := self.problems()):
            return []
        said = self.say("tpu-console run digits-cnn", code=2)
        print(said, flush=True)
        (line,) = re.findall(r"To install it here: !?(.+)", said)
        added = self.install(line, may_change=problems[0])
        assert self.problems() == []
        return added

    def train(self) -> None:
        for backend in ("tensorflow", "jax"):
            if backend == "tensorflow" or "jax" in self.packages():
                print(self.say(f"tpu-console run digits-cnn --epochs 2 --backend {backend}"), flush=True)
        self.say("python -c 'from tpu_console import watch'")

    def draw(self) -> None:
        """Run a notebook whose cells must show moving curves, and keep the last picture."""
        spec = self.folder / "share" / "jupyter" / "kernels" / self.image.name / "kernel.json"
        spec.parent.mkdir(parents=True)
        start = [str(self.folder / "bin" / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec.write_text(json.dumps({"argv": start, "display_name": "image", "language": "python"}))
        os.environ["JUPYTER_PATH"] = str(self.folder / "share" / "jupyter")
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in (_FIT, _WATCH)])
        client = _Watched(notebook, kernel_name=self.image.name, timeout=LIMIT_S)
        client.shown = {}
        client.execute(env=self.environ, cwd=str(self.folder))
        for number, cell in enumerate(notebook.cells):
            moved = len(set(client.shown.get(number, [])))
            kept = [output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})]
            print(f"cell {number}: {moved} pictures; the notebook keeps {len(kept)}", flush=True)
            assert moved >= _PICTURES, cell.outputs
            assert len(kept) == 1
            assert "Finished" in str(cell.outputs)


@contextmanager
def place_of(image: Image, uv: str) -> Iterator[Place]:
    """Build an environment like an image's, and remove it."""
    with TemporaryDirectory(prefix=image.name) as folder:
        place = Place(image, Path(folder) / "image", uv)
        place.build()
        yield place


def main(uv: str, *names: str) -> int:
    """Try the images of these names, by default all; any exception is a failure."""
    with TemporaryDirectory() as folder:
        wheel = build(Path(folder))
        for image in images():
            if names and image.name not in names:
                continue
            print(f"\n== {image.name}, Python {image.python}", flush=True)
            with place_of(image, str(Path(uv).absolute())) as place:
                if not any(name in image.packages for name in TF_BUILDS):
                    added = [*place.install(f"pip install {shlex.quote(str(wheel))}"), *place.settle()]
                    place.say("tpu-console run digits-cnn --epochs 1")
                    place.say(f"pip uninstall --quiet --yes {' '.join(added)}")
                place.install(f"pip install {shlex.join(image.requirements(wheel))}")
                place.settle()
                place.train()
                if "ipykernel" not in image.packages:
                    place.install(f"pip install ipykernel {shlex.quote(f'tpu-console[notebook] @ {wheel.as_uri()}')}")
                place.draw()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
