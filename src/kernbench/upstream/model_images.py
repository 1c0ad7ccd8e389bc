"""Pictures of a decoder's output for a pull request: without the kernels, with them, and the difference."""

from __future__ import annotations

import contextlib
import re
from datetime import datetime
from pathlib import Path

from kernbench.upstream import model_tables
from kernbench.upstream.model_gate import ModelGate

NAME = re.compile(r"[\w.-]+\.png")
FOLDER = "images"
SLACK_S = 2.0
"""A row's time is in whole seconds."""


def files(said: ModelGate) -> dict[str, bytes]:
    """By their names in the pull request. A later step of the model overwrites them: then a row has none."""
    found = {}
    for row in model_tables.timed(said):
        for path in map(Path, row.images):
            with contextlib.suppress(OSError, ValueError):
                is_of_row = path.stat().st_mtime <= datetime.fromisoformat(row.at).timestamp() + SLACK_S
                if is_of_row and NAME.fullmatch(path.name):
                    found[f"{FOLDER}/{path.name}"] = path.read_bytes()
    return found


def section(said: ModelGate, found: dict[str, bytes]) -> list[str]:
    """Markdown lines, already safe: a file's name has no character that means anything there."""
    lines = []
    for row in model_tables.timed(said):
        names = [f"{FOLDER}/{Path(path).name}" for path in row.images]
        if names and all(name in found for name in names):
            lines += [*_table(names), ""]
    return ["### Output", "", *lines] if lines else []


def _table(names: list[str]) -> list[str]:
    shown = [f"![{Path(name).stem}]({name})" for name in names]
    heads = ["original", "with the kernels", "difference, brightened"][: len(names)]
    return [f"| {' | '.join(heads)} |", f"|{' --- |' * len(names)}", f"| {' | '.join(shown)} |"]
