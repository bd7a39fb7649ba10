"""Private names of Textual, checked on 6.2.1 and 8.2.8."""

from collections.abc import Callable
from contextlib import suppress

from textual.app import App
from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.worker import WorkerFailed


class QuietApp(App[int]):
    """An app that closes after a bug without Textual's page of traceback on the terminal.

    Private: `App._fatal_error`, which writes that page, and what it uses; Textual has no public hook for a bug.
    """

    def handle_bug(self, error: BaseException | None) -> None:
        """Clean up before the app closes; only the first call has the cause."""

    def _fatal_error(self) -> None:
        error = self._exception
        self.handle_bug(error.error if isinstance(error, WorkerFailed) else error)
        self._close_messages_no_wait()


def command_palette() -> CommandPalette:
    """Make Textual's palette, which ignores page keys until its list is shown, and a second answer.

    Private: `CommandPalette._action_command_list`. Moving by a page needs the lines of the list, and a hidden one has
    none, which ends the app. For the second answer, see `tui.screens.parts.close`.
    """
    palette = CommandPalette()
    move: Callable[[str], None] = palette._action_command_list  # noqa: SLF001
    dismiss = palette.dismiss

    def move_if_shown(action: str) -> None:
        with suppress(KeyError):
            move(action)

    def dismiss_once(result: None = None) -> AwaitComplete:
        return dismiss(result) if palette.is_active else AwaitComplete()

    palette._action_command_list = move_if_shown  # type: ignore[method-assign]  # noqa: SLF001
    palette.dismiss = dismiss_once  # type: ignore[method-assign]
    return palette


def write_control(app: App[object], sequence: str) -> None:
    """Write a control sequence to the terminal that an app runs in; does nothing without one.

    Private: `App._driver`, in whose thread everything is written. Textual's public call rings the bell only.
    """
    driver = app._driver  # noqa: SLF001
    if driver is not None and not app.is_headless:
        driver.write(sequence)
