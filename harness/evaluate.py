"""One run: load, then per case build, check, time and answer; the slow checks after the last row.

Whatever user code raises becomes a status on its row. The row that fails has no time. Cancel is looked at between steps
and blocks.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from harness import ahead, check, controls, machine, originals, timing
from harness.faults import BadTask, Paths, describe
from harness.inputs import BadOutput, Draw, Reference, copies, forms, named_outputs
from harness.mishaps import Mishaps
from harness.opponents import Opponents
from harness.recheck import SlowChecks
from harness.records import Case, CaseResult, Environment, Finding, OutputError, RunRequest, Status, Step
from harness.samples import Timing
from harness.shelf import Material, Shelf
from harness.stopwatch import Stopwatch, Timed
from harness.threads import ThreadWatch
from harness.trial import Judgement, Trial, judge

REARM_S = 2.0
"""How often a long timing says that it is alive."""
COMPILING = "being compiled"
LATER = f"baseline: {COMPILING}"
LESS_ACCURATE = Finding(
    "less accurate than the baseline",
    "the largest error is over twice the baseline's; check the accumulation dtype and fast-math functions",
)

FEWER_CHECKS = Finding(
    "fewer checks", "memory ran out while other values were tried; those that were tried came out right"
)


class Emit(Protocol):
    def __call__(self, event: str, **fields: Any) -> None: ...


class Cancelled(Exception):
    """The workbench wants no more of this run."""


@dataclass
class Row:
    """A case that passed its quick checks and waits for the slow ones."""

    case: Case
    result: CaseResult


class Run:
    """One request from its first step to its last event."""

    def __init__(
        self, request: RunRequest, known: Environment, shelf: Shelf, emit: Emit, cancelled: Callable[[], bool]
    ) -> None:
        self.request, self.task, self.shelf = request, request.task, shelf
        self.emit, self.cancelled = emit, cancelled
        self.environment = machine.for_task(known, request)
        self.device = self.environment.device
        self.stopwatch = Stopwatch(request, None if self.device == "cpu" else shelf.gpu)
        self._bandwidth = self.environment.bandwidth
        self.paths = Paths(self.task.folder, request.source, request.best)
        self.mishaps = Mishaps(self.environment, self.paths, shelf)
        self.threads = ThreadWatch()
        self.opponents = Opponents(request, shelf, self.environment.interpreted)
        self._done = 0
        self._said: set[Finding] = set()

    def go(self) -> None:
        torch.set_num_threads(self.task.threads)
        os.environ["OMP_NUM_THREADS"] = str(self.task.threads)  # read by OpenMP libraries that are loaded from now on
        self.emit("started", environment=self.environment)
        try:
            self._whole()
        except Cancelled:
            self.emit("cancelled")
        except BadTask as problem:
            self._failed("bad_task", self.paths.short(str(problem)), problem.where, problem.traceback)
        finally:
            self._tidy()

    def _tidy(self) -> None:
        """Leaves the GPU's memory to others, such as a profiler of the very case, where the run took much of it."""
        self.shelf.trim()
        gc.collect()
        gpu = self.shelf.gpu
        if self.device != "cpu" and gpu is not None and torch.cuda.memory_reserved() > gpu.memory_bytes // 4:
            torch.cuda.empty_cache()

    def floors(self) -> None:
        """A/A floors instead of a run."""
        torch.set_num_threads(self.task.threads)
        try:
            self.reference = self._load_reference()
            for case in self._cases():
                self._step("baseline", case)
                function = self.opponents.baseline(self.reference, case)
                function(**copies(self._material(case, Draw(0)).inputs))
                self._step("time", case)
                self.emit("floor", case=case.id, floor=self._floor(case, function))
            self.emit("finished")
        except Cancelled:
            self.emit("cancelled")
        except BaseException as problem:
            fault = describe(problem, self.paths)
            self._failed("bad_task", fault.message, fault.where, fault.traceback)
        finally:
            self.shelf.trim()

    def _floor(self, case: Case, function: Callable[..., Any]) -> float:
        masters = [self._material(case, Draw(seed)).inputs for seed in (0, 1)]
        return self.stopwatch.floor(function, masters, self._pulse(case))

    def _whole(self) -> None:
        self._step("load")
        self.shelf.drop("solution")
        try:
            self.solution = self.shelf.function(
                "solution", "solution.py", self.request.source, self.task, self.request.build
            )
        except BaseException as problem:
            fault = describe(problem, self.paths)
            self._failed("build_error", fault.message, fault.where, fault.traceback)
            return
        self._own_clocks()
        self._tell_builder()
        self.reference = self._load_reference()
        if self.request.controls:
            controls.try_task(self.reference, self.shelf, self.device, lambda case: self._step("check", case))
            self.emit("controls", passed=True)
        for finding in self.opponents.load_best():
            self.emit("finding", finding=finding)
        rows = [row for case in self._cases() if (row := self._answer(case)) is not None]
        for index, row in enumerate(rows):
            self._done = index
            if row.result.detail == LATER:
                self._catch_up(row)
        for index, row in enumerate(rows):
            self._done = index
            if not row.result.failed:
                self._recheck(row)
        left = self.threads.left_running()
        if left is not None:
            self.emit("finding", finding=left)
        self._own_clocks()
        self.emit("finished")

    def _tell_builder(self) -> None:
        """For the process that compiles the kernels of the other cases meanwhile: how it is done here."""
        side = self.shelf.side("solution")
        if self.device != "cpu" and side is not None and side.mentions("triton"):
            self.emit("loaded", compiler=ahead.facts(self.device))

    def _own_clocks(self) -> None:
        """Puts back what the source replaced among the things that times are taken with, and says so once."""
        found = originals.restore()
        if found is not None and found not in self._said:
            self._said.add(found)
            self.emit("finding", finding=found)

    def _load_reference(self) -> Reference:
        return self.shelf.reference(self.task, self.request.source, self.request.build)

    def _cases(self) -> list[Case]:
        return [self.task.case(case_id) for case_id in self.request.cases]

    def _answer(self, case: Case) -> Row | None:
        """Quick checks and time of one case; None when there is nothing left to check about it."""
        try:
            result = self._try(case)
        except (Cancelled, BadTask):
            raise
        except BaseException as problem:
            result = self.mishaps.row(case, problem)
        self._done += 1
        right = result.status in ("ok", "interpreted")
        if right and case.kind == "check":  # many and small: two draws each are all they are for
            result, right = replace(result, checked=2), False
        self.emit("case", result=result)
        self.mishaps.leave_if_poisoned(result)
        self.shelf.trim()
        return Row(case, result) if right else None

    def _catch_up(self, row: Row) -> None:
        """The comparison that a row was served without, because its baseline had still to be compiled."""
        case = row.case
        try:
            materials = [self._material(case, Draw(seed)) for seed in (0, self.request.seed)]
            done = row.result
            bare = CaseResult(
                case.id, "ok", known=case.known, error=done.error, errors=done.errors, inputs=done.inputs, checked=1
            )
            row.result = self._timed(case, bare, materials, patient=True)
        except (Cancelled, BadTask):
            raise
        except BaseException as problem:
            row.result = self.mishaps.row(case, problem)
        self.emit("case", result=row.result)
        self.mishaps.leave_if_poisoned(row.result)
        self.shelf.trim()

    def _try(self, case: Case) -> CaseResult:
        self._step("inputs", case)
        fixed = self._material(case, Draw(0))
        self._step(self._first_step(), case)
        began = time.perf_counter()
        trial = self._call(fixed)
        self.emit("built", case=case.id, ms=(time.perf_counter() - began) * 1000)
        self._step("check", case)
        judgement, materials = self._quick(case, trial, fixed)
        del trial
        status: Status = "interpreted" if self.environment.interpreted else "ok"
        result = CaseResult(
            case.id, status, known=case.known, error=judgement.error, errors=judgement.errors, checked=1
        )
        if case.kind == "case":
            result = replace(result, inputs=forms(fixed.inputs))
        if judgement.problem is not None:
            return result.untimed("wrong", judgement.problem, *judgement.findings)
        if case.kind != "case" or self.environment.interpreted:
            return result
        return self._timed(case, result, materials)

    def _call(self, material: Material) -> Trial:
        """A checked call of the solution; memory that runs out in it is the solution's own doing."""
        try:
            return Trial.of(self.solution, material.inputs, self.task)
        except torch.OutOfMemoryError as problem:
            raise timing.SideFailed("solution") from problem

    def _first_step(self) -> Step:
        """A first call that may compile gets the time for it; one that cannot is only a call, and a hang shows soon."""
        side = self.shelf.side("solution")
        lazy = ("torch.compile", "triton", "cupy") if self.device != "cpu" else ("torch.compile",)
        return "build" if side is not None and side.mentions(*lazy) else "check"

    def _quick(self, case: Case, trial: Trial, fixed: Material) -> tuple[Judgement, list[Material]]:
        judgement = judge(trial, fixed, fixed.expected, self.task)
        if judgement.problem is not None or self.request.seed == 0:
            return judgement, [fixed]
        fresh = self._material(case, Draw(self.request.seed))
        again = judge(self._call(fresh), fresh, fixed.expected, self.task)
        if again.problem is not None:
            return replace(again, problem=f"{again.problem} ({fresh.draw})"), [fixed]
        return judgement, [fixed, fresh]

    def _timed(self, case: Case, result: CaseResult, materials: list[Material], patient: bool = False) -> CaseResult:
        self._step("baseline", case)
        baseline, reached, word = None, None, COMPILING
        if patient or self.opponents.ready(self.reference, case):
            baseline, reached, word = self.opponents.first_baseline(self.reference, case, materials[0])
        best = None if word == "best" else self.opponents.best
        sides: timing.Sides = {}
        if baseline is not None:
            sides["baseline"] = baseline
        if best is not None and self.opponents.best_is_right(self.reference, materials[0]):
            sides["best"] = best
        sides["solution"] = self.solution
        self._own_clocks()
        self._step("time", case)
        timed = self._measured(case, sides, [material.inputs for material in materials])
        if baseline is not None and "baseline" not in timed.samples.samples:
            baseline, word = None, "fails when called again"
        problem = self._timed_output(timed.samples, materials)
        if problem is not None:
            return result.untimed("wrong", f"{problem} (in a timed call)", *timed.findings)
        result = self._with_error(self._with_threads(result, timed.samples), reached)
        row = self.stopwatch.row(case, result, timed, None if baseline is not None else word)
        return self.stopwatch.lit(
            row, self.reference.traffic(case, materials[0].inputs, materials[0].expected), self._bandwidth
        )

    def _measured(self, case: Case, sides: timing.Sides, masters: list[Any]) -> Timed:
        """The sides that can be timed; one that fails on the way, and is not the solution, is left out."""
        while True:
            try:
                return self.stopwatch.time(sides, masters, self._pulse(case))
            except timing.SideFailed as failure:
                if failure.side == "solution":
                    raise
                sides = {name: side for name, side in sides.items() if name != failure.side}

    def _timed_output(self, timed: Timing, materials: list[Material]) -> str | None:
        """The result of one more measured call, judged like any other."""
        assert timed.last is not None
        result, working = timed.last
        timed.last = None
        material = materials[working.master]
        try:
            outputs = named_outputs(result, working.inputs, self.task.mutates)
        except BadOutput as problem:
            return str(problem)
        return (
            check.form(outputs, materials[0].expected, self.task.layout)
            or check.compare(outputs, material.truth, self.task).problem
        )

    def _with_threads(self, result: CaseResult, timed: Timing) -> CaseResult:
        """On a CPU the threads are part of the condition: a side that takes more is not comparable."""
        busy = timed.busy.get("solution", 0.0)
        changed = torch.get_num_threads() != self.task.threads
        if self.device != "cpu" or (not changed and busy < self.task.threads + 0.5):
            return result
        torch.set_num_threads(self.task.threads)
        used = f"it kept {busy:.1f} processors busy" if not changed else "it called torch.set_num_threads"
        text = f"{used}, and task.toml allows {self.task.threads}; set threads there to compare with more"
        return replace(result, findings=(*result.findings, Finding("more threads than the task", text, red=True)))

    def _with_error(self, result: CaseResult, reached: float | None) -> CaseResult:
        error = result.error
        if error is None or reached is None:
            return result
        error = OutputError(**{**error.__dict__, "baseline_max": reached})
        expected = self._largest_dtype_step(result)
        worse = error.max is not None and error.max > 2 * reached + expected
        return replace(result, error=error, findings=(*result.findings, LESS_ACCURATE) if worse else result.findings)

    def _largest_dtype_step(self, result: CaseResult) -> float:
        """One ulp of the output at the element that is worst."""
        case = self.task.case(result.id)
        error = result.error
        if error is None or error.output is None or error.expected is None:
            return 0.0
        value = self._material(case, Draw(0)).expected.get(error.output)
        return 0.0 if value is None else check.one_ulp(value.dtype, error.expected)

    def _recheck(self, row: Row) -> None:
        self._step("recheck", row.case)
        interpreted = self.environment.interpreted
        clock = None if interpreted or row.case.kind != "case" else self.stopwatch.clock()
        slow = SlowChecks(self.task, self.reference, self.device, self.request.seed, interpreted, clock, self.threads)
        try:
            fixed = self._material(row.case, Draw(0))
            judgement = slow.run(row.case, self.solution, fixed, self._pulse(row.case, "recheck"))
        except (Cancelled, BadTask):
            raise
        except torch.OutOfMemoryError as problem:  # right and timed as far as it went: that stays
            fewer = replace(FEWER_CHECKS, help=f"{FEWER_CHECKS.help} ({self.mishaps.row(row.case, problem).detail})")
            result = replace(row.result, checked=2, findings=(*row.result.findings, fewer))
        except BaseException as problem:
            result = replace(self.mishaps.row(row.case, problem), checked=2)
        else:
            result = replace(row.result, checked=2, findings=(*row.result.findings, *judgement.findings))
            if judgement.problem is not None:
                result = result.untimed("wrong", judgement.problem, error=judgement.error, errors=judgement.errors)
        self.emit("case", result=result)
        self.mishaps.leave_if_poisoned(result)

    def _material(self, case: Case, draw: Draw) -> Material:
        return self.shelf.material(self.reference, case, draw, self.device)

    def _step(self, step: Step, case: Case | None = None) -> None:
        if self.cancelled():
            raise Cancelled
        self.emit("step", step=step, case=case.id if case else None, index=self._done, count=len(self.request.cases))

    def _pulse(self, case: Case, step: Step = "time") -> Callable[[], None]:
        """Looks at cancel; a step that goes on for long, with every call coming back, says so."""
        last = time.monotonic()

        def beat() -> None:
            nonlocal last
            if self.cancelled():
                raise Cancelled
            if time.monotonic() - last > REARM_S:
                last = time.monotonic()
                self._step(step, case)

        return beat

    def _failed(self, status: str, message: str, where: Any, traceback: str) -> None:
        self.emit("failed", status=status, message=message, where=where, traceback=self.paths.to_user(traceback))
