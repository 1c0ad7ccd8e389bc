"""Runs a sweep: the source as it is, the screenings, the final; then the winner's own run, which makes the log's entry.

A bench measures the variants; one that crashes or hangs costs itself. In a screening every variant takes turns with the
source as it is. In the final, the first does so over all rows, and the others take turns with the first, in the same
place. The winner's own run is like any other, on this machine: against the task's baseline and the best so far.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.shared.errors import UserError
from harness.shared.results import Ratio
from harness.shared.task import Task
from kernbench.engine.jobs import Options, SharedWorker, supervisor_for
from kernbench.engine.session import Session
from kernbench.events import Event, Summary
from kernbench.log import stored_sources
from kernbench.log.stored_sources import StoredSource
from kernbench.sweep import halving
from kernbench.sweep.halving import Standing
from kernbench.sweep.trial import Bench, Measured, Trial, screening_rows
from kernbench.sweep.variant_bench import VariantBench
from kernbench.sweep.variants import Variant
from kernbench.task import case_choice, snapshot
from kernbench.task.lookup import STATE_FOLDER
from kernbench.worker.process import Unusable

MOST_AGAIN = 3
"""So often a final begins again."""
Tell = Callable[[str, Standing], None]
"""Called with a stage, such as `round 1 of 2, 3/16`, and the variant's standing after it."""


class Sweep:
    def __init__(
        self,
        task: Task,
        state: Path,
        folder: Path,
        options: Options,
        variants: Sequence[Variant],
        elsewhere: Bench | None = None,
        most_full: int | None = None,
    ) -> None:
        """`state` is the task's state folder, `folder` the sweep's own; the first variant is the source as it is. With
        a bench elsewhere, only the winner's own run is made here. `most_full` counts that one too."""
        self.task, self.folder, self._state = task, folder, state
        self._worker = SharedWorker()
        self._options = replace(options, worker=self._worker, floors=False, standby=False, has_keys=False)
        self._is_elsewhere = elsewhere is not None
        self._bench = elsewhere or VariantBench(task, state, folder, self._options)
        self._now = variants[0]
        self._standings = {variant.name: Standing(variant) for variant in variants}
        self._opponent: Variant | None = None
        self._leader: Variant | None = None
        """In the final, the variant that the others take turns with."""
        self._where = ""
        """Where that was: the others are timed there, too."""
        self._most_full = most_full
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
        return len(screening_rows(self.task, self._options.case))

    @property
    def device(self) -> str:
        return self._bench.device

    async def run(self, tell: Tell) -> None:
        """Raises Unusable if there is no worker for the task."""
        await self._bench.ready()
        rows, full = screening_rows(self.task, self._options.case), self._options.budget_ms
        if not rows:
            matching = f" that matches {self._options.case!r}" if self._options.case is not None else ""
            raise UserError(f"{self.task.name} has no timed case{matching}, so there is nothing to compare")
        field = [item.variant for item in self._standings.values() if not item.variant.is_now]
        screenings = halving.rounds(len(field))
        share = screenings[0].share if screenings else halving.LEAST_SHARE
        await self._try_now(Trial(self._now, full * share, rows), tell)
        for number, screening in enumerate(screenings, 1):
            trial = Trial(self._opponent, full * screening.share, rows)
            place = 0
            async for variant, measured in self._bench.measure_all(field, trial):
                place += 1
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
        await self._bench.build_ahead(field, Trial(self._opponent, self._options.budget_ms))
        screened, done, again = dict(self._standings), 0, 0
        while (item := halving.next_finalist(list(self._standings.values()))) is not None:
            if self._most_full is not None and self.full_runs >= self._most_full - 1:
                break
            self.full_runs += 1
            trial = Trial(self._leader or self._opponent, self._options.budget_ms, where=self._where)
            measured = await self._bench.measure(item.variant, trial)
            if self._leader is not None and measured.is_right and measured.where != self._where:
                self._begin_again(screened)
                done, again = 0, again + 1
                if again > MOST_AGAIN:
                    raise UserError(f"the final's GPU was lost {again} times; nothing is logged: sweep again")
                continue
            standing = self._place(item.variant, measured, self._over_now(measured), number=item.round, is_full=True)
            if self._leader is None and standing.score is not None:
                self._leader, self._where = item.variant, measured.where
            done += 1
            tell(f"final, {done}/{max(done, min(len(field), halving.FINALISTS))}", standing)

    def _over_now(self, measured: Measured) -> Ratio | None:
        """In the final, the speedup over what all speedups are over."""
        leader = self._standings[self._leader.name].ratio if self._leader is not None else None
        if leader is None or measured.ratio is None or measured.is_apart:
            return measured.ratio
        ratio = halving.times(leader, measured.ratio)
        return replace(ratio, verdict="unclear") if leader.low == leader.high else ratio  # it was timed alone

    def _begin_again(self, screened: Mapping[str, Standing]) -> None:
        """The place of the final is lost: the leader's speedup was measured there, so all are timed in full again."""
        self._leader, self._where = None, ""
        self._standings |= {name: screened[name] for name, item in self._standings.items() if item.status == "ok"}

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
        """The winner's own run and its entry; `tried` is the table in it. None if it did not come to that. Raises
        Unusable if the variants were timed elsewhere, and this machine cannot time them."""
        if self._is_elsewhere:
            await self._bench.close()  # it may have a GPU of this machine
            await self._check_here()
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
        return session.logbook.summary(outcome.run) or outcome  # confirmed or not

    async def _check_here(self) -> None:
        try:
            environment = await supervisor_for(self.task, self._options, lambda event: None).ready()
            if not case_choice.is_interpreted(self.task, environment):
                return
            problem = Unusable("no_device", "this machine has no GPU for the winner's own run")
        except Unusable as found:
            problem = found
        raise Unusable(problem.code, f"no entry: {problem}")

    def put_there(self, item: Standing) -> str:
        """Says how to get a variant without an entry, after storing its source."""
        return f"{self._restoring(item.variant.stored(self._state, self.task).sha[:8])} puts the winner there"

    @property
    def _name(self) -> str | None:
        """The task's folder in a command, if that is not the current one."""
        return os.path.join(".", here) if (here := os.path.relpath(self.task.folder)) != "." else None

    def _restoring(self, entry: int | str) -> str:
        """The command that puts a stored source into the task's folder."""
        words = [*([self._name] if self._name else []), str(entry)]
        usual = self._state == Path(self.task.folder) / STATE_FOLDER
        words += [] if usual else ["--state", os.path.relpath(self._state)]
        return f"`{shlex.join(['kernbench', 'restore', *words])}`"

    def write(self, item: Standing, began_with: str, entry: int | None) -> str:
        """Puts the winner's files into the task's folder, if they are as they were when the sweep began; returns what
        changed, and how to undo it."""
        task, state, folder = self.task, self._state, Path(self.task.folder)
        source = item.variant.stored(state, task)
        if snapshot.sha_of(folder, state, task.ignore) != began_with:
            put_there = self._restoring(entry or source.sha[:8])
            raise UserError(f"{folder.name} has changed since the sweep began; {put_there} puts the winner there")
        point = StoredSource(item.variant.name, source.folder, state)
        before, changed = stored_sources.restore(task, point, state)
        other = None if state == folder / STATE_FOLDER else os.path.relpath(state)
        said = stored_sources.restored(point, before, changed, self._name, other)
        return said.replace("restored", "wrote", 1)
