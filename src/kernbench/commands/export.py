"""export and port: what leaves the workbench, for reviewers and for the main tree."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kernbench.commands.history import echo_diff, located, opened, state_option
from kernbench.commands.run import task_argument
from kernbench.export.formats import FORMATS


@click.command()
@task_argument
@click.option(
    "--format", "kind", type=click.Choice(list(FORMATS)), required=True, help="pr is a folder, the others are files."
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
    from kernbench.export.write_files import as_bytes

    if kind != "pr" and (before or after):
        raise click.UsageError("--before and --after choose the two sources of --format pr")
    loaded, folder = located(task, state)
    if target == "-":
        text = exports.text(loaded, folder, kind, before=before, after=after)
        sys.stdout.buffer.write(as_bytes(text))  # as in a file, whatever the terminal's is
        return
    paths = exports.export(loaded, folder, kind, Path(target), force=force, before=before, after=after)
    for path in paths:
        click.echo(f"wrote {path}", err=True)


@click.command()
@task_argument
@click.option(
    "--to", "target", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The file in the main tree."
)
@click.option("--from", "reference", default="best", show_default=True, metavar="N", help="The source to port.")
@click.option("--file", "name", metavar="NAME", help="Which file of the source, where several could be meant.")
@click.option("--dry-run", is_flag=True, help="Only show the difference.")
@click.option("--force", is_flag=True, help="Write although the repository is not clean.")
@state_option
def port(
    task: str | None, target: Path, reference: str, name: str | None, dry_run: bool, force: bool, state: Path | None
) -> None:
    """Show how the best solution differs from a file of the main tree, and write it there.

    It is written only when that file's repository is clean, or with --force; exit 1 when it was not written.
    """
    from kernbench.export import port as porting

    loaded, journal = opened(task, state)
    plan = porting.plan(loaded, journal, target, reference, name)
    lines = plan.diff()
    echo_diff(lines)
    if not lines and plan.old == plan.new:
        click.echo(f"{target} already is {plan.name}", err=True)
        return
    if dry_run:
        return
    obstacle = porting.obstacle(target)
    if obstacle and not force:
        click.echo(f"kernbench: not written: {obstacle}; commit first, or `--force`", err=True)
        sys.exit(1)
    porting.write(plan)
    click.echo(f"wrote {plan.name} to {target}", err=True)
    if plan.others:
        names = ", ".join(plan.others)
        click.echo(
            f"kernbench: not written: {names}; what is done there (flags, launches) is part of the speed", err=True
        )


COMMANDS = (export, port)
