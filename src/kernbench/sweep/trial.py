"""What a sweep asks of a bench, and what it gets back: one machine with one worker, or the slots of a cluster."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.shared.results import Ratio
from harness.shared.task import Task
from kernbench.sweep.variants import Variant
from kernbench.task import case_choice

MOST_ROWS = 16
"""Rows of a screening."""
NEEDS_GPU = "a sweep compares times, and without a GPU {} is only checked"


def screening_rows(task: Task, case: str | None) -> tuple[str, ...]:
    """Headline rows, spread over the task's if there are many."""
    timed = [item for item in case_choice.matching(task, case) if item.kind == "case"]
    ids = [item.id for item in timed if item.headline] or [item.id for item in timed]
    step = max(1.0, len(ids) / MOST_ROWS)
    return tuple(ids[int(place * step)] for place in range(min(len(ids), MOST_ROWS)))


@dataclass(frozen=True)
class Trial:
    """What a run of a variant is: all rows with all checks, or a screening."""

    opponent: Variant | None
    """None for the task's baseline."""
    budget_ms: float
    rows: tuple[str, ...] | None = None
    """Only these, with the quick checks; None for a whole run."""
    where: str = ""
    """On a cluster: where to measure, as `Measured` names it; anywhere if it is gone."""


@dataclass(frozen=True)
class Measured:
    """What came of it."""

    status: str
    """ok; wrong, crashed and so on; disqualified."""
    detail: str = ""
    ratio: Ratio | None = None
    """Over the opponent."""
    is_apart: bool = False
    """The two could not take turns, so the ratio is over the usual times."""
    times: tuple[tuple[str, float], ...] = ()
    """Microseconds of each headline row."""
    seconds: float = 0.0
    where: str = ""
    """On a cluster: the UUID of the GPU, or the node of a CPU slot."""

    @property
    def is_right(self) -> bool:
        return self.status == "ok"

    @property
    def us(self) -> float | None:
        """The geomean of the rows' times."""
        values = [us for _row, us in self.times]
        return math.exp(sum(map(math.log, values)) / len(values)) if values else None


class Bench(Protocol):
    usual: dict[str, float]
    """Times of the source as it is, by row; empty if it is not right."""

    @property
    def device(self) -> str:
        """What the variants are timed on, as far as that is known."""

    async def ready(self) -> object:
        """Raises Unusable if nothing can be timed."""

    async def build_ahead(self, variants: Sequence[Variant], trial: Trial) -> None:
        """Says which variants will be measured soon."""

    async def measure(self, variant: Variant, trial: Trial) -> Measured: ...

    def measure_all(self, variants: Sequence[Variant], trial: Trial) -> AsyncIterator[tuple[Variant, Measured]]:
        """Measures every variant, in any order; some at the same time, if there are several devices."""

    async def close(self) -> None: ...
