"""CAMPAIGN.md: a table of the tasks that one capture has written, the largest share first."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.shared import format as fmt
from kernbench.capture.captured_task import shapes
from kernbench.capture.command_run import Recorded, SiteRecord
from kernbench.machine.plain_text import one_line
from kernbench.task.lookup import ProjectError

FILE = "CAMPAIGN.md"
HEADER = ("task", "share", "calls", "shapes", "command")
MOST_SHAPES = 3
"""Forms of call whose shapes are shown."""


@dataclass(frozen=True)
class Row:
    folder: Path
    share: float
    record: SiteRecord


def refuse_existing(folder: Path) -> None:
    if (folder / FILE).exists():
        raise ProjectError(f"{folder / FILE} already exists; choose another folder with --into")


def write(folder: Path, recorded: Recorded, rows: Sequence[Row], python: str | None) -> Path:
    """`python` if the tasks need another than kernbench's."""
    lines = [
        "# Campaign",
        "",
        f"Tasks captured from `{one_line(shlex.join(recorded.command))}`, by their share of the operators' time.",
        "",
        _line(HEADER),
        _line(["---"] * len(HEADER)),
        *(_line(_cells(row, python)) for row in rows),
    ]
    path = folder / FILE
    with path.open("x", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _cells(row: Row, python: str | None) -> list[str]:
    words = ["kernbench", "run", os.path.relpath(row.folder), *(["--python", python] if python else [])]
    return [
        row.folder.name,
        fmt.share(row.share),
        str(row.record.calls),
        shapes_text(row.record),
        f"`{shlex.join(words)}`",
    ]


def shapes_text(record: SiteRecord) -> str:
    """`x 1x36x256, scale 1x1x256; x 1x64x256, scale 1x1x256; 2 more`."""
    shown = [
        ", ".join(f"{name} {'x'.join(map(str, size)) or 'scalar'}" for name, size in shapes(form).items())
        for form in record.forms[:MOST_SHAPES]
    ]
    more = len(record.forms) - MOST_SHAPES
    return "; ".join([*(text or "in objects" for text in shown), *([f"{more} more"] if more > 0 else [])])
