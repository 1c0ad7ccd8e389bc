"""know: what the project's own logs hold about a technique."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernbench.machine.plain_text import json_text

if TYPE_CHECKING:
    from kernbench.log.knowledge import Tried


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="WORD...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per entry.")
def know(words: tuple[str, ...], as_json: bool) -> None:
    """Search the logs for what was tried, and what came of it.

    Finds the entries that mention every word, in the log of every task found from here and of the shipped kernels, the
    largest gain first. Quote words that belong together.

    \b
    kernbench know spills
    kernbench know "16-byte loads" shuffles
    """
    from harness.shared import format as fmt
    from kernbench.log import knowledge

    known = knowledge.entries(knowledge.logs())
    found = knowledge.search(known, words)
    for item in found:
        if as_json:
            click.echo(json_text(json.dumps(_fields(item), allow_nan=False)))
            continue
        click.echo(_result(item))
        click.echo(f"    {item.title}")
        click.echo(f"    {' · '.join(_where(item))}")
    logs = len({item.folder for item in known})
    entries = f"{len(known)} entries" if len(known) != 1 else "1 entry"
    if not found:
        click.echo(f"none of the {entries} in {fmt.plural(logs, 'log')} mentions {shlex.join(words)}", err=True)
    else:
        click.echo(f"{len(found)} of {entries} in {fmt.plural(logs, 'log')}", err=True)


def _result(item: Tried) -> str:
    times = f"{item.row.label}: {item.times}" if item.row else ""
    return "  ".join(part for part in (f"{item.task} #{item.number}", item.outcome, item.speedups, times) if part)


def _where(item: Tried) -> list[str]:
    """The commands that show the entry and, if both sources are stored here, what changed since the best before it."""
    return [shlex.join(["kernbench", *command]) for command in (_show(item), _diff(item)) if command]


def _show(item: Tried) -> list[str]:
    return ["show", item.task, str(item.number)]


def _diff(item: Tried) -> list[str]:
    from kernbench.task.lookup import STATE_FOLDER

    if item.best is None or not (item.source and item.best.source):
        return []
    sources = Path(item.folder) / STATE_FOLDER / "sources"
    is_here = all(any(sources.glob(f"{name}*")) for name in (item.source, item.best.source))
    return ["diff", item.task, str(item.best.number), str(item.number)] if is_here else []


def _fields(item: Tried) -> dict[str, Any]:
    return {
        "event": "known",
        "task": item.task,
        "iteration": item.number,
        "source": item.source,
        "hypothesis": item.hypothesis,
        "outcome": item.outcome,
        "device_name": item.device,
        "geomean": item.geomean,
        "best_iteration": item.best.number if item.best else None,
        "best_geomean": item.best.geomean if item.best else None,
        "vs_best": item.direct,
        "row": {"label": item.row.label, "before_us": item.row.before, "after_us": item.row.after}
        if item.row
        else None,
        "commands": _where(item),
    }


COMMANDS = (know,)
