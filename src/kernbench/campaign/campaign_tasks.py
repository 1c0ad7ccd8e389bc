"""Which tasks a campaign works on: those that CAMPAIGN.md lists, or all in the folder."""

from __future__ import annotations

import re
from pathlib import Path

from harness.shared.errors import UserError
from kernbench.task.lookup import TASK_FILE

LIST = "CAMPAIGN.md"
LINK = re.compile(r"\[[^\]]*\]\(([^)]*)\)")


def find(folder: Path) -> dict[str, Path]:
    """The tasks' folders by their names: their paths in the folder."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; a campaign works through the tasks of one")
    listed = folder / LIST
    if listed.is_file():
        named = _first_column(listed.read_text(encoding="utf-8", errors="replace"))
        found = [name for name in named if (folder / name / TASK_FILE).is_file()]
        problem = f"{listed} lists no task: the first column of its table has to name folders with a {TASK_FILE}"
    else:
        found = sorted(path.parent.name for path in folder.glob(f"*/{TASK_FILE}"))
        problem = f"{folder} has no tasks: none of its folders has a {TASK_FILE}"
    if not found:
        raise UserError(problem)
    return {name: (folder / name).resolve() for name in found}


def _first_column(text: str) -> list[str]:
    """The cells, each once, without marks of Markdown."""
    rows = [line.strip() for line in text.splitlines() if line.strip().startswith("|")]
    cells = [row.strip("|").split("|")[0].strip() for row in rows]
    names = [(LINK.sub(r"\1", cell) if LINK.fullmatch(cell) else cell).strip("`* ").rstrip("/") for cell in cells]
    return [name for name in dict.fromkeys(names) if name and not Path(name).is_absolute() and ".." not in name]
