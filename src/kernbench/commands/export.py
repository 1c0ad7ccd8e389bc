"""export and port: what leaves the workbench, for reviewers and for the main tree."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kernbench.commands.history import opened, state_option
from kernbench.commands.loop import task_argument

FORMATS = ("md", "csv", "json", "html", "pr")


@click.command()
@task_argument
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), required=True, help="pr is a folder, the others are files."
)
@click.option("-o", "target", metavar="PATH", required=True, help="Where to write; - is stdout.")
@click.option("--force", is_flag=True, help="Overwrite what is there.")
@click.option("--before", metavar="N", help="pr: the source to start from, instead of the first of the series.")
@click.option("--after", metavar="N", help="pr: the source to show, instead of the best.")
@state_option
def export(
    task: str | None, kind: str, target: str, force: bool, before: str | None, after: str | None, state: Path | None
) -> None:
    """The log for other people: md, csv, json, one html file, or a folder for a pull request.

    \b
    kernbench export rms_norm --format html -o rms_norm.html
    kernbench export rms_norm --format csv -o - | head
    kernbench export rms_norm --format pr -o /tmp/rms_norm-pr --before 1 --after best
    """
    from kernbench import export as exports

    if kind != "pr" and (before or after):
        raise click.UsageError("--before and --after choose the two sources of --format pr")
    loaded, journal = opened(task, state)
    if target == "-":
        sys.stdout.write(exports.text(loaded, journal.state, kind, before=before, after=after))
        return
    paths = exports.export(loaded, journal.state, kind, Path(target), force=force, before=before, after=after)
    for path in paths:
        click.echo(f"wrote {path}", err=True)


COMMANDS = (export,)
