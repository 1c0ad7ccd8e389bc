"""The folder that brings kernels into a command.

harness/transfer/site_injection.py gets into every Python process of the command, and notes here which sites and entries
ran.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.shared.lines import UNREADABLE, finite, to_dict
from harness.shared.model_step import ModelFile, Patch
from kernbench.programs import injected
from kernbench.worker.process import harness_folder


@dataclass(frozen=True)
class Ran:
    """What the processes of a run noted."""

    sites: frozenset[str]
    entries: frozenset[str]
    problem: str = ""
    """Why the entries could not be put in."""
    device_name: str = ""
    torch: str | None = None

    def missing(self, model: ModelFile, patches: Sequence[Patch]) -> str:
        """Which site or entry never ran, in words; empty if all did."""
        tasks = [patch.task for patch in patches]
        unused = [site.call for site in model.sites if site.task in tasks and site.call not in self.sites]
        if unused:
            return f"{unused[0]} was never called"
        return next((f"the entry of {task} never ran" for task in tasks if task not in self.entries), "")


class Injection:
    def __init__(self, folder: Path, model: ModelFile, patches: Sequence[Patch], is_watched: bool) -> None:
        self.folder = folder
        self._notes = folder / "notes"
        self._notes.mkdir(parents=True)
        plan = {
            "harness": str(harness_folder()),
            "model": to_dict(model),
            "patches": [to_dict(patch) for patch in patches],
            "notes": str(self._notes),
            "is_watched": is_watched,
        }
        injected.write(folder, "transfer.site_injection", finite(plan))

    def ran(self) -> Ran:
        lines = [line for path in sorted(self._notes.glob("*.jsonl")) for line in _lines(path)]

        def said(key: str) -> list[str]:
            return [str(line[key]) for line in lines if key in line]

        return Ran(
            sites=frozenset(said("site")),
            entries=frozenset(said("entry")),
            problem=next(iter(said("problem")), ""),
            device_name=next(iter(said("device_name")), ""),
            torch=next(iter(said("torch")), None),
        )


def _lines(path: Path) -> list[dict[str, object]]:
    """A process that was killed may leave half a line."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            found.append(dict(json.loads(line)))
        except UNREADABLE:
            continue
    return found
