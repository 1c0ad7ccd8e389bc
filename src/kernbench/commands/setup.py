"""new and doctor: getting started."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kernbench.commands.completion import complete_shipped, complete_task


@click.command()
@click.argument("name")
@click.option(
    "--from",
    "source",
    metavar="TASK",
    shell_complete=complete_shipped,
    help="Copy this task's sources instead of a template.",
)
@click.option("--host", is_flag=True, help="Start with C++ for the CPU instead of Triton.")
@click.option("--cuda", is_flag=True, help="Start with CUDA C++ instead of Triton.")
def new(name: str, source: str | None, host: bool, cuda: bool) -> None:
    """Create a ready-to-run task. Never overwrites files."""
    from kernbench.task import lookup, scaffold

    if host + cuda + bool(source) > 1:
        raise click.UsageError("use only one of --host, --cuda and --from")
    origin = lookup.find_task(source, to_edit=False) if source else None
    template = "host" if host else "cuda" if cuda else "triton"
    folder = scaffold.create(name, Path.cwd(), source=origin, template=template)
    click.echo(f"created {folder}; `kernbench {name}` opens it", err=True)


@click.command()
@click.argument("task", required=False, shell_complete=complete_task)
@click.option("--python", metavar="P", help="Python interpreter that has torch, if not this one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per check.")
@click.option(
    "--repo",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Check this repository instead: default branch, clean, up to date with its upstream; exits with 1 if not.",
)
def doctor(task: str | None, python: str | None, as_json: bool, repo: Path | None) -> None:
    """Check this machine and suggest fixes."""
    from kernbench.doctor import installation as checks
    from kernbench.doctor import repository
    from kernbench.task import lookup
    from kernbench.tui import textual_private

    if repo is not None:
        found = repository.checks(repo)
    else:
        found = checks.checks(python=python, folder=lookup.find_task(task, to_edit=False) if task else None)
        if missing := textual_private.fallbacks():
            says = f"private names not found: {', '.join(missing)}"
            found.append(checks.Check("Textual", None, says, "The screen uses plain fallbacks instead."))
    click.echo(checks.as_json(found) if as_json else checks.report(found, bad="NO" if repo else "MISSING"))
    if repo is not None and not all(check.ok for check in found):
        sys.exit(1)


COMMANDS = (new, doctor)
