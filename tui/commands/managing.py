"""`tpu-console runs rename`, `runs tag` and `runs delete`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ..terminal.output import say
from .options import complete_run, examples

if TYPE_CHECKING:
    from tpu_console.engine.runs.run_directory import RunDirectory


def _given(names: tuple[str, ...]) -> list[RunDirectory]:
    from tpu_console.engine.runs.run_directory import find_run

    return list(dict.fromkeys(find_run(name) for name in names))


@click.command(
    epilog=examples("tpu-console runs rename 103748-digits 'larger batch'", "tpu-console runs rename digits ''")
)
@click.argument("name", metavar="RUN", shell_complete=complete_run)
@click.argument("title")
def rename(name: str, title: str) -> int:
    """Give RUN a title, which lists show instead of its name; an empty one removes it.

    The folder keeps its name.
    """
    from tpu_console.engine.runs.annotations import read_annotations, write_annotations
    from tpu_console.engine.runs.run_directory import find_run

    run = find_run(name)
    write_annotations(run.path, replace(read_annotations(run.path), title=title))
    kept = read_annotations(run.path).title
    say([f"{run.run_id} is now called '{kept}'." if kept else f"{run.run_id} has no title."])
    return 0


@click.command(
    epilog=examples(
        "tpu-console runs tag digits --add baseline --note 'before the new augmentation'",
        "tpu-console runs tag 103748-digits 103737-digits --archive",
    )
)
@click.argument("names", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_run)
@click.option("--add", "--tag", "tags", metavar="TAG", multiple=True, help="Add a tag; repeatable.")
@click.option("--remove", "--untag", "untags", metavar="TAG", multiple=True, help="Remove a tag; repeatable.")
@click.option("--note", metavar="TEXT", help="Replace the note; an empty one removes it.")
@click.option("--archive/--unarchive", default=None, help="Leave the runs out of lists, or list them again.")
def tag(
    names: tuple[str, ...], tags: tuple[str, ...], untags: tuple[str, ...], note: str | None, archive: bool | None
) -> int:
    """Tag runs, write a note on them, or archive them.

    Without an option, prints what is written on them.
    """
    from tpu_console.engine.runs.annotations import cleaned_tags, read_annotations, write_annotations

    for run in _given(names):
        before = read_annotations(run.path)
        kept = cleaned_tags([*(tag for tag in before.tags if tag not in cleaned_tags(untags)), *tags])
        after = replace(
            before,
            tags=kept,
            note=before.note if note is None else note,
            archived=before.archived if archive is None else archive,
        )
        if after != before:
            write_annotations(run.path, after)
        say([_annotated(run)])
    return 0


def _annotated(run: RunDirectory) -> str:
    from tpu_console.engine.runs.annotations import read_annotations

    now = read_annotations(run.path)
    parts = [now.title, " ".join(f"#{tag}" for tag in now.tags), now.note, "archived" if now.archived else ""]
    return f"{run.run_id}: {' · '.join(part for part in parts if part) or 'nothing is written on it'}"


@click.command(
    epilog=examples(
        "tpu-console runs delete 103748-digits",
        "tpu-console runs delete --restore 103748-digits",
        "tpu-console runs delete --empty-trash",
    )
)
@click.argument("names", metavar="RUN...", nargs=-1, shell_complete=complete_run)
@click.option("--restore", is_flag=True, help="Move the runs from the trash back.")
@click.option("--empty-trash", is_flag=True, help="Delete everything in the trash for good; asks first.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def delete(ctx: click.Context, names: tuple[str, ...], restore: bool, empty_trash: bool, yes: bool) -> int:
    """Move runs to the trash, a folder beside them from which they can be restored.

    A run that trains is refused.
    """
    from tpu_console.engine.process import trash

    if empty_trash == bool(names) or (restore and empty_trash):
        ctx.fail("Name runs, or give only --empty-trash.")
    if empty_trash:
        deleted = trash.deleted_runs()
        if deleted and not yes:
            click.confirm(f"Delete {len(deleted)} runs for good?", abort=True, err=True)
        say([f"Deleted for good: {trash.empty_trash()}"])
    elif restore:
        say(f"Restored: {trash.restore_run(name).run_id}" for name in names)
    else:
        runs = _given(names)
        trash.delete_runs(runs)
        say([*(f"Moved to the trash: {run.run_id}" for run in runs),
             f"To restore: tpu-console runs delete --restore {' '.join(run.run_id for run in runs)}"])  # fmt: skip
    return 0
