"""export: the log for reviewers."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kernbench.commands.completion import complete_iteration
from kernbench.commands.history import located, opened, state_option
from kernbench.commands.run import task_argument
from kernbench.export.formats import FORMATS, SOLUTIONS


@click.command(short_help="Export the log, or an imported task's solution, to a file.")
@task_argument
@click.option(
    "--format",
    "kind",
    type=click.Choice([*FORMATS, *SOLUTIONS]),
    required=True,
    help="pr and kda write a folder, the others one file.",
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
    from kernbench.export.write_files import write_all
    from kernbench.suites.exported_solution import exported

    loaded, journal = opened(task, state)
    content = exported(loaded, journal, kind, after)
    files = content if isinstance(content, dict) else {"": content}
    if target == "-":
        if isinstance(content, dict):
            raise click.UsageError(f"--format {kind} writes a folder; name it with -o")
        sys.stdout.buffer.write(content)
        return
    paths = {Path(target) / name: data for name, data in files.items()}
    for path in write_all(paths, force, loaded, journal.state):
        click.echo(f"wrote {path}", err=True)


COMMANDS = (export,)
