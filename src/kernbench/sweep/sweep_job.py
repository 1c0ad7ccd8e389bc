"""A sweep from its first screening to the winner in the solution: for the command, the key and the MCP tool."""

from __future__ import annotations

import re
import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from harness.shared import format as fmt
from harness.shared.errors import UserError
from harness.shared.task import Task
from kernbench.engine.jobs import Options
from kernbench.events import Event, Summary
from kernbench.sweep import sweep_report, variants
from kernbench.sweep.sweep_report import SweepReport
from kernbench.sweep.sweep_run import Sweep, Tell
from kernbench.sweep.trial import Bench
from kernbench.sweep.variants import Variant
from kernbench.task import snapshot

OWN = re.compile(r"\d{8}T\d{6}-[0-9a-f]{4}")
"""The name of a sweep's folder."""
STATE, MOST_KEPT = "sweeps", 20
"""Folder in the task's state folder, and how many sweeps it keeps."""


@dataclass(frozen=True)
class Order:
    """What is swept: the source as it is, its variants, and the command that asks for them."""

    task: Task
    state: Path
    contents: Mapping[str, bytes]
    names: tuple[str, ...]
    """Of the constants; `variant` if the variants are files."""
    variants: Sequence[Variant]
    command: str


def order_of(task: Task, state: Path, sets: Sequence[str], sample: int | None = None) -> Order:
    """Of `NAME=A,B,C` for each constant, with the solution as it is now."""
    contents = snapshot.read(Path(task.folder), state, task.ignore)
    settings = [variants.Setting.parse(text) for text in sets]
    words = ["kernbench", "sweep", Path(task.folder).name, *(word for text in sets for word in ("--set", text))]
    words += ["--sample", str(sample)] if sample is not None else []
    names = tuple(setting.name for setting in settings)
    found = variants.of_constants(contents, task, settings, sample)
    return Order(task, state, contents, names, found, shlex.join(words))


class SweepJob:
    def __init__(
        self,
        order: Order,
        options: Options,
        elsewhere: Callable[[Path], Bench] | None = None,
        most_full: int | None = None,
    ) -> None:
        """`elsewhere` returns the bench of another machine, given the sweep's own folder; `most_full` is how many whole
        runs it may make, the winner's own among them."""
        self._order, self._began, self._took = order, time.monotonic(), 0.0
        self._began_with = snapshot.keep(order.contents, order.state, order.task).sha
        self.folder = _own_folder(order.state)
        bench = elsewhere(self.folder) if elsewhere is not None else None
        self.sweep = Sweep(order.task, order.state, self.folder, options, order.variants, bench, most_full)
        self._is_elsewhere = bench is not None
        self.command = order.command
        self.is_over = True
        """False if it was stopped before its end."""
        self.entry: Summary | None = None
        """The winner's own run."""

    async def run(self, tell: Tell) -> None:
        await self.sweep.run(tell)

    async def log(self, message: str, listen: Callable[[Event], None]) -> Summary | None:
        """Makes the winner's own run, with its entry; None if there is no winner, or it did not come to that."""
        if (won := self.sweep.winner) is not None:
            tried = sweep_report.tried(self.report(), self.command)
            self.entry = await self.sweep.log(won, message or self._hypothesis(), tried, listen)
        return self.entry

    async def close(self) -> None:
        self._took = time.monotonic() - self._began
        await self.sweep.close()

    def report(self) -> SweepReport:
        return SweepReport(
            task=self._order.task.name,
            names=self._order.names,
            standings=self.sweep.standings,
            winner=self.sweep.winner,
            over=self.sweep.over,
            device=self.sweep.device,
            seconds=self._took or time.monotonic() - self._began,
            is_over=self.is_over,
        )

    def write(self) -> str:
        """Writes the winner to the solution if it deserves that; returns a sentence, also where it does not."""
        found = self.report()
        if self.entry is not None and self.entry.is_refused:
            return "nothing was written: the winner's confirmation disagreed with its run"
        if self.entry is not None and not self.entry.right:
            return "nothing was written: the winner failed in its own run"
        against = self.entry.vs_best if self.entry is not None else None
        if against is not None and against.high < 1:
            return f"nothing was written: in its own run the winner is {fmt.speedup(against)} of the best"
        if found.winner is None or not found.is_better:
            return "nothing was written: no variant is faster than the source as it is beyond the noise"
        if self.entry is None and not self._is_elsewhere:
            return "nothing was written: the winner's own run did not finish"
        number = self.entry.iteration if self.entry is not None else None
        try:
            return self.sweep.write(found.winner, self._began_with, number)
        except UserError as problem:
            return f"nothing was written: {problem}"

    def _hypothesis(self) -> str:
        won = self.sweep.winner
        assert won is not None
        best = "the source as it is" if won.variant.is_now else won.variant.name
        return f"sweep of {', '.join(self._order.names)}: {best} is the fastest of {len(self.sweep.standings)}"


def _own_folder(state: Path) -> Path:
    """A new folder for this sweep's runs, sources and report; the oldest ones make room."""
    place = state / STATE
    kept = sorted(old for old in place.iterdir() if OWN.fullmatch(old.name)) if place.is_dir() else []
    for old in kept[: -MOST_KEPT + 1]:
        shutil.rmtree(old, ignore_errors=True)
    folder = place / f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    folder.mkdir(parents=True)
    return folder
