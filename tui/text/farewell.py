"""The lines printed on the terminal after the console has closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpu_console.engine.runs.follower import Snapshot
    from tpu_console.engine.runs.run_directory import RunDirectory


def goes_on(run_id: str) -> str:
    """Return the line about a run that continues without a console."""
    return f"{run_id} is still training. To come back: tpu-console attach {run_id}"


def farewell_to(run: RunDirectory, snapshot: Snapshot) -> str:
    """Return one or two lines about the run that was open when the console closed, by its last snapshot."""
    # Imported here because the app imports `goes_on` before its first frame.
    from tpu_console.engine.runs.events import RunFailed, RunFinished
    from tpu_console.engine.storage.paths import user_path

    from .mirror import mirror_facts
    from .outcome import best_text, outcome_of

    name = run.run_id
    if not snapshot.is_over:
        return goes_on(name)
    outcome = outcome_of(run, snapshot)
    headline = outcome.headline if outcome is not None else ""
    match snapshot.state.end:
        case RunFinished():
            best = best_text(snapshot.state)
            mirror = [f"{label[0].upper()}{label[1:]}: {text}\n" for label, text in mirror_facts(snapshot.state, name)]
            said = f"{name}: {headline}{f' Best: {best}.' if best else ''}\n{''.join(mirror)}"
            return f"{said}To see it again: tpu-console attach {name}"
        case RunFailed() as end:
            what = end.what if end.what.endswith((".", "!", "?")) else f"{end.what}."
            return f"{name} failed: {what} {end.remedy}".rstrip() + f"\nLog: {user_path(run.log)}"
    return f"{name}: {headline} Log: {user_path(run.log)}"
