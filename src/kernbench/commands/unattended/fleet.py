"""fleet: the nodes of a Ray cluster, and what kernbench runs where."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from harness.shared import format as fmt
from kernbench.commands.run import run_until_signal

HEAD = ("node", "address", "has", "slot", "runs", "for", "done")


@click.command(short_help="Show the nodes of a Ray cluster and what runs where.")
@click.option("--ray", "address", default="auto", show_default=True, metavar="auto|HOST:PORT", help="The cluster.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON line per node and per slot instead of a table.")
def fleet(address: str, as_json: bool) -> None:
    """Show the nodes of a Ray cluster, their GPUs, and the problems that run there now."""

    async def main() -> int:
        from kernbench.fleet.driver_process import DriverProcess

        async with DriverProcess.started("look", address) as driver:
            about = await driver.connected()
        for line in _json(about) if as_json else _table(about):
            click.echo(line)
        return 0

    sys.exit(run_until_signal(main()))


def _json(about: dict[str, Any]) -> list[str]:
    nodes = [json.dumps({"event": "node", **node}) for node in about["nodes"]]
    return nodes + [json.dumps({"event": "slot", **slot}) for slot in about["slots"]]


def _table(about: dict[str, Any]) -> list[str]:
    from kernbench import report

    rows = [HEAD]
    for node in about["nodes"]:
        has = ", ".join([fmt.plural(node["gpus"], "GPU")] * bool(node["gpus"]) + [fmt.plural(node["cpus"], "CPU")])
        slots = [slot for slot in about["slots"] if slot["node"] == node["node"]]
        first = (node["node"], node["address"], has)
        for place, slot in enumerate(slots):
            doing = (slot["job"] or "nothing", fmt.seconds(slot["seconds"]) if slot["job"] else "", str(slot["done"]))
            rows.append((*(first if place == 0 else ("", "", "")), _name(slot), *doing))
        if not slots:
            rows.append((*first, "", "", "", ""))
    return report.columns(rows, left=(0, 1, 2, 3, 4))


def _name(slot: dict[str, Any]) -> str:
    """A GPU goes by its name and the beginning of its UUID."""
    return f"{slot['device']} {slot['uuid'][:12]}" if slot["uuid"] else slot["device"]


COMMANDS = (fleet,)
