"""The guide's pages, which ship with the program: the command and the screen list the same ones in the same order."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "guide"
GROUPS = {
    "Start": "first keys tasks words troubleshooting",
    "Numbers": "numbers trust best findings ncu",
    "Work": "log sharing rank capture transfer suites fleet sweep ci agents scripting configuration remote story",
    "Reference": "cuda host kernels architecture",
    "GPUs": "t4 a100 h100 b200",
}
OTHERS = "More"
"""The group of pages that are in none."""


def pages() -> dict[str, Path]:
    """The pages by topic, in the order of the groups."""
    found = {path.stem: path for path in sorted(FOLDER.glob("*.md"))}
    order = [topic for topics in GROUPS.values() for topic in topics.split() if topic in found]
    return {topic: found[topic] for topic in (*order, *(topic for topic in found if topic not in order))}


def group(topic: str) -> str:
    return next((name for name, topics in GROUPS.items() if topic in topics.split()), OTHERS)


def title(path: Path) -> str:
    """The first heading of a page."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix("# ") for line in lines if line.startswith("# "))
