"""Keeps one process warm for the run that the form describes."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.machine.devices import Hardware
    from tpu_console.engine.process.warm import WarmHost


class Prewarmer:
    """Starts, replaces and hands out a `WarmHost`. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._host: WarmHost | None = None
        self._is_closed = False

    def want(self, config: RunConfig, hardware: Hardware) -> None:
        """Have a process ready for a configuration, unless the machine has something better to do."""
        from tpu_console.engine.accelerators.backend import choose_backend
        from tpu_console.engine.machine.resources import free_memory_bytes, usable_cores
        from tpu_console.engine.process.launch import launch_environment
        from tpu_console.engine.process.warm import WarmHost, may_warm

        choice = choose_backend(config, hardware)
        needed, environment = choice.framework.environment(config), launch_environment()
        is_harmless = not choice.missing and not (choice.framework.takes_tpu_when_imported and hardware.tpu)
        with self._lock:
            if self._host is not None:
                if self._host.fits(environment, needed):
                    return
                self._host.end()
                self._host = None
            if (
                is_harmless
                and not self._is_closed
                and may_warm(free_memory_bytes(), os.getloadavg()[0], usable_cores())
            ):
                self._host = WarmHost.start(environment, needed)

    def take(self, config: RunConfig) -> WarmHost | None:
        """Return the process if it is what a new one for a configuration would be."""
        with self._lock:
            host, self._host = self._host, None
        if host is None:
            return None
        from tpu_console.engine.accelerators.backend import choose_backend
        from tpu_console.engine.machine.devices import detect_hardware
        from tpu_console.engine.process.launch import launch_environment

        framework = choose_backend(config, detect_hardware()).framework
        if host.fits(launch_environment(), framework.environment(config)):
            return host
        host.end()
        return None

    def close(self) -> None:
        """End the process that nobody took."""
        with self._lock:
            self._is_closed = True
            if self._host is not None:
                self._host.end()
                self._host = None
