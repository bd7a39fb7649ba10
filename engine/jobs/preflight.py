"""Asks the TPU compiler what a run would do on TPUs that this machine does not have."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING, Any

from ..accelerators.backend import is_installed
from ..config.reading import parse_config
from ..errors import ConsoleError
from ..machine.install import JAX_ON_TPU, install_line
from ..preflight.cache import cached_verdicts, choices_of, versions
from ..preflight.topologies import find_topology

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..messages import Reporter


def preflight_choices(
    reporter: Reporter,
    config: Mapping[str, Any],
    on: Sequence[str],
    batches: Sequence[int] = (),
    precisions: Sequence[str] = (),
    *,
    search: bool = False,
    use_cache: bool = True,
    limit_s: float | None = None,
) -> dict[str, Any]:
    """Return the verdict on every choice of TPU, batch and precision; by default those of the configuration.

    Returns ``verdicts``, each from `Verdict.as_dict`: every precision and batch of the first TPU, then of the next; and
    the ``versions`` of the packages that a verdict depends on. After `limit_s` seconds the others are undecided.

    Raises:
        ConsoleError: There is no such TPU, or no TPU compiler on this machine.
    """
    settings = parse_config(config)
    choices = choices_of(settings, [find_topology(name) for name in on], batches, precisions)
    verdicts = cached_verdicts(choices, search=search) if use_cache else None
    if verdicts is None:
        check_compiler()
        from ..preflight.worker_pool import reach_verdicts  # not needed for cached verdicts

        verdicts = reach_verdicts(
            choices,
            lambda what, seconds, expected_s: reporter.progress(what, seconds, expected_s, "seconds"),
            search=search,
            use_cache=use_cache,
            limit_s=limit_s,
        )
    return {"verdicts": [verdict.as_dict() for verdict in verdicts], "versions": versions()}


def call_dataset(reporter: Reporter, config: Mapping[str, Any]) -> dict[str, Any]:
    """Call a configuration's dataset function: what it returns is recorded. The result is empty.

    Raises:
        ConsoleError: It cannot be found, or it failed.
    """
    from ..data.download import reporting
    from ..data.kinds.table import load_examples  # loads TensorFlow, which the other job does not need

    settings = parse_config(config)

    def report(what: str) -> None:
        reporter.progress(what, 0, None, "seconds")

    report(f"calling {settings.dataset}")
    load_examples(settings, reporting(reporter, report))
    return {}


def check_compiler() -> None:
    """Raise `ConsoleError` if the TPU compiler is not installed, or does not exist for this machine; loads nothing."""
    if not sys.platform.startswith("linux") or platform.machine() not in {"x86_64", "AMD64"}:
        raise ConsoleError(
            f"There is no TPU compiler for {platform.system()} on {platform.machine()}: libtpu needs Linux on x86-64.",
            remedy="Run the preflight on such a machine, for example on Colab, Kaggle or a TPU VM.",
        )
    missing = [name for name in ("jax", "libtpu") if not is_installed(name)]
    if missing:
        verb = "are" if len(missing) > 1 else "is"
        raise ConsoleError(
            f"The TPU compiler is not installed: {' and '.join(missing)} {verb} missing.",
            remedy=f"To install it here: {install_line(JAX_ON_TPU)}",
        )
