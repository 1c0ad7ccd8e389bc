"""new, doctor and demo: getting started."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernbench.commands.completion import complete_model, complete_shipped, complete_task
from kernbench.commands.run import TOUR, need_terminal, open_workbench

if TYPE_CHECKING:
    from kernbench.doctor.installation import Check


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
@click.pass_context
def new(ctx: click.Context, /, name: str, source: str | None, host: bool, cuda: bool) -> None:
    """Create a ready-to-run task. Never overwrites files."""
    from kernbench.task import lookup, scaffold

    if host + cuda + bool(source) > 1:
        raise click.UsageError("use only one of --host, --cuda and --from")
    origin = lookup.find_task(source, to_edit=False) if source else None
    template = "host" if host else "cuda" if cuda else "triton"
    folder = scaffold.create(name, Path.cwd(), source=origin, template=template)
    root = ctx.find_root().command
    is_command = isinstance(root, click.Group) and name in root.list_commands(ctx)
    words = f"open {name}" if is_command else name
    click.echo(f"created {folder}; `kernbench {words}` opens it", err=True)


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
@click.option(
    "--model",
    metavar="NAME",
    shell_complete=complete_model,
    help="Check what this model of `transfer` needs instead; exits with 1 if something is missing.",
)
def doctor(task: str | None, python: str | None, as_json: bool, repo: Path | None, model: str | None) -> None:
    """Check this machine and suggest fixes."""
    from kernbench.doctor import installation as checks
    from kernbench.doctor import model_needs, repository
    from kernbench.task import lookup

    if sum(given is not None for given in (task, repo, model)) > 1:
        raise click.UsageError("use only one of TASK, --repo and --model")
    if repo is not None:
        found = repository.checks(repo)
    elif model is not None:
        found = model_needs.checks(model, python)
    else:
        found = checks.checks(python=python, folder=lookup.find_task(task, to_edit=False) if task else None)
        found += _textual()
    click.echo(checks.as_json(found) if as_json else checks.report(found, bad="NO" if repo or model else "MISSING"))
    if repo is not None and not all(check.ok for check in found):
        sys.exit(1)
    if model is not None and any(check.ok is False for check in found):
        sys.exit(1)


def _textual() -> list[Check]:
    """Only if something is wrong with it; it is the one package that the other commands do without."""
    from kernbench.doctor.installation import Check
    from kernbench.tui import textual_private

    try:
        missing = textual_private.fallbacks()
    except ModuleNotFoundError:
        return [
            Check("Textual", False, "not installed", f"`{sys.executable} -m pip install textual` brings the screen.")
        ]
    says = f"private names not found: {', '.join(missing)}"
    return [Check("Textual", None, says, "The screen uses plain fallbacks instead.")] if missing else []


@click.command(short_help="Open a task to try things on, with a tour of one minute.")
@click.option("--tour", is_flag=True, help="Show the tour again; on the first start it comes by itself.")
@click.option("--python", metavar="P", help="Python interpreter that has torch, if not this one.")
@click.option("--ascii", "ascii_only", is_flag=True, help="Use only ASCII characters in the panes.")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal, for selecting text.")
@click.pass_context
def demo(ctx: click.Context, /, tour: bool, **given: Any) -> None:
    """Open a task to try things on: a Triton kernel if there is a GPU, else C++ for the CPU.

    In a checkout it is the task in kernels/. An installed kernbench copies it to a folder of yours, which it asks for
    once.
    """
    from dataclasses import replace

    from kernbench.demo import demo_memory, demo_task, tour_steps
    from kernbench.suites import opening

    need_terminal()
    on_gpu = opening.device_here() == "cuda"
    task, place = demo_task.name(on_gpu), demo_memory.place(os.environ)
    memory = demo_memory.load(place)
    folder = demo_task.in_checkout(task)
    if folder is None:
        folder = _copied(task, memory.folder)
        memory = replace(memory, folder=str(folder.parent))
    if tour or not memory.tour_shown:
        ctx.meta[TOUR] = tour_steps.of_task(folder, task == demo_task.ON_GPU)
    demo_memory.save(place, replace(memory, tour_shown=True))
    ctx.invoke(open_workbench, task=str(folder), **given)


def _copied(task: str, before: str) -> Path:
    """The copy of the task in the folder of an earlier demo, or a new one where the user wants it."""
    from kernbench.demo import demo_task

    if before and (known := demo_task.copy_in(Path(before), task)):
        return known
    asked = click.prompt(f"The demo edits a copy of {task}. Folder for it", default=before or "kernbench-demo")
    folder = Path(asked).expanduser().absolute()
    if known := demo_task.copy_in(folder, task):
        return known
    copy = demo_task.copy(task, folder)
    click.echo(f"copied {task} to {copy}", err=True)
    return copy


COMMANDS = (new, doctor, demo)
