"""campaign: an agent works through many tasks; confirmed bests are promoted."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernbench.commands.run import WRONG, read_device, run_until_signal

if TYPE_CHECKING:
    from kernbench.campaign.campaign_file import Event

BUDGET = re.compile(r"(\d+)/(\d+(?:\.\d+)?)")


def read_budget(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[int, float]:
    found = BUDGET.fullmatch(text)
    if found is None or int(found[1]) < 1 or float(found[2]) <= 0:
        raise click.BadParameter(f"{text!r} is not RUNS/MINUTES, such as 30/60")
    return int(found[1]), float(found[2])


@click.command(short_help="Let an agent work through many tasks, each in a worktree.")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--agent", required=True, metavar="COMMAND", help="Shell command that works on one task.")
@click.option("--budget", required=True, callback=read_budget, metavar="RUNS/MINUTES", help="For each task.")
@click.option("--review", metavar="COMMAND", help="Shell command that reads a diff and exits with 0 to promote it.")
@click.option(
    "--sandbox",
    is_flag=False,
    flag_value="bwrap",
    metavar="[COMMAND]",
    help="Run agent and workers in bwrap, or by a command such as `docker run ...`.",
)
@click.option("--network", is_flag=True, help="In bwrap: leave the network to the agent; workers have none.")
@click.option("--new", "is_new", is_flag=True, help="Begin another campaign instead of resuming the last one.")
@click.option("--device", metavar="D", help="cpu, cuda:N or idle. Default: the task's device.")
@click.option("--python", metavar="P", help="Python interpreter that has torch, if not this one.")
@click.option("--json", "as_json", is_flag=True, help="Print the events as JSON lines instead of a table.")
def campaign(folder: Path, budget: tuple[int, float], sandbox: str | None, **given: Any) -> None:
    """Let an agent work through the tasks of DIR, or those that its CAMPAIGN.md lists; promote confirmed bests.

    Each task gets a git worktree, a branch and its own budget. Started again, it goes on where it stopped. Exits with 1
    if a task failed or was skipped. `kernbench guide agents`.

    \b
    kernbench campaign kernels --agent "$PWD/agent.sh" --budget 30/60
    kernbench campaign kernels --agent "$PWD/agent.sh" --budget 30/60 --sandbox --network --review ./review.sh
    """
    from kernbench.campaign import campaign_file, campaign_table, campaign_tasks
    from kernbench.campaign.agent_run import AgentOptions
    from kernbench.campaign.campaign_run import Campaign, CampaignOptions
    from kernbench.campaign.sandbox import Sandbox

    tasks = campaign_tasks.find(folder.resolve())
    options = AgentOptions(
        agent=given["agent"],
        runs=budget[0],
        minutes=budget[1],
        sandbox=Sandbox.parse(sandbox),
        network=given["network"],
        device=read_device(given["device"]),
        python=given["python"],
    )
    with campaign_file.alone(folder.resolve()):
        told = _as_json if given["as_json"] else _in_words
        file = campaign_file.opened(folder.resolve(), given["is_new"], told)

        async def main() -> int:
            await Campaign(file, CampaignOptions(options, given["review"])).run(tasks)
            return 0

        try:
            code = run_until_signal(main())
        finally:
            path = campaign_table.write(file, tasks)
        if not given["as_json"]:
            for line in campaign_table.lines(file, tasks):
                click.echo(line)
        click.echo(f"wrote {os.path.relpath(path)}", err=True)
        if code:
            click.echo("stopped; the same command goes on from here", err=True)
        outcomes = [row[1] for row in campaign_table.rows(file, tasks)]
    sys.exit(code or (WRONG if {"failed", "skipped"} & set(outcomes) else 0))


def _as_json(event: Event) -> None:
    click.echo(json.dumps(event))


def _in_words(event: Event) -> None:
    about = event.get("outcome") or event.get("said") or event.get("branch") or ""
    why = f": {event['why']}" if event.get("why") else ""
    click.echo(f"{event['task']}  {event['event']}  {about}{why}".rstrip(), err=True)


COMMANDS = (campaign,)
