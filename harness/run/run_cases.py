"""One run: loads the sources, then builds, checks and times each case; the slow checks follow the last row.

The worker makes a Run of every request and calls `go` or `floors`. This module loads and orders the work; case_run.py
answers the cases. A cancel takes effect between steps and blocks.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from harness.check import clock_guard, forks, task_controls
from harness.check.between_calls import BetweenCalls
from harness.check.threads import ThreadWatch
from harness.device import environment
from harness.inputs.cache import RunCache
from harness.inputs.reference import Draw, Reference, copies
from harness.judging.handover import Sender
from harness.load import builds, compiled, interpreter, machine_code, native_stack
from harness.load.exception_text import one_line
from harness.load.failure import BadTask, Paths, describe
from harness.precompile import server
from harness.run.case_run import CaseRun, Row
from harness.run.confirmation import ConfirmedRows
from harness.run.context import RunContext
from harness.run.failures import CaseFailures
from harness.run.opponents import Opponents
from harness.run.progress import Cancelled, Emit, Progress
from harness.shared.run_request import Environment, RunRequest
from harness.shared.task import Case
from harness.state import settings
from harness.state.process_watch import ProcessWatch
from harness.timing.case_timer import CaseTimer

MOST_THREADS = 1024


class Run:
    """One request from its first step to its last event."""

    def __init__(
        self,
        request: RunRequest,
        known: Environment,
        cache: RunCache,
        emit: Emit,
        cancelled: Callable[[], bool],
        watch: ProcessWatch,
    ) -> None:
        self.request, self.task, self.cache, self.emit = request, request.task, cache, emit
        self.environment = environment.for_task(known, request)
        self.device = self.environment.device
        self.timer = CaseTimer(request, None if self.device == "cpu" else cache.gpu)
        self.paths = Paths(self.task.folder, request.source, request.best)
        self.failures = CaseFailures(self.environment, self.paths, cache)
        self.threads, self.watch = ThreadWatch(), watch
        self.opponents = Opponents(request, cache, self.environment.interpreted, watch.watch_opponents)
        self.progress = Progress(emit, cancelled, len(request.cases))
        self.watch.begin_run(request.task)
        own = (self.task.folder, request.source, request.build or request.source)
        settings.of_the_task[:] = [os.path.join(folder, "") for folder in own]

    def go(self) -> None:
        self._answered(self._whole)

    def confirm(self) -> None:
        """Times the source once more; its results go to the judge."""
        self._answered(self._confirmed)

    def _answered(self, work: Callable[[], None]) -> None:
        self.cache.first_case = self.request.cases[0] if self.request.cases else None
        fixed = self.request.fixed_seed or self.cache.fixed.seed
        self.emit("started", environment=self.environment, fixed_seed=fixed)
        try:
            work()
        except Cancelled:
            self.emit("cancelled")
        except BadTask as problem:
            self._failed("bad_task", self._blamed(self.paths.short(str(problem))), problem.where, problem.traceback)
        finally:
            self._tidy()

    def _tidy(self) -> None:
        """Prunes old builds; frees GPU memory for others, such as a profiler, if the run took much of it."""
        self.cache.trim()
        if self.request.build:
            builds.prune(self.request.build)
        gc.collect()
        environment.give_back_gpu_memory()

    def prepare(self) -> None:
        """Loads every row's baseline and inputs ahead of the first run; the next request ends it."""
        try:
            self._set_up()
            reference = self._load_reference()
            for case in self._cases():
                self.progress.step("baseline", case)
                self._load_compiler()
                material = self.cache.material(reference, case, self.cache.fixed, self.device)
                material.entry(self.opponents.baseline(reference, case))(**copies(material.inputs))
                del material
                self.cache.trim()
                environment.give_back_gpu_memory()
            gc.collect()
            gc.freeze()
        except Cancelled:
            self.emit("cancelled")
            return
        except BaseException:  # the run itself will say why
            pass
        self.emit("finished")

    def floors(self) -> None:
        """Measures A/A floors instead of a run."""
        try:
            self._set_up()
            reference = self._load_reference()
            for case in self._cases():
                self.progress.step("baseline", case)
                material = self.cache.material(reference, case, self.cache.fixed, self.device)
                function = self.opponents.baseline(reference, case)
                material.entry(function)(**copies(material.inputs))
                self.progress.step("time", case)
                self.emit("floor", case=case.id, floor=self._floor(reference, case, function))
            self.emit("finished")
        except Cancelled:
            self.emit("cancelled")
        except BaseException as problem:
            fault = describe(problem, self.paths)
            self._failed("bad_task", fault.message, fault.where, fault.traceback)
        finally:
            self.cache.trim()

    def _floor(self, reference: Reference, case: Case, function: Callable[..., Any]) -> float:
        masters = [self.cache.material(reference, case, draw, self.device) for draw in (self.cache.fixed, Draw(1))]
        return self.timer.floor(masters[0].timed(function), masters, self.progress.pulse(case))

    def _set_up(self) -> None:
        """Limits threads; gives the compiler a cache that no other task, torch, Triton or GPU shares."""
        threads = self.task.threads
        if threads > MOST_THREADS:  # torch would start them all, or overflow
            raise BadTask(f"task.toml: threads: at most {MOST_THREADS} are possible; this machine has {os.cpu_count()}")
        torch.set_num_threads(threads)
        os.environ["OMP_NUM_THREADS"] = str(threads)  # for OpenMP libraries loaded from now on
        if self.request.build:
            folder = builds.inductor_cache(self.request.build, self.task.hash, self.environment)
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder

    def _whole(self) -> None:
        self._set_up()
        self.cache.drop("solution")
        between = BetweenCalls(self.threads)
        solution = self._load_solution()
        if solution is None:
            return
        self._tell_builder()
        reference = self._load_reference()
        if self.request.controls:
            self._try_task(reference)
        for finding in self.opponents.load_best():
            self.emit("finding", finding=finding)
        native_stack.come_first()
        self._answer(RunContext(self.request, self.environment, solution, reference, self.cache, between))
        self._conclude()
        self.emit("finished")
        self._keep_machine_code()

    def _keep_machine_code(self) -> None:
        """After the last line: no answer waits for it, and the run does not depend on it."""
        side, build = self.cache.side("solution"), self.request.build
        if self.device != "cpu" and side is not None and build:
            with contextlib.suppress(Exception):
                machine_code.write(side, os.path.dirname(build), os.path.basename(self.request.source))

    def _try_task(self, reference: Reference) -> None:
        """Runs the task's controls. Passed ones are not asked for again; those with findings are, for every run."""
        found = self.cache.controls.get(self.task.hash)
        if found is None:
            found = task_controls.run_controls(
                reference, self.cache, self.device, lambda case: self.progress.step("check", case)
            )
            self.cache.controls[self.task.hash] = found
        for finding in found:
            self.emit("finding", finding=finding)
        self.emit("controls", passed=not found)

    def _conclude(self) -> None:
        """Reports what the source leaves in the process."""
        for found in (self.threads.left_running(), forks.came_back()):
            if found is not None:
                self.emit("finding", finding=found)
        self._own_clocks()
        self._look(is_over=True)

    def _load_solution(self) -> Callable[..., Any] | None:
        """The source's entry; None if it failed to load, which is reported."""
        self.progress.step("load")
        self.watch.before_load()
        try:
            solution = self.cache.function(
                "solution", "solution.py", self.request.source, self.task, self.request.build
            )
        except BaseException as problem:
            fault, poisoned = describe(problem, self.paths), self.failures.is_poisoned()
            self._look(is_over=True)
            if self.environment.interpreted and interpreter.lacks(problem) is not None:
                for case in self._cases():
                    self.emit("case", result=self.failures.row(case, problem))
                self.emit("finished")
                return None
            elsewhere = fault.elsewhere and not poisoned  # no earlier source can have broken the context
            self._failed("build_error", fault.message, fault.where, fault.traceback, elsewhere)
            if poisoned:
                self.failures.leave()
            return None
        self.failures.entry = solution
        self._own_clocks()
        self._look()
        native_stack.come_first()
        return solution

    def _confirmed(self) -> None:
        """Everything that the source is compared with is loaded, and the baseline timed, before the source is."""
        self._set_up()
        self.cache.drop("solution")
        sender, between = Sender(self.request.judge, self.device), BetweenCalls(self.threads)
        with contextlib.closing(sender):
            reference = self._load_reference()
            for finding in self.opponents.load_best():
                self.emit("finding", finding=finding)
            rows = ConfirmedRows(
                self.request, self.environment, reference, self.opponents, self.timer, self.progress, between
            )
            if self.request.baseline == "compile":
                self._load_compiler()
            for case in self._cases():
                rows.time_alone(case)
            solution = self._load_solution()
            if solution is None:
                return
            for case in self._cases():
                self._confirm_row(rows, case, solution)
            self._conclude()
            self.progress.step("recheck")
            with contextlib.suppress(EOFError, ConnectionError):  # the judge left: it says why
                rows.hand_over(sender)
        self.emit("finished")

    def _confirm_row(self, rows: ConfirmedRows, case: Case, solution: Callable[..., Any]) -> None:
        try:
            row = rows.time(case, solution)
        except (Cancelled, BadTask):
            raise
        except BaseException as problem:
            row = replace(self.failures.row(case, problem), checked=2)
        self.progress.done += 1
        self.emit("case", result=row)
        if row.status == "runtime_error" and self.failures.is_poisoned():
            self.failures.leave()

    def _answer(self, context: RunContext) -> None:
        """Answers every case first, so that all rows appear soon; slower work follows the last row."""
        rows = CaseRun(context, self.opponents, self.timer, self.progress, self.failures, self.threads)
        right = [row for case in self._cases() if (row := rows.answer(case)) is not None]
        for index, row in enumerate(right):
            self.progress.done = index
            if row.lacks_baseline:
                self.progress.step("baseline", row.case)
                self._load_compiler()
                rows.catch_up(row)
        if self.request.quick:
            return
        large: list[Row] = []
        for index, row in enumerate(right):
            self.progress.done = index
            if not row.result.failed and not rows.recheck(row, is_last_try=False):
                large.append(row)
        for row in large:  # now that the others' results are gone
            rows.recheck(row)

    def _load_compiler(self) -> None:
        """Once; on a GPU it takes seconds, and the worker reports that it is warm afterwards."""
        if self.device != "cpu":
            compiled.load_by_compiling(self.device)

    def _tell_builder(self) -> None:
        """Reports the compiler settings, for the process that precompiles the kernels of the other cases."""
        side = self.cache.side("solution")
        if self.device != "cpu" and side is not None and side.mentions("triton"):
            self.emit("loaded", compiler=server.facts(self.device))

    def _own_clocks(self) -> None:
        """Restores clock functions that the source replaced, and reports it once."""
        self.progress.say_once(clock_guard.restore_clocks())

    def _look(self, is_over: bool = False) -> None:
        """Reports what the source has done to the process; when its run is over, puts its settings back."""
        side = self.cache.side("solution")
        for found in self.watch.look(self.emit, is_over, side.mentions if side is not None else lambda name: True):
            self.progress.say_once(found)
        if self.watch.restored:
            self.cache.drop("best")
        if settings.FOR_INPUTS & {*self.watch.restored}:
            self.cache.trim(everything=True)  # some may have been made with the source's settings

    def _blamed(self, message: str) -> str:
        """What went wrong with the task, after what the source did to the process, if anything."""
        self._look(is_over=True)
        names = self.watch.changed
        return f"after the source changed {names}: {message}" if names else message

    def _load_reference(self) -> Reference:
        task, source, build = self.task, self.request.source, self.request.build
        is_loaded = self.cache.holds("reference", source, task)
        with contextlib.nullcontext() if is_loaded else self.watch.task_files():
            reference = self.cache.reference(task, source, build)
        self.watch.keep_reference(reference)
        return reference

    def _cases(self) -> list[Case]:
        return [self.task.case(case_id) for case_id in self.request.cases]

    def _failed(self, status: str, message: str, where: Any, traceback: str, elsewhere: bool = False) -> None:
        text = self.paths.to_user(traceback)
        self.emit("failed", status=status, message=one_line(message), where=where, traceback=text, elsewhere=elsewhere)
