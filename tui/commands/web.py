"""`tpu-console web`: the console in a browser. The server is in `web_server`, which only this command imports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tpu_console.engine.errors import ConsoleError

from .options import examples, preset_file_option, screen_options

if TYPE_CHECKING:
    from pathlib import Path

    from .opening import Markers


@click.command(
    epilog=examples(
        "tpu-console web",
        "tpu-console web --port 9000 --theme textual-light",
        done="ended with Ctrl-C",
        failed="the port is in use, or textual-serve is not installed",
    )
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, metavar="N", help="Port; 0 for any. [default: 8000]"
)
@click.option("--host", default="127.0.0.1", metavar="ADDR", help="Listen on ADDR. [default: 127.0.0.1, this machine]")
@click.option(
    "--allow-host",
    "names",
    metavar="NAME",
    multiple=True,
    help="Also answer requests for NAME, such as a proxy's name.",
)
@preset_file_option
@screen_options
def web(
    port: int,
    host: str,
    names: tuple[str, ...],
    preset_files: tuple[Path, ...],
    markers: Markers | None,
    theme: str | None,
) -> int:
    """Open the console in a browser.

    It prints an address with a secret in it. Whoever has the address can start and stop runs as you. Closing the page
    or this command closes the console, but stops no run.
    """
    try:
        import textual_serve.server  # noqa: F401
    except ImportError:
        from tpu_console.engine.machine.install import install_line

        remedy = install_line("textual-serve")
        raise ConsoleError("The console in a browser needs textual-serve, which is missing.", remedy=remedy) from None
    from .web_server import serve

    options = [("--preset-file", str(file.absolute())) for file in preset_files]
    options += [(name, value) for name, value in (("--markers", markers), ("--theme", theme)) if value is not None]
    serve(host, port, names, [part for option in options for part in option])
    return 0
