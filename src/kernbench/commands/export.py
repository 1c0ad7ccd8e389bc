"""export and port: the log for reviewers, the solution for the main tree."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kernbench.commands.completion import complete_iteration
from kernbench.commands.history import echo_diff, located, opened, state_option
from kernbench.commands.run import task_argument
from kernbench.export.formats import FORMATS, SOLUTIONS


@click.command(short_help="Export the log, or an imported task's solution, to a file.")
@task_argument
@click.option(
    "--format",
    "kind",
    type=click.Choice([*FORMATS, *SOLUTIONS]),
    required=True,
    help="pr writes a folder, the others one file.",
)
@click.option("-o", "target", metavar="PATH", required=True, help="Output path, or - for stdout.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option(
    "--before",
    metavar="N",
    shell_complete=complete_iteration,
    help="pr: the source to start from, instead of the first of the series.",
)
@click.option(
    "--after",
    metavar="N",
    shell_complete=complete_iteration,
    help="pr, or a suite's format: the source to show, instead of the best.",
)
@click.option("--anyway", is_flag=True, help="pr: also for a source that a model does not keep.")
@state_option
def export(
    task: str | None,
    kind: str,
    target: str,
    force: bool,
    before: str | None,
    after: str | None,
    anyway: bool,
    state: Path | None,
) -> None:
    """Export the log: md, csv, json, html, or a pull request folder; or the solution of an imported task.

    \b
    kernbench export rms_norm --format html -o rms_norm.html
    kernbench export rms_norm --format csv -o - | head
    kernbench export rms_norm --format pr -o /tmp/rms_norm-pr --before 1 --after best
    kernbench export 19_ReLU --format kernelbench -o 19_ReLU.py
    """
    from kernbench import export as exports
    from kernbench.export.write_files import as_bytes

    if kind != "pr" and (before or (after and kind not in SOLUTIONS)):
        raise click.UsageError(f"--{'before' if before else 'after'} does not apply to --format {kind}")
    if anyway and kind != "pr":
        raise click.UsageError(f"--anyway does not apply to --format {kind}")
    if kind in SOLUTIONS:
        _export_solution(task, state, kind, target, force, after)
        return
    loaded, folder = located(task, state)
    if target == "-":
        text = exports.text(loaded, folder, kind, before=before, after=after, anyway=anyway)
        sys.stdout.buffer.write(as_bytes(text))  # encoded as in a file, not as the terminal expects
        return
    paths = exports.export(loaded, folder, kind, Path(target), force=force, before=before, after=after, anyway=anyway)
    for path in paths:
        click.echo(f"wrote {path}", err=True)


def _export_solution(
    task: str | None, state: Path | None, kind: str, target: str, force: bool, after: str | None
) -> None:
    from kernbench.export.write_files import as_text, write_all
    from kernbench.suites.exported_solution import exported

    content = exported(*opened(task, state), kind, after)
    if target == "-":
        sys.stdout.buffer.write(content)
        return
    (path,) = write_all({Path(target): as_text(content)}, force)
    click.echo(f"wrote {path}", err=True)


@click.command()
@task_argument
@click.option(
    "--to", "target", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The file to replace."
)
@click.option(
    "--from",
    "reference",
    default="best",
    show_default=True,
    metavar="N",
    shell_complete=complete_iteration,
    help="The source to port.",
)
@click.option("--file", "name", metavar="NAME", help="Source file to port, if several fit.")
@click.option("--dry-run", is_flag=True, help="Only show the difference.")
@click.option("--force", is_flag=True, help="Write even if the repository is not clean.")
@click.option("--anyway", is_flag=True, help="Write even if a model does not keep this source.")
@state_option
def port(
    task: str | None,
    target: Path,
    reference: str,
    name: str | None,
    dry_run: bool,
    force: bool,
    anyway: bool,
    state: Path | None,
) -> None:
    """Copy the best solution into a file in your project.

    Shows the difference first. Writes only if the file's repository is clean or --force is given, and if no model was
    slower with this source or --anyway is given; otherwise exits with 1.
    """
    from kernbench.upstream import model_gate
    from kernbench.upstream import port as porting

    loaded, journal = opened(task, state)
    plan = porting.plan(loaded, journal, target, reference, name)
    lines = plan.diff()
    echo_diff(lines)
    if not lines and plan.old == plan.new:
        click.echo(f"{target} is already the same as {plan.name}", err=True)
        return
    said = model_gate.gate(loaded, journal, plan.source_hash)
    for remark in said.remarks:
        click.echo(f"kernbench: {remark}", err=True)
    if dry_run:
        if said.obstacle:
            click.echo(f"kernbench: it would not be written: {said.obstacle}", err=True)
        return
    obstacle = ("" if anyway else said.obstacle) or ("" if force else porting.obstacle(target))
    if obstacle:
        click.echo(f"kernbench: not written: {obstacle}", err=True)
        sys.exit(1)
    porting.write(plan)
    if said.refused:
        said.overrule(journal.state, "port", target.name)
        click.echo(f"kernbench: written anyway: {said.refusal}", err=True)
    click.echo(f"wrote {plan.name} to {target}", err=True)
    if plan.others:
        names = ", ".join(plan.others)
        click.echo(
            f"kernbench: not ported: {names}; the speedup may depend on compile flags or launch code in them", err=True
        )


COMMANDS = (export, port)
