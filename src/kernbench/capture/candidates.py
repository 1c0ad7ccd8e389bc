"""Which functions of a program are worth a task, from the time of the operators below each.

The outermost functions in which matrix products, attention and convolutions take at most a quarter of the time: these
have good kernels already, and of the rest as much as possible should be in one task.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MOST_HEAVY = 0.25
"""Share of a function's time that matrix products, attention and convolutions may take."""
CALLED = "__call__"
GENERIC = ("forward", CALLED)
"""Methods that are better named after their class."""


@dataclass
class Candidate:
    site: str
    share: float
    """Of the time of all operators, what ran in this function."""


@dataclass
class _Function:
    ms: float = 0.0
    heavy_ms: float = 0.0
    callers: frozenset[str] = frozenset()

    @property
    def is_light(self) -> bool:
        return self.heavy_ms <= MOST_HEAVY * self.ms


def choose(processes: Sequence[dict[str, Any]], least_share: float) -> list[Candidate]:
    """The largest first."""
    total, found = 0.0, dict[str, _Function]()
    for process in processes:
        total += process["functions"].get("total_ms", 0.0)
        for item in process["functions"].get("functions", ()):
            known = found.setdefault(item["site"], _Function())
            known.ms, known.heavy_ms = known.ms + item["ms"], known.heavy_ms + item["heavy_ms"]
            known.callers |= frozenset(item["callers"])
    chosen = [
        Candidate(site, function.ms / total)
        for site, function in found.items()
        if total and function.ms >= least_share * total and _is_site(site) and _is_outermost(function, found)
    ]
    return sorted(chosen, key=lambda candidate: -candidate.share)


def _is_outermost(function: _Function, found: dict[str, _Function]) -> bool:
    """Light itself, and called from somewhere that is not."""
    callers = [found[site] for site in function.callers if site in found]
    return function.is_light and (not callers or not all(caller.is_light for caller in callers))


def _is_site(site: str) -> bool:
    name = site.rpartition(".")[2] if "." in site.partition(":")[2] else site.partition(":")[2]
    return name == CALLED or not name.startswith("__")


def task_names(sites: Sequence[str]) -> dict[str, str]:
    """A folder's name for each: the function's, or the class's in small letters; numbered where two are alike."""
    names: dict[str, str] = {}
    for site in sites:
        *parents, name = site.partition(":")[2].split(".")
        if name in GENERIC and parents:
            name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", parents[-1])
        plain = name.strip("_").lower() or "task"
        number = 1
        while (taken := plain if number == 1 else f"{plain}_{number}") in names.values():
            number += 1
        names[site] = taken
    return names
