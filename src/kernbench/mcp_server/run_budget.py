"""How much may be run: a number of runs, and minutes from the first call on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from harness.shared import format as fmt
from harness.shared.errors import UserError
from kernbench.atomic_write import written_aside
from kernbench.mcp_server.answers import BudgetLeft


class BudgetSpent(UserError):
    """The sentence says what is spent and what still works."""


class RunBudget:
    def __init__(
        self,
        runs: int | None = None,
        minutes: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        spent: Path | None = None,
    ) -> None:
        """None: not limited. `spent` is a file with the runs made so far, by earlier servers too."""
        self._runs, self._minutes, self._clock, self._spent_file = runs, minutes, clock, spent
        self._made = 0
        if spent is not None and spent.exists():
            try:
                self._made = int(spent.read_text(encoding="ascii"))
            except ValueError:
                raise UserError(f"{spent} does not hold a number of runs; remove it to begin at none") from None
        self._began: float | None = None

    def begin(self) -> None:
        """The first call starts the minutes: a client may start the server long before it needs it."""
        if self._began is None:
            self._began = self._clock()

    def count_run(self) -> None:
        """A run that began counts, whatever came of it."""
        self._made += 1
        if self._spent_file is not None:
            with written_aside(self._spent_file, str(self._made).encode("ascii")) as move:
                move()

    def check_run(self, count: int = 1) -> None:
        """Whether so many runs may begin."""
        left = None if self._runs is None else max(self._runs - self._made, 0)
        if left == 0:
            raise self._spent(f"the budget of {fmt.plural(self._runs or 0, 'run')} is")
        if left is not None and left < count:
            raise BudgetSpent(f"nothing was run: this takes up to {count} runs, and the budget has {left} left")
        self.check_time()

    def check_time(self) -> None:
        if self._minutes is not None and self._minutes_left() <= 0:
            raise self._spent(f"the budget of {fmt.plain(self._minutes)} minutes is")

    @property
    def seconds_left(self) -> float | None:
        """None: not limited."""
        return None if self._minutes is None else max(self._minutes_left() * 60, 0.0)

    def left(self) -> BudgetLeft:
        runs = None if self._runs is None else max(self._runs - self._made, 0)
        minutes = None if self._minutes is None else round(max(self._minutes_left(), 0.0), 1)
        words = [] if runs is None else [f"{fmt.plural(runs, 'run')} left"]
        words += [] if minutes is None else [f"{fmt.plain(minutes)} minutes left"]
        return BudgetLeft(runs, minutes, fmt.joined(words) or "runs and minutes are not limited")

    def _minutes_left(self) -> float:
        spent = 0.0 if self._began is None else (self._clock() - self._began) / 60
        return (self._minutes or 0.0) - spent

    def _spent(self, what: str) -> BudgetSpent:
        return BudgetSpent(f"nothing was run: {what} spent; read_task, diff, log and restore still work")
