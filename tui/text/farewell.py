"""What the terminal says after the console has closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpu_console.engine.storage.paths import user_path

if TYPE_CHECKING:
    from tpu_console.engine.runs.follower import Snapshot
    from tpu_console.engine.runs.run_directory import RunDirectory


def goes_on(run_id: str) -> str:
    """Return the line on a run that trains without a console."""
    return f"{run_id} goes on training. Come back with: tpu-console attach {run_id}"


def farewell_to(run: RunDirectory, snapshot: Snapshot) -> str:
    """Return one or two lines on a run that a console leaves.

    Args:
        run: The run.
        snapshot: What was known of it.
    """
    # Imported here because the app asks for `goes_on` before its first frame.
    from tpu_console.engine.runs.events import RunFailed, RunFinished

    from .outcome import best_score, verdict_on

    name = run.run_id
    if not snapshot.is_over:
        return goes_on(name)
    verdict = verdict_on(run, snapshot)
    headline = verdict.headline if verdict is not None else ""
    match snapshot.state.end:
        case RunFinished():
            best = best_score(snapshot.state)
            return (
                f"{name}: {headline}{f' Best: {best}.' if best else ''}\nSee it again with: tpu-console attach {name}"
            )
        case RunFailed() as end:
            what = end.what if end.what.endswith((".", "!", "?")) else f"{end.what}."
            return f"{name} failed: {what} {end.remedy}".rstrip() + f"\nThe log: {user_path(run.log)}"
    return f"{name}: {headline} The log: {user_path(run.log)}"
