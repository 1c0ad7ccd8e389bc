"""Times a correct case: the solution against its opponents, plus checks on the timed calls.

`Opponents` selects the sides, `CaseTimer` times them and makes the row. The output of a timed call is checked like any
other, and a row whose sides were not comparable gets a finding. The results that were kept at random are judged by the
slow checks, so that the row need not wait for them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch

from harness.check import clock_guard, compare, verdicts
from harness.check.guarded_call import wrote_to
from harness.device import environment
from harness.device.activity import ForgedRecords, LostRecords
from harness.inputs.cache import CaseInputs
from harness.inputs.reference import BadOutput, Outputs, copies, named_outputs, nbytes
from harness.load import builds
from harness.run import baseline_kernels
from harness.run.context import RunContext
from harness.run.opponents import FirstCall, NotCompared, Opponents
from harness.run.progress import Progress
from harness.shared import findings
from harness.shared import format as fmt
from harness.shared.codes import explain
from harness.shared.results import CaseResult, Finding, OtherSide
from harness.shared.task import Case
from harness.timing import blocks
from harness.timing.case_timer import CaseTimer
from harness.timing.clocks import Unsteady
from harness.timing.input_sets import WorkingSet
from harness.timing.samples import Timed, Timing
from harness.timing.spot_checks import KeptCall, SpotChecks

LOOKED_AT = 2
"""Input sets whose values are compared after timing."""
FEWEST_KEPT, MOST_KEPT, KEPT_BYTES = 2, 4, 2 << 20
"""Results of timed calls that are kept at random: as many as fit in, within these limits."""
ROOM = 16
"""A result is kept if it takes less than one of so many parts of the memory."""


@dataclass(frozen=True)
class CaseTiming:
    context: RunContext
    opponents: Opponents
    timer: CaseTimer
    progress: Progress
    kept: dict[str, list[KeptCall]] = field(default_factory=dict)
    """Results of timed calls by case, to be judged."""

    def time(self, case: Case, result: CaseResult, materials: list[CaseInputs], patient: bool = False) -> CaseResult:
        """The row with its times; waits for a baseline that is not compiled yet only if `patient`."""
        reference = self.context.reference
        self.progress.step("baseline", case)
        first = FirstCall(missing=explain("baseline_compiling"))
        if patient or self.opponents.ready(reference, case):
            first = self.opponents.first_baseline(reference, case, materials[0])
        baseline, missing = first.function, first.missing
        best = None if self.opponents.best is baseline else self.opponents.best
        sides: dict[str, Callable[..., Any]] = {}
        if baseline is not None:
            sides["baseline"] = baseline
        if best is not None and self.opponents.best_is_right(reference, materials[0]):
            sides["best"] = best
        sides["solution"] = self.context.solution
        # for an imported task torch counts the flops, and loads 800 modules for the first count
        traffic = reference.traffic(case, materials[0].inputs, materials[0].expected)
        self.progress.say_once(clock_guard.restore_clocks())
        self.progress.step("time", case)
        between = self.context.between
        room = self._free_memory() // ROOM
        most = max(FEWEST_KEPT, min(MOST_KEPT, KEPT_BYTES // max(1, nbytes(materials[0].expected))))
        task = self.context.task
        spots = SpotChecks(task.written, self.timer.overwrites, room, between.look, most, outputs=task.outputs)
        called = MappingProxyType({name: materials[0].timed(function) for name, function in sides.items()})
        timed = self._measured(case, called, materials, spots)
        self.kept[case.id] = spots.kept
        if baseline is not None and "baseline" not in timed.samples.samples:
            missing = explain("baseline_fails_again")
        if first.problem is not None:
            timed.findings.append(findings.make("baseline_inexact", problem=first.problem))
        timed.findings += self._other_kernels(case, timed.samples)
        timed.findings += [left] if (left := between.taken()) is not None else []
        timed.findings += _printed(timed.samples)
        problem, stale = self._timed_output(timed.samples, materials)
        problem = problem or written_input(spots.sets, task.written)
        if problem is not None:
            return result.untimed("wrong", f"{problem} (in a timed call)", *timed.findings, *stale)
        result = self._with_threads(result, timed.samples)
        if self.context.task.judge == "truth":  # an error against the reference says nothing about accuracy
            result = _with_error(result, first.largest_error)
        row = self.timer.row(case, result, timed, missing)
        beat, bandwidth = self.progress.pulse(case), self.context.environment.bandwidth
        return self.timer.with_roofline(row, traffic, bandwidth, beat)

    def with_others(self, case: Case, result: CaseResult) -> CaseResult:
        """The row with the sides that the task names for comparison, each timed next to the solution. Called after
        every row has landed, so that no verdict waits for them."""
        others: list[OtherSide] = []
        left_out: list[Finding] = []
        if result.status != "ok" or result.solution_us is None:
            return result
        for name in self.opponents.others:
            try:
                others.append(self._other(case, name))
            except NotCompared as why:
                left_out.append(findings.make("not_compared", side=name, why=why))
        return replace(result, others=tuple(others), findings=(*result.findings, *left_out))

    def _other(self, case: Case, name: str) -> OtherSide:
        self.progress.step("baseline", case)
        materials = [self.context.material(case, draw) for draw in self.context.masters()]
        function = self.opponents.other(name, self.context.reference, case, materials[0])
        self.progress.step("time", case)
        called, solution = materials[0].timed(function), materials[0].timed(self.context.solution)
        try:
            timed = self.timer.other(called, solution, materials, self.progress.pulse(case))
        except blocks.SideFailed as failure:
            if failure.side == "solution":
                raise
            raise NotCompared("it failed on a repeated call") from None
        except (ForgedRecords, LostRecords, Unsteady) as problem:
            raise NotCompared(f"its calls could not be timed ({problem})") from None
        except torch.OutOfMemoryError:
            raise NotCompared("its inputs do not fit in memory next to the solution's") from None
        if timed is None:
            raise NotCompared("too few of its calls could be timed")
        us, ratio = timed
        return OtherSide(name, us, ratio.speedup, ratio.low, ratio.high)

    def _free_memory(self) -> int:
        return environment.free_memory() if self.context.device == "cpu" else environment.free_gpu_memory()

    def _measured(self, case: Case, sides: blocks.Sides, masters: list[CaseInputs], spots: SpotChecks) -> Timed:
        """Times the sides; drops a side that fails, unless it is the solution."""
        while True:
            try:
                return self.timer.time(sides, masters, self.progress.pulse(case), spots)
            except blocks.SideFailed as failure:
                if failure.side == "solution":
                    raise
                sides = MappingProxyType({name: side for name, side in sides.items() if name != failure.side})

    def _other_kernels(self, case: Case, timed: Timing) -> list[Finding]:
        """Whether the compiled baseline is another one than in an earlier worker."""
        request, calls = self.context.request, timed.activities.get("baseline")
        if request.baseline != "compile" or not request.build or not calls:
            return []
        folder = builds.inductor_cache(request.build, request.task.hash, self.context.environment)
        found = baseline_kernels.compare(folder, case.id, calls)
        return [found] if found is not None else []

    def _timed_output(self, timed: Timing, materials: list[CaseInputs]) -> tuple[str | None, tuple[Finding, ...]]:
        """Checks the output of one more measured call, at a known address with different values."""
        assert timed.last is not None
        result, working = timed.last
        timed.last = None
        material, like = materials[working.master], materials[0].expected
        try:
            answer = verdicts.Answer.to(material, result, working.inputs, like)
        except BadOutput as problem:
            return str(problem), ()
        wrong = verdicts.verdict(answer, material, like).problem
        if wrong is None:
            return None, ()
        try:
            if self._returns_one_memory(material):
                return wrong, (findings.make("output_kept"),)
            if self._is_stale(answer, material, materials[working.master - 1], like):
                return wrong, (findings.make("stale_result"),)
        except Exception:  # the row is wrong in any case, also where memory is too short to say why
            pass
        return wrong, ()

    def _returns_one_memory(self, material: CaseInputs) -> bool:
        """Whether calls on inputs at two addresses return the same memory: a result then lasts only until the next
        call, or until kernbench has judged another result and overwrites it."""
        if self.context.task.written:  # the outputs are the inputs
            return False
        call, places = material.entry(self.context.solution), [copies(material.inputs) for _ in range(2)]
        first, second = (named_outputs(call(**inputs), inputs, ()) for inputs in places)
        return compare.shared(first, second)

    def _is_stale(self, answer: verdicts.Answer, material: CaseInputs, before: CaseInputs, like: Outputs) -> bool:
        """Whether it was right for the values that the inputs held before."""
        written = {name: answer.inputs[name] for name in self.context.task.written}
        earlier = replace(answer, inputs={**before.inputs, **written})
        return before is not material and verdicts.verdict(earlier, before, like).problem is None

    def _with_threads(self, result: CaseResult, timed: Timing) -> CaseResult:
        """On a CPU the thread count is part of the condition: a side that uses more is not comparable."""
        allowed = self.context.task.threads
        busy = timed.busy.get("solution", 0.0)
        changed = torch.get_num_threads() != allowed
        if self.context.device != "cpu" or (not changed and busy < allowed + 0.5):
            return result
        torch.set_num_threads(allowed)
        more = (
            findings.make("thread_limit_changed", allowed=allowed)
            if changed
            else findings.make("too_many_threads", busy=fmt.fixed(busy, 1), allowed=allowed)
        )
        return replace(result, findings=(*result.findings, more))


def written_input(sets: list[WorkingSet], mutates: tuple[str, ...]) -> str | None:
    """An input that timed calls wrote to, in some of the sets."""
    some = random.sample(sets, min(LOOKED_AT, len(sets)))
    names = (compare.changed_inputs(working.undone(), working.inputs, mutates) for working in some)
    return next((wrote_to(name) for name in names if name is not None), None)


def _printed(timed: Timing) -> list[Finding]:
    """Whether the solution prints in every call."""
    return [findings.make("prints", amount=fmt.plural(timed.printed, "byte"))] if timed.printed else []


def _with_error(result: CaseResult, reached: float | None) -> CaseResult:
    """Adds the baseline's largest error. Within the tolerance a larger one is a figure, not a finding."""
    if result.error is None or reached is None:
        return result
    return replace(result, error=replace(result.error, baseline_max=reached))
