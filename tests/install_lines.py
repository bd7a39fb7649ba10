"""Resolves the documented install lines beside what images have installed: ``python -m tests.install_lines UV``.

Each file of ``tests/installs/`` lists the packages of an image that ours need. Like pip, uv keeps a version that
is there when it satisfies every requirement. Fails if an image's package would change. Needs the network.
"""

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.utils import canonicalize_name

from tpu_console.engine.machine.install import TF_BUILDS

LISTS = Path(__file__).with_name("installs")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Image:
    """An image's packages, its Python, and the line that installs the console there."""

    name: str
    python: str
    install: str  # what follows ``pip install``
    environ: dict[str, str]  # variables that the place sets
    packages: dict[str, str]

    def requirements(self, wheel: Path) -> list[str]:
        """Return the line's requirements, with the wheel for ``.``."""
        parts = shlex.split(self.install)
        return [f"tpu-console{part[1:]} @ {wheel.as_uri()}" if part.startswith(".") else part for part in parts]


def pins(text: str) -> dict[str, str]:
    return {canonicalize_name(name): version for name, version in _PIN.findall(text)}


def read_image(path: Path) -> Image:
    text = path.read_text(encoding="utf-8")
    facts = dict(re.findall(r"^# (python|install): (.+)$", text, re.MULTILINE))
    environ = dict(
        pair.split("=", 1) for line in re.findall(r"^# environ: (.+)$", text, re.MULTILINE) for pair in line.split()
    )
    return Image(path.stem, facts["python"], facts["install"], environ, pins(text))


def images() -> list[Image]:
    return [read_image(path) for path in sorted(LISTS.glob("*.txt"))]


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Name the packages that were there and would have another version."""
    return [
        f"{name} {before[name]} → {after[name]}"
        for name in sorted(before)
        if after.get(name, before[name]) != before[name]
    ]


def resolve(image: Image, requirements: list[str], uv: str, *, constrained: bool = False) -> dict[str, str]:
    """Return the versions that an installation would have; raises `CalledProcessError` if there are none."""
    with TemporaryDirectory() as folder:
        wanted, found, here = (Path(folder, name) for name in ("wanted.txt", "found.txt", "here.txt"))
        wanted.write_text("\n".join(requirements), encoding="utf-8")
        listed = "".join(f"{name}=={version}\n" for name, version in image.packages.items())
        for path in (found, here):
            path.write_text(listed, encoding="utf-8")
        command = [uv, "pip", "compile", "--quiet", "--no-annotate", "--no-header", "--only-binary", ":all:"]
        command += ["--python-version", image.python, "--python-platform", "x86_64-manylinux_2_35"]
        command += ["--constraint", str(here)] if constrained else []
        subprocess.run([*command, str(wanted), "--output-file", str(found)], check=True)
        return pins(found.read_text(encoding="utf-8"))


def build(folder: Path, target: str = "wheel", source: Path = LISTS.parents[1]) -> Path:
    """Build the console's wheel, or another target from another source, into an empty folder."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(command, check=True, capture_output=True, cwd=source)
    (built,) = folder.iterdir()
    return built


def main(uv: str) -> int:
    failed = False
    with TemporaryDirectory() as folder:
        wheel = build(Path(folder))
        for image in images():
            after = resolve(image, image.requirements(wheel), uv)
            changed = changes(image.packages, after)
            added = sorted(set(after) - set(image.packages) - {"tpu-console"})
            print(f"{image.name}: pip install {image.install}")
            print(f"  {'changes ' + ', '.join(changed) if changed else 'changes nothing'}; adds {', '.join(added)}")
            failed |= bool(changed)
            if not any(name in image.packages for name in TF_BUILDS):
                resolve(image, ["tensorflow-cpu"], uv, constrained=True)  # the line that a run's plan gives
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
