"""capture: tasks from what a program does."""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.shared import format as fmt
from harness.shared.errors import UserError
from kernbench.commands.run import run_until_signal

if TYPE_CHECKING:
    from kernbench.capture.command_run import Recorded, SiteRecord


def site_name(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    if text is None:
        return None
    module, _, inside = text.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *inside.split("."))):
        raise click.BadParameter(f"{text!r} is not MODULE:NAME, such as package.layers:Norm.forward")
    if module == "__main__":
        raise click.BadParameter("a task cannot import a script; move the function to a module")
    return text


@click.command(short_help="Make a task from the calls that a program makes.")
@click.option("--site", callback=site_name, metavar="MODULE:NAME", help="A Python function; NAME may be Class.method.")
@click.option("--new", "name", metavar="TASK", help="The task to create, here or in kernels/.")
@click.option("--all", "every", is_flag=True, help="Make a task of every function that takes at least --min-share.")
@click.option(
    "--min-share",
    type=click.FloatRange(0.0, 100.0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="PERCENT",
    help="With --all: the least share of the operators' time.",
)
@click.option("--into", type=click.Path(path_type=Path), metavar="DIR", help="With --all: the folder for the tasks.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def capture(
    site: str | None,
    name: str | None,
    every: bool,
    min_share: float,
    into: Path | None,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND, record every call of a function, and write a task with these calls as its cases.

    The task runs at once: its reference and its first solution are the original function, its inputs are drawn like
    those that were recorded, and its weighted geomean is by time in the program. Never overwrites files.

    With --all, COMMAND runs twice: first to find the functions, then to record them. CAMPAIGN.md lists their tasks.

    \b
    kernbench capture --site layers:gated_norm --new gated_norm -- python step.py
    kernbench capture --all --min-share 1 --into campaign -- python step.py
    """
    from kernbench.capture import captured_task, command_run

    if every:
        if site is not None or name is not None or into is None:
            raise click.UsageError("--all goes with --into DIR, not with --site or --new")
        _capture_all(command, min_share / 100.0, into)
        return
    if site is None or name is None or into is not None:
        raise click.UsageError("use --site MODULE:NAME --new TASK, or --all --into DIR")
    folder = _place(name)
    recorded = _recorded(command, [site])
    found = recorded.sites[site]
    command_run.refuse_unseen(recorded, found)
    captured_task.write(folder, recorded, found)
    _say(recorded, found)
    click.echo(f"created {folder}; `kernbench {_named(folder, recorded)}` opens it", err=True)


def _capture_all(command: tuple[str, ...], least_share: float, into: Path) -> None:
    from kernbench.capture import candidates, captured_task, command_run, task_table

    into = into.absolute()
    task_table.refuse_existing(into)
    chosen = candidates.choose(_recorded(command, (), look=True).processes, least_share)
    if not chosen:
        raise UserError(f"no function of the program takes {fmt.percent(least_share)} or more without matrix products")
    click.echo(f"{fmt.plural(len(chosen), 'function')} to record; running the command again", err=True)
    names = candidates.task_names([item.site for item in chosen])
    recorded = _recorded(command, names)
    rows = []
    for item in chosen:
        found, folder = recorded.sites[item.site], into / names[item.site]
        try:
            command_run.refuse_unseen(recorded, found)
            captured_task.write(folder, recorded, found)
        except UserError as refusal:
            click.echo(f"left out: {refusal}", err=True)
        else:
            click.echo(str(folder))
            rows.append(task_table.Row(folder, item.share, found))
    if not rows:
        raise UserError("no task could be made of any of them")
    table = task_table.write(into, recorded, rows, _other_python(recorded))
    click.echo(f"{table} lists {fmt.plural(len(rows), 'task')}", err=True)


def _recorded(command: tuple[str, ...], sites: Iterable[str], look: bool = False) -> Recorded:
    """What the command prints goes to stderr: stdout is for the result."""
    from kernbench.capture import command_run

    found: list[Recorded] = []

    async def main() -> int:
        echo = functools.partial(click.echo, err=True, nl=False)
        found.append(await command_run.record(command, sites, echo, look))
        return 0

    code = run_until_signal(main())
    if not found:
        sys.exit(code)
    return found[0]


def _place(name: str) -> Path:
    """Where the task goes; a name that cannot be used is refused before the command runs."""
    from kernbench.capture import captured_task
    from kernbench.task import lookup

    here = Path.cwd()
    folder = (here / lookup.TASKS_FOLDER if (here / lookup.TASKS_FOLDER).is_dir() else here) / name
    captured_task.refuse_name(folder)
    return folder


def _say(recorded: Recorded, found: SiteRecord) -> None:
    """What was recorded, and what was not."""
    forms = fmt.plural(len(found.forms), "form")
    said = [f"{found.site}: {fmt.plural(found.calls, 'call')} in {forms}, {fmt.fixed(found.ms, 1)} ms"]
    said += [f"{fmt.plural(found.left_out, 'call')} of other forms left out"] if found.left_out else []
    said += [f"{fmt.plural(found.in_graphs, 'call')} into a CUDA graph not seen"] if found.in_graphs else []
    said += [f"the command ended with exit code {recorded.exit_code}"] if recorded.exit_code else []
    click.echo("; ".join(said), err=True)


def _named(folder: Path, recorded: Recorded) -> str:
    """The words that open the task: with the command's own Python, if that is another."""
    other = _other_python(recorded)
    return shlex.join([os.path.relpath(folder), *(["--python", other] if other else [])])


def _other_python(recorded: Recorded) -> str | None:
    """The Python that ran the sites, if it is not this one."""
    own = os.path.realpath(sys.prefix)
    return next((python for python in recorded.pythons if os.path.realpath(Path(python).parents[1]) != own), None)


COMMANDS = (capture,)
