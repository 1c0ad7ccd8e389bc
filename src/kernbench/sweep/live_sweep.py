"""A sweep next to an open workbench: it has the GPU while it runs, and ends when it is cancelled.

The workbench's own runs wait until `run` has ended. The winner's run makes the log's entry, as with `kernbench sweep`;
the file changes only with `write`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from harness.shared.task import Task
from kernbench.engine.jobs import Options
from kernbench.events import Summary
from kernbench.sweep import constants, sweep_report
from kernbench.sweep.constants import Place
from kernbench.sweep.halving import Standing
from kernbench.sweep.sweep_job import SweepJob, order_of
from kernbench.sweep.sweep_report import SweepReport
from kernbench.task import snapshot

BETWEEN = re.compile(r"\s+(?=[^\W\d]\w*=)")
"""Between two constants in one line: `TILE=1024,2048 num_warps=4,8`."""


class GpuLender(Protocol):
    """The workbench's worker, which leaves the GPU alone while the sweep has it."""

    @property
    def is_gpu_lent(self) -> bool: ...

    async def lend_gpu(self) -> None: ...

    def take_back_gpu(self) -> None: ...


def constants_of(task: Task, state: Path) -> Mapping[str, Place]:
    """The constants of the task's solution that are a number now."""
    contents = snapshot.read(Path(task.folder), state, task.ignore)
    return constants.listed({name: contents[name] for name in snapshot.code_files(contents, task.files)})


class LiveSweep:
    def __init__(self, task: Task, state: Path, options: Options, text: str) -> None:
        """`text` has the values, such as `TILE=1024,2048 num_warps=4,8`. Reads the source and stores it; raises
        UserError if there is nothing to sweep."""
        sets = [part for part in BETWEEN.split(text.strip()) if part]
        self._job = SweepJob(order_of(task, state, sets), options)
        self._job.is_over = False

    @property
    def entry(self) -> Summary | None:
        return self._job.entry

    @property
    def report(self) -> SweepReport:
        return self._job.report()

    @property
    def may_write(self) -> bool:
        """Whether there is a winner that is not in the file already."""
        winner = self.report.winner
        return self._job.is_over and winner is not None and not winner.variant.is_now

    def lines(self, ascii_only: bool) -> list[str]:
        """The table, for two constants a heat map, and the outcome in a sentence."""
        found = self.report
        chart = sweep_report.heat_text(found, ascii_only)
        return [*sweep_report.table(found), "", *chart, *([""] if chart else []), found.sentence]

    async def run(self, lender: GpuLender, tell: Callable[[str], None]) -> None:
        """Until the winner is in the log. Cancelling it ends the worker, then the GPU goes back."""
        await lender.lend_gpu()
        try:
            await self._run(tell)
        finally:
            lender.take_back_gpu()

    async def _run(self, tell: Callable[[str], None]) -> None:
        def said(stage: str, item: Standing) -> None:
            tell(f"{stage}, {item.variant.name}")

        try:
            tell("the source as it is")
            await self._job.run(said)
            if self._job.sweep.winner is not None:
                tell("the winner's own run")
                await self._job.log("", lambda event: None)
            self._job.is_over = True
        finally:
            await self._job.close()

    def save_report(self) -> Sequence[Path]:
        return sweep_report.write(self._job.folder, self.report, self._job.command)

    def write(self) -> str:
        """Puts the winner into the solution; returns what changed and how to undo it, or why nothing was written."""
        return self._job.write()
