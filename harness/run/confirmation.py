"""The worker's part of a confirmation: the source is timed once more, in a worker that loaded its opponents first.

Nothing here compares results: the calls that were kept go to the judge, a process that never loads a solution. Baseline
and best are timed alone before the source is loaded, so that a source that slows them down is noticed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from harness.check import clock_guard
from harness.check.between_calls import BetweenCalls
from harness.device import environment
from harness.device.roofline import Traffic
from harness.inputs.cache import CaseInputs
from harness.inputs.reference import Draw, Inputs, Reference, copies, forms, named_outputs
from harness.judging.cases import described, seeds
from harness.judging.handover import Sender
from harness.run.case_timing import written_input
from harness.run.opponents import Opponents
from harness.run.progress import Progress
from harness.shared import findings
from harness.shared import format as fmt
from harness.shared.results import CaseResult, Finding
from harness.shared.run_request import Environment, RunRequest
from harness.shared.task import Case
from harness.timing.blocks import SideFailed
from harness.timing.case_timer import CaseTimer
from harness.timing.samples import Timed
from harness.timing.spot_checks import KEPT, KeptCall, SpotChecks, tensors

CASE_BYTES = 64 << 20
"""Results of a case that are kept for the judge."""
FEWEST, MOST, ALL = 2, 64, 128
"""Calls to judge: of a case, and of all cases together where their results are small."""
SLOWER = {"cpu": 1.3, "cuda": 1.15}
"""A baseline that takes so many times as long next to the source as alone was slowed down."""
SLOWER_US = 2.0
MORE_TRIES, REST_S = 4, 1.0
"""A row whose opponents seem slowed down is timed again: a shared CPU takes half as long again for some seconds
(softmax of 96x3072: 280 or 425 us), but a source that slows them down does so every time."""
CHANGED = object()
"""Handed over instead of a result whose copy was changed after the call: the judge refuses it."""
IF_BUSY = 3.0
"""Factor on that while other programs keep the CPUs busy: they come and go."""
ROOM_TO_JUDGE = 4
"""A result is kept if it takes less than one of so many parts of the free memory."""


@dataclass
class ConfirmedRows:
    request: RunRequest
    environment: Environment
    reference: Reference
    opponents: Opponents
    timer: CaseTimer
    progress: Progress
    between: BetweenCalls
    _alone: dict[tuple[str, str], float] = field(default_factory=dict)
    """Microseconds by case and side."""
    _kept: dict[str, list[KeptCall]] = field(default_factory=dict)

    @property
    def _device(self) -> str:
        return self.environment.device

    def _masters(self, case: Case) -> list[CaseInputs]:
        return [CaseInputs(self.reference, case, Draw(seed), self._device) for seed in seeds(self.request)]

    def _others(self, case: Case) -> dict[str, Callable[..., Any]]:
        """What the source is compared with."""
        baseline, best = self.opponents.baseline(self.reference, case), self.opponents.best
        return {"baseline": baseline} | ({"best": best} if best is not None and best is not baseline else {})

    def time_alone(self, case: Case) -> None:
        """Times baseline and best before the source is loaded."""
        self.progress.step("baseline", case)
        masters = self._masters(case)
        for side, function in self._others(case).items():
            masters[0].entry(function)(**copies(masters[0].inputs))
            self.progress.step("time", case)
            called = masters[0].timed(function)
            self._alone[case.id, side] = self.timer.alone(called, masters, self.progress.pulse(case))

    def time(self, case: Case, solution: Callable[..., Any]) -> CaseResult:
        self.progress.step("inputs", case)
        masters = self._masters(case)
        self.progress.step("build", case)
        first = masters[0].entry(solution)(**copies(masters[0].inputs))
        sides = {name: masters[0].timed(side) for name, side in {**self._others(case), "solution": solution}.items()}
        inputs = copies(masters[0].inputs)
        expected = named_outputs(sides["baseline"](**inputs), inputs, self.request.task.judged)
        traffic = self.reference.traffic(case, masters[0].inputs, expected)
        self.progress.say_once(clock_guard.restore_clocks())
        most = self._calls_to_judge(first)
        del first
        self.progress.step("time", case)
        timed, spots = self._timed(case, sides, masters, most)
        for _ in range(MORE_TRIES):
            if not self._slowed(case, timed):
                break
            self._rest(case)
            timed, spots = self._timed(case, sides, masters, most)
        self._more_calls(sides["solution"], spots, most)
        self._kept[case.id] = spots.kept
        return self._row(case, timed, spots, masters[0].inputs, traffic)

    def _timed(
        self, case: Case, sides: dict[str, Callable[..., Any]], masters: list[CaseInputs], most: int
    ) -> tuple[Timed, SpotChecks]:
        task, on_cpu = self.request.task, self._device == "cpu"
        free = environment.free_memory() if on_cpu else environment.free_gpu_memory()
        room, look = free // ROOM_TO_JUDGE, self.between.look
        few = min(most, KEPT) if on_cpu else most  # the others there in blocks that are not timed
        spots = SpotChecks(task.written, self.timer.overwrites, room, look, few, most - few, outputs=task.outputs)
        timed = self.timer.time(MappingProxyType(sides), masters, self.progress.pulse(case), spots)
        timed.samples.last = None
        return timed, spots

    def _rest(self, case: Case) -> None:
        """Waits before the next try; a save ends the wait at once."""
        beat, end = self.progress.pulse(case), time.monotonic() + REST_S
        while time.monotonic() < end:
            beat()
            time.sleep(0.05)
        self.progress.step("time", case)

    def _calls_to_judge(self, result: Any) -> int:
        size = max(1, sum(value.nbytes for value in tensors(result)))
        share = math.ceil(ALL / max(1, len(self.request.cases)))
        return max(FEWEST, min(CASE_BYTES // size, max(MOST, share)))

    def _more_calls(self, solution: Callable[..., Any], spots: SpotChecks, most: int) -> None:
        """Calls like the timed ones, where fewer were looked at than are to be judged."""
        sets = spots.sets
        for number in range(most - len(spots.kept)):
            working = sets[number % len(sets)]
            working.renew()
            try:
                spots.take_also(solution(**working.inputs), working)
            except BaseException as problem:
                raise SideFailed("solution") from problem

    def _slowed(self, case: Case, timed: Timed) -> list[Finding]:
        """The sides that take longer next to the source than alone."""
        limit, found = SLOWER["cpu" if self._device == "cpu" else "cuda"], []
        if timed.load is not None and timed.load.is_high:
            limit *= IF_BUSY
        for side in self._others(case):
            now, alone = timed.samples.time_us(side), self._alone.get((case.id, side))
            if now is not None and alone is not None and now > alone * limit + SLOWER_US:
                values = {"now_us": fmt.microseconds(now), "alone_us": fmt.microseconds(alone)}
                found.append(findings.make("opponent_slowed", side=side, **values))
        return found

    def _row(self, case: Case, timed: Timed, spots: SpotChecks, inputs: Inputs, traffic: Traffic) -> CaseResult:
        result = CaseResult(case.id, "ok", known=case.known, inputs=forms(inputs), checked=2)
        if (left := self.between.taken()) is not None:
            timed.findings.append(left)
        timed.findings += self._slowed(case, timed)
        problem = written_input(spots.sets, self.request.task.written)
        if problem is not None:
            return result.untimed("wrong", f"{problem} (in a timed call)", *timed.findings)
        row = self.timer.row(case, result, timed, None)
        return self.timer.with_roofline(row, traffic, self.environment.bandwidth, self.progress.pulse(case))

    def hand_over(self, sender: Sender) -> None:
        """After the last time was taken."""
        for case in self.request.cases:
            calls = self._kept.pop(case, [])
            while calls:
                self._send(sender, case, calls.pop(0))
            environment.give_back_gpu_memory()
        sender.finish()

    def _send(self, sender: Sender, case: str, call: KeptCall) -> None:
        form, own = described(call.result if call.is_unchanged else CHANGED)
        header = {"case": case, "seed": seeds(self.request)[call.master], "lot": call.lot}
        header |= {"mutated": [*call.mutated], "result": form}
        sender.send(header, [*call.mutated.values(), *own])
