"""What happened in a campaign, as a table: on the terminal and in campaign.md."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.shared import format as fmt
from kernbench.atomic_write import written_aside
from kernbench.campaign.campaign_file import CampaignFile
from kernbench.log.entries.entry_text import cells
from kernbench.report import columns

NAME = "campaign.md"
TITLES = ("task", "outcome", "best", "runs", "minutes", "branch", "why")
WAITING = {"ready": "waiting", "begun": "waiting", "started": "interrupted", "ended": "interrupted"}
"""What to call a task that has not come to its end, by its last event."""


def rows(file: CampaignFile, tasks: Iterable[str]) -> list[tuple[str, ...]]:
    return [_row(name, file.seen(name)) for name in tasks]


def _row(name: str, seen: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    branch = seen["ready"]["branch"] if "ready" in seen else ""
    if "done" not in seen:
        last = next(reversed(seen.values()), None)
        is_skipped = last is not None and last["event"] == "skipped"
        outcome = "skipped" if is_skipped else WAITING.get(last["event"], "interrupted") if last else "waiting"
        return name, outcome, "", "", "", branch, last["why"] if last is not None and is_skipped else ""
    done = seen["done"]
    minutes = fmt.plain(round(done.get("seconds", 0.0) / 60, 1))
    return name, done["outcome"], done.get("best", ""), str(done.get("runs", "")), minutes, branch, done["why"]


def lines(file: CampaignFile, tasks: Iterable[str]) -> list[str]:
    """For a terminal: the reasons stand below."""
    found = rows(file, tasks)
    shown = columns([TITLES[:5], *(row[:5] for row in found)], left={0, 1, 2})
    return [*(line.rstrip() for line in shown), *(f"{row[0]}: {row[6]}" for row in found if row[6])]


def write(file: CampaignFile, tasks: Iterable[str]) -> Path:
    """campaign.md, with the branch and the worktree of every attempt, also of those that failed."""
    names = list(tasks)
    rules = ["---", "---", "---", "---:", "---:", "---", "---"]
    table = [cells(list(TITLES)), cells(rules), *(cells(list(row)) for row in rows(file, names))]
    places = [f"- {name}: {os.path.relpath(file.place(name) / 'tree', file.folder)}" for name in names]
    made = [place for place, name in zip(places, names, strict=True) if (file.place(name) / "tree").is_dir()]
    text = "\n".join([f"# Campaign {file.name}", "", *table, "", "Worktrees, next to this file:", "", *made, ""])
    path = file.folder / NAME
    with written_aside(path, text.encode("utf-8", "replace")) as move:
        move()
    return path
