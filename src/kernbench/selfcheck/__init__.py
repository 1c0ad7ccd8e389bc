"""`kernbench selfcheck`: the tool measures itself, so that its numbers can be believed on this very machine.

Parts: `aa` (a kernel against itself, beside one-after-the-other timing), `slow` (a kernel made 2 % slower on one row
must be called slower there and nowhere else), `ncu` (agreement with Nsight Compute), `latency` (save to rows, warm and
cold). Each part works on a copy of a shipped task in a scratch folder and returns a Report: plain rows, printed as a
table or as JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Tell = Callable[[str], None]
"""Hears what was just done."""
PARTS = ("aa", "slow", "ncu", "latency")


@dataclass
class Report:
    part: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Sentences that sum the rows up, or say why there are none."""
