"""mcp: the workbench as tools, for programs that edit kernels."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from harness.shared import format as fmt
from harness.shared.errors import UserError
from kernbench.commands.completion import complete_task
from kernbench.commands.run import read_options, run_until_signal

EXTRA = "`pip install 'kernbench[mcp]'`"
ENDED_BY_SIGNAL, CLIENT_LEFT = 130, 141


@click.command("mcp", short_help="Serve tasks as tools to a program that edits kernels (MCP).")
@click.argument("tasks", nargs=-1, metavar="[TASKS or DIR]...", shell_complete=complete_task)
@click.option("--runs", type=click.IntRange(min=1), metavar="N", help="Refuse to run more than this often.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    metavar="M",
    help="Refuse to run or profile later than this after the first call.",
)
@click.option(
    "--spent",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Count the runs in this file, so that another server goes on from there.",
)
@click.option("--join", type=click.Path(exists=True), metavar="SOCKET", help="Pass lines on to the server there.")
@click.option("--device", metavar="D", help="cpu, cuda:N or idle. Default: the task's device.")
@click.option("--python", metavar="P", help="Python interpreter that has torch, if not this one.")
@click.option("--deadline", multiple=True, metavar="STEP=S", help="Time limit for a step, as in `kernbench run`.")
@click.option("--budget", type=float, default=100.0, show_default=True, metavar="MS", help="Timing budget per case.")
def serve(
    tasks: tuple[str, ...], runs: int | None, minutes: float | None, spent: Path | None, join: str | None, **given: Any
) -> None:
    """Serve tasks over the Model Context Protocol, on stdin and stdout, until stdin ends.

    TASKS are tasks or folders of tasks; without them, the task that contains this folder, or all that can be opened
    from here. A client starts this command itself: `kernbench guide agents` shows its settings.

    \b
    kernbench mcp softmax_host --runs 50 --minutes 120
    kernbench mcp kernels --device cuda:0
    """
    if join is not None:
        from kernbench.mcp_server import joining

        joining.pass_on(join)
    try:
        import_module("mcp.server.mcpserver")
    except ImportError:  # not there, or version 1
        raise UserError(f"`kernbench mcp` needs version 2 of the MCP Python SDK: {EXTRA} installs it") from None
    import asyncio

    from kernbench.mcp_server import served_tasks
    from kernbench.mcp_server.desk import Desk
    from kernbench.mcp_server.run_budget import RunBudget
    from kernbench.mcp_server.stdio import serve
    from kernbench.mcp_server.tools import make_server

    served = served_tasks.find(tasks)
    unused = {"case": None, "grid": False, "baseline": None, "condition": None, "no_confirm": False}
    options = read_options({**given, **unused})

    if sys.stdin.isatty():
        what = fmt.plural(len(served.folders), "task")
        click.echo(f"serving {what} on stdin and stdout; a client starts this: `kernbench guide agents`", err=True)

    async def main() -> int:
        desk = Desk(served, options, RunBudget(runs, minutes, spent=spent))
        serving = asyncio.create_task(serve(make_server(desk)))
        try:
            await asyncio.wait([serving])
        except asyncio.CancelledError:
            await desk.close()
            os._exit(ENDED_BY_SIGNAL)  # a thread of the SDK waits for a line on stdin, and only a line ends that
        await desk.close()
        code = 0
        try:
            await serving
        except* BrokenPipeError:
            code = CLIENT_LEFT
        return code

    sys.exit(run_until_signal(main()))


COMMANDS = (serve,)
