"""Says what a run would do on TPUs that are not here, by the TPU's own compiler."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING, Any

from ...accelerators.backend import is_installed
from ...config.reading import parse_config
from ...errors import ConsoleError
from ...preflight.cache import versions
from ...preflight.cases import cases_of, recall_all
from ...preflight.topologies import find_topology

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..job import Reporter

INSTALL = "pip install 'tpu-console[tpu]'"
"""The line that installs the compiler."""


def perform(
    reporter: Reporter,
    config: Mapping[str, Any],
    on: Sequence[str],
    batches: Sequence[int] = (),
    precisions: Sequence[str] = (),
    *,
    search: bool = False,
    use_cache: bool = True,
) -> dict[str, Any]:
    """Judge a configuration.

    Args:
        reporter: Told how far it is.
        config: The configuration as plain values.
        on: Names of TPUs, such as ``v5e-8``.
        batches: Examples a device; empty takes the configuration's.
        precisions: Keras's dtype policies; empty takes the configuration's.
        search: Whether to look for the largest batches that fit.
        use_cache: Whether verdicts that were kept are taken.

    Returns:
        ``verdicts``, each as `Verdict.as_dict` gives it: every precision and batch of the first TPU, then of the next;
        and ``versions`` of the packages that were asked.

    Raises:
        ConsoleError: There is no such TPU, or no compiler for them here.
    """
    settings = parse_config(config)
    cases = cases_of(settings, [find_topology(name) for name in on], batches, precisions)
    verdicts = recall_all(cases, search=search) if use_cache else None
    if verdicts is None:
        check_compiler()
        from ...preflight.worker_pool import judge_all  # not for an answer that was kept

        verdicts = judge_all(
            cases,
            lambda what, seconds: reporter.progress(what, seconds, None, "seconds"),
            search=search,
            use_cache=use_cache,
        )
    return {"verdicts": [verdict.as_dict() for verdict in verdicts], "versions": versions()}


def check_compiler() -> None:
    """Check that the TPU compiler can be had here, without loading it.

    Raises:
        ConsoleError: It is not installed, or there is none for this machine.
    """
    if not sys.platform.startswith("linux") or platform.machine() not in {"x86_64", "AMD64"}:
        raise ConsoleError(
            f"There is no TPU compiler for {platform.system()} on {platform.machine()}: libtpu is made for Linux on "
            "x86-64.",
            remedy="Preflight on such a machine; Colab, Kaggle and a TPU VM are.",
        )
    missing = [name for name in ("jax", "libtpu") if not is_installed(name)]
    if missing:
        verb = "are" if len(missing) > 1 else "is"
        raise ConsoleError(
            f"The TPU compiler is not installed: {' and '.join(missing)} {verb} missing.", remedy=INSTALL
        )
