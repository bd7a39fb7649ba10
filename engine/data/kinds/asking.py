"""Asks a package about data with a name, in a process of its own: it may import TensorFlow, which the console must not.

`python -P -m tpu_console.engine.data.kinds.asking KIND OPTIONS` writes the answer as a message of `engine.messages`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...children import kill_with_children, start_module
from ...errors import DataError
from ...messages import MessageReader, end_with_parent, error_of, report_result, standard_output_reporter
from ..download import Arrived, reporting
from ..places import KAGGLE

if TYPE_CHECKING:
    from ..download import OnFetch

_LIMIT_S = 120.0
_NOWHERE = "http://nowhere.invalid:1"  # a proxy that no request gets through


def ask(kind: str, options: dict[str, Any], on_fetch: OnFetch = lambda _: None) -> dict[str, Any]:
    """Return what `NamedKind.ask` of a kind, or `kaggle.download`, returns: plain values, with texts safe to show.

    Without options it is what `Tfds.list_names` returns; no server is reached for that.

    Raises:
        ConsoleError: It failed.
    """
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"} | ({} if options else {"https_proxy": _NOWHERE})
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    try:
        process = start_module("engine.data.kinds.asking", kind, json.dumps(options), env=environment, **streams)
    except OSError as error:
        raise DataError(f"No process can be started to ask {kind}: {error.strerror}.") from error
    last: dict[str, Any] = {}
    began = time.monotonic()
    try:
        with process:
            assert process.stdout is not None  # noqa: S101  opened as a pipe
            reader = MessageReader(process.stdout)
            while (read := reader.read()) is not None:
                for last in read:
                    if last["kind"] == "progress":
                        on_fetch(Arrived(last["what"], last["done"], last["total"] or 0, time.monotonic() - began))
            process.wait(_LIMIT_S)
    finally:
        kill_with_children(process)
    if last.pop("kind", "") == "result":
        return last
    if not last:
        raise DataError(f"{kind} could not be asked: its process ended without an answer.")
    raise error_of(last, "")


def main(arguments: list[str]) -> int:
    """Answer a question; return the exit code."""
    from .kaggle import download
    from .named_kind import NamedKind
    from .table import KINDS
    from .tfds import Tfds

    reporter = standard_output_reporter()
    end_with_parent()
    name, options = arguments
    if name == KAGGLE:
        on_fetch = reporting(reporter, lambda _: None)
        return report_result(reporter, name, lambda: download(json.loads(options)["handle"], on_fetch))
    kind = KINDS[name]
    assert isinstance(kind, NamedKind)  # noqa: S101  only these are asked
    if isinstance(kind, Tfds) and not json.loads(options):
        return report_result(reporter, name, kind.list_names)
    return report_result(reporter, name, lambda: asdict(kind.ask(kind.Options.model_validate_json(options))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
