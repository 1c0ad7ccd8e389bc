"""`kernbench selfcheck`: kernbench measures itself, to show how far its numbers can be trusted on this machine.

Parts: `aa` (a kernel against itself, also timed one after the other), `slow` (a kernel made 2% slower on one row must
be called slower there and nowhere else), `ncu` (agreement with Nsight Compute), `latency` (save to rows, warm and
cold). Each part works on a copy of a shipped task in a scratch folder and returns a Report: plain rows, printed as a
table or as JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Tell = Callable[[str], None]
"""Receives a line about each run."""
PARTS = ("aa", "slow", "ncu", "latency")


@dataclass
class Report:
    part: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Sentences that sum up the rows, or say why there are none."""
