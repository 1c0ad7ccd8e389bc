"""Runs a command with the recorder in every Python process of it, and puts together what these report.

What the command prints is passed on as it comes.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.shared import format as fmt
from harness.shared.errors import UserError
from kernbench.programs import echoed_run, injected

RECORDER = "capture.injected"


@dataclass
class SiteRecord:
    """All calls of a site, in all processes."""

    site: str
    file: str = ""
    """Of its module; empty if no process imported it."""
    forms: list[dict[str, Any]] = field(default_factory=list)
    """Those with the most time first."""
    left_out: int = 0
    """Calls of forms beyond the most that are kept."""
    in_graphs: int = 0
    problem: str = ""

    @property
    def calls(self) -> int:
        return sum(form["calls"] for form in self.forms)

    @property
    def ms(self) -> float:
        return math.fsum(form["ms"] for form in self.forms)


@dataclass
class Recorded:
    """What one run of the command did."""

    command: tuple[str, ...]
    exit_code: int
    processes: list[dict[str, Any]]
    sites: dict[str, SiteRecord]

    @property
    def pythons(self) -> list[str]:
        """Those that ran a site, else all."""
        users = [item["python"] for item in self.processes if any(site["forms"] for site in item["sites"].values())]
        return sorted(set(users or [item["python"] for item in self.processes]))

    @property
    def torch(self) -> str:
        return next((item["torch"] for item in self.processes if item["torch"]), "")


async def record(
    command: Sequence[str], sites: Iterable[str], echo: Callable[[bytes], None], look: bool = False
) -> Recorded:
    sites = tuple(dict.fromkeys(sites))
    with tempfile.TemporaryDirectory(prefix="kernbench-capture-", ignore_cleanup_errors=True) as name:
        inside, out = Path(name, "inside"), Path(name, "out")
        inside.mkdir()
        out.mkdir()
        injected.write(inside, RECORDER, {"out": str(out), "sites": sites, "look": look})
        exit_code = await echoed_run.run(command, injected.variables(inside, os.environ), echo) or 0
        processes = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*.json"))]
    if not processes:
        ended = f" (exit code {exit_code})" if exit_code else ""
        raise UserError(
            f"no Python process of `{' '.join(command)}` was recorded{ended}: it has to be a Python 3.10 or newer that"
            " reads PYTHONPATH"
        )
    return Recorded(tuple(command), exit_code, processes, {site: _merged(site, processes) for site in sites})


def _merged(site: str, processes: Sequence[dict[str, Any]]) -> SiteRecord:
    found = SiteRecord(site)
    forms: dict[str, dict[str, Any]] = {}
    for process in processes:
        found.problem = found.problem or process["problems"].get(site, "")
        found.file = found.file or process["modules"].get(site.partition(":")[0], {}).get("file", "")
        about = process["sites"].get(site, {"forms": {}, "left_out": 0, "in_graphs": 0})
        found.left_out, found.in_graphs = found.left_out + about["left_out"], found.in_graphs + about["in_graphs"]
        for key, form in about["forms"].items():
            if known := forms.get(key):
                for name in ("calls", "timed", "ms"):
                    known[name] += form[name]
            else:
                forms[key] = form
    for form in forms.values():  # of all calls, at the pace of those that were timed
        per_call = form["ms"] / form["timed"] if form["timed"] else form["first_ms"]
        form["ms"] = per_call * form["calls"]
    found.forms = sorted((form for form in forms.values() if form["calls"]), key=lambda form: -form["ms"])
    return found


def refuse_unseen(recorded: Recorded, found: SiteRecord) -> None:
    """Says why a site has no calls."""
    if found.forms:
        return
    module = found.site.partition(":")[0]
    ended = f"; the command ended with exit code {recorded.exit_code}" if recorded.exit_code else ""
    if found.problem:
        raise UserError(f"{found.site}: {found.problem}")
    if not found.file:
        processes = fmt.plural(len(recorded.processes), "Python process", "Python processes")
        raise UserError(f"{found.site}: {module} was not imported in {processes} of the command{ended}")
    if found.in_graphs:
        what = f"all {found.in_graphs} calls were captured in a CUDA graph"
        raise UserError(f"{found.site}: {what}; switch graphs off for the capture")
    raise UserError(f"{found.site} was never called; code that torch.compile has compiled is not seen{ended}")
