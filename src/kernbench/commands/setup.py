"""new, doctor and completion: getting started."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kernbench.commands.run import complete_task


def complete_any(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Tasks to copy: the project's and the shipped ones."""
    from kernbench.task import lookup

    shipped = [name for name in lookup.shipped_tasks() if name.startswith(incomplete)]
    return sorted({*complete_task(ctx, param, incomplete), *shipped})


@click.command()
@click.argument("name")
@click.option(
    "--from",
    "source",
    metavar="TASK",
    shell_complete=complete_any,
    help="Copy this task's sources instead of a template.",
)
@click.option("--host", is_flag=True, help="A C++ kernel for the CPU instead of a Triton one.")
@click.option("--cuda", is_flag=True, help="A CUDA C++ kernel instead of a Triton one.")
def new(name: str, source: str | None, host: bool, cuda: bool) -> None:
    """Write a task that runs at once; nothing is ever overwritten."""
    from kernbench.task import lookup, scaffold

    if host + cuda + bool(source) > 1:
        raise click.UsageError("--host, --cuda and --from are three ways to begin; choose one")
    origin = lookup.find_task(source, to_edit=False) if source else None
    template = "host" if host else "cuda" if cuda else "triton"
    folder = scaffold.create(name, Path.cwd(), source=origin, template=template)
    click.echo(f"{folder} is ready; `kernbench {name}` opens it", err=True)


@click.command()
@click.argument("task", required=False, shell_complete=complete_task)
@click.option("--python", metavar="P", help="The Python that has torch, if it is not this one.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per check.")
@click.option(
    "--repo",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Look at this repository instead: default branch, clean, in step with its upstream; exit 1 if not.",
)
def doctor(task: str | None, python: str | None, as_json: bool, repo: Path | None) -> None:
    """What is here, what is missing, and how to mend it."""
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
            found.append(checks.Check("Textual", None, says, "Without them the screen has plain fallbacks."))
    click.echo(checks.as_json(found) if as_json else checks.report(found, bad="NO" if repo else "MISSING"))
    if repo is not None and not all(check.ok for check in found):
        sys.exit(1)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the shell's completion script: eval "$(kernbench completion bash)"."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        sys.exit(2)
    click.echo(found(ctx.find_root().command, {}, "kernbench", "_KERNBENCH_COMPLETE").source())


COMMANDS = (new, doctor, completion)
