"""Runs a sweep: the source as it is, the screenings, the final; then the winner's own run, which makes the log's entry.

All variants share one worker, which is replaced when it is lost: one that crashes or hangs costs itself. In a screening
every variant takes turns with the source as it is. In the final, the first does so over all rows, and the others take
turns with the first. The winner's own run is like any other: against the task's baseline and the best so far.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from harness.shared.errors import UserError
from harness.shared.results import Ratio
from harness.shared.task import Task
from kernbench.engine.jobs import Options, SharedWorker
from kernbench.engine.session import Session
from kernbench.events import Event, Summary
from kernbench.log import stored_sources
from kernbench.log.stored_sources import StoredSource
from kernbench.sweep import halving
from kernbench.sweep.halving import Standing
from kernbench.sweep.variant_bench import Measured, Trial, VariantBench
from kernbench.sweep.variants import Variant
from kernbench.task import snapshot
from kernbench.task.lookup import STATE_FOLDER

Tell = Callable[[str, Standing], None]
"""Called with a stage, such as `round 1 of 2, 3/16`, and the variant's standing after it."""


class Sweep:
    def __init__(self, task: Task, state: Path, folder: Path, options: Options, variants: Sequence[Variant]) -> None:
        """`state` is the task's state folder, `folder` the sweep's own; the first variant is the source as it is."""
        self.task, self.folder, self._state = task, folder, state
        self._worker = SharedWorker()
        self._options = replace(options, worker=self._worker, floors=False, standby=False, has_keys=False)
        self._bench = VariantBench(task, state, folder, self._options)
        self._now = variants[0]
        self._standings = {variant.name: Standing(variant) for variant in variants}
        self._opponent: Variant | None = None
        self._leader: Variant | None = None
        """In the final, the variant that the others take turns with."""
        self.full_runs = 0
        """Begun so far: whole runs with the whole budget."""

    @property
    def standings(self) -> list[Standing]:
        """The fastest first, as far as they are known."""
        return halving.ranked(self._standings.values())

    @property
    def winner(self) -> Standing | None:
        return halving.winner(self._standings.values())

    @property
    def over(self) -> str:
        """What the speedups are over."""
        return self._now.name if self._opponent is not None else self._options.baseline or self.task.baseline

    @property
    def rows(self) -> int:
        return len(self._bench.screening_rows())

    @property
    def device(self) -> str:
        about = self._bench.environment
        return about.device_name if about is not None else ""

    async def run(self, tell: Tell) -> None:
        """Raises Unusable if there is no worker for the task."""
        await self._bench.ready()
        rows, full = self._bench.screening_rows(), self._options.budget_ms
        if not rows:
            matching = f" that matches {self._options.case!r}" if self._options.case is not None else ""
            raise UserError(f"{self.task.name} has no timed case{matching}, so there is nothing to compare")
        field = [item.variant for item in self._standings.values() if not item.variant.is_now]
        screenings = halving.rounds(len(field))
        share = screenings[0].share if screenings else halving.LEAST_SHARE
        await self._try_now(Trial(self._now, full * share, rows), tell)
        for number, screening in enumerate(screenings, 1):
            trial = Trial(self._opponent, full * screening.share, rows)
            await self._build_ahead(field, trial)
            for place, variant in enumerate(field, 1):
                measured = await self._bench.measure(variant, trial)
                standing = self._place(variant, measured, measured.ratio, number=number)
                tell(f"round {number} of {len(screenings)}, {place}/{len(field)}", standing)
            left = halving.ranked(self._standings[variant.name] for variant in field)
            field = [item.variant for item in left if item.score is not None][: screening.stay]
            if len(field) <= halving.FINALISTS:
                break
        await self._final(field, tell)

    async def close(self) -> None:
        await self._bench.close()
        await self._worker.close()

    async def _try_now(self, trial: Trial, tell: Tell) -> None:
        """The source as it is takes turns with itself; if it is right, all others are compared with it."""
        measured = await self._bench.measure(self._now, trial)
        if measured.is_right:
            self._opponent, self._bench.usual = self._now, dict(measured.times)
        tell("the source as it is", self._place(self._now, measured, halving.ONE, is_full=True))

    async def _final(self, field: Sequence[Variant], tell: Tell) -> None:
        await self._build_ahead(field, Trial(self._opponent, self._options.budget_ms))
        done = 0
        while (item := halving.next_finalist(list(self._standings.values()))) is not None:
            self.full_runs += 1
            measured = await self._bench.measure(
                item.variant, Trial(self._leader or self._opponent, self._options.budget_ms)
            )
            ratio = measured.ratio
            leader = self._standings[self._leader.name].ratio if self._leader is not None else None
            if leader is not None and ratio is not None and not measured.is_apart:
                ratio = halving.times(leader, ratio)
                ratio = replace(ratio, verdict="unclear") if leader.low == leader.high else ratio  # it was timed alone
            standing = self._place(item.variant, measured, ratio, number=item.round, is_full=True)
            if self._leader is None and standing.score is not None:
                self._leader = item.variant
            done += 1
            tell(f"final, {done}/{max(done, min(len(field), halving.FINALISTS))}", standing)

    async def _build_ahead(self, field: Sequence[Variant], trial: Trial) -> None:
        for variant in field:
            await self._bench.build_ahead(variant, trial)

    def _place(
        self, variant: Variant, measured: Measured, ratio: Ratio | None, number: int = 0, is_full: bool = False
    ) -> Standing:
        before = self._standings[variant.name].seconds
        standing = Standing(
            variant,
            measured.status,
            measured.detail,
            ratio if measured.is_right else None,
            measured.us,
            number,
            is_full,
            before + measured.seconds,
        )
        self._standings[variant.name] = standing
        return standing

    async def log(self, item: Standing, hypothesis: str, tried: str, listen: Callable[[Event], None]) -> Summary | None:
        """The winner's own run and its entry; `tried` is the table in it. None if it did not come to that."""
        source = item.variant.stored(self.folder, self.task)
        options = replace(self._options, source=source.folder, tried=tried)
        session = Session(self.task, self._state, options)
        session.listen(listen)
        session.notes.hypothesis = hypothesis
        self.full_runs += 1
        try:
            outcome = await session.run_once(iteration=True)
            await session.confirm()
        finally:
            await session.close()
        if not isinstance(outcome, Summary):
            return None
        settled = (run for run in session.logbook.journal.summaries if run.run == outcome.run)  # confirmed or not
        return next(settled, outcome)

    def write(self, item: Standing, began_with: str, entry: int | None) -> str:
        """Puts the winner's files into the task's folder, if they are as they were when the sweep began; returns what
        changed, and how to undo it."""
        task, state, folder = self.task, self._state, Path(self.task.folder)
        name = os.path.join(".", here) if (here := os.path.relpath(folder)) != "." else None
        source = item.variant.stored(state, task)
        if snapshot.sha_of(folder, state, task.ignore) != began_with:
            words = [*([name] if name else []), str(entry or source.sha[:8])]
            words += [] if state == folder / STATE_FOLDER else ["--state", os.path.relpath(state)]
            put_there = shlex.join(["kernbench", "restore", *words])
            raise UserError(f"{folder.name} has changed since the sweep began; `{put_there}` puts the winner there")
        point = StoredSource(item.variant.name, source.folder, state)
        before, changed = stored_sources.restore(task, point, state)
        usual = folder / STATE_FOLDER
        said = stored_sources.restored(point, before, changed, name, None if state == usual else os.path.relpath(state))
        return said.replace("restored", "wrote", 1)
