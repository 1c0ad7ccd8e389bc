"""Times one case on a GPU: a device pass, then a wall pass with no profiler active.

The device pass reads activity records; without them it falls back to event pairs and says so. If the wall pass
contradicts it, the device pass is repeated, then the wall pass. The row is cleared as soon as two passes in a row
agree, and these two are reported, so the others gain a source nothing. Honest kernels can differ between passes: a
LayerNorm of 1.8 GB took 850 us in some calls and 945 in others, probably by where its output lay.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from harness.device.activity import ForgedRecords, LostRecords
from harness.device.gpu import Gpu
from harness.shared import findings
from harness.shared import format as fmt
from harness.shared.results import ClockName, Finding
from harness.shared.run_request import RunRequest
from harness.timing import blocks, clocks, first_touch, kernel_ledger, wall_check, wall_pass
from harness.timing.samples import Timed, Timing

DEVICE_PASS, WITH_WALL = 0.72, 0.86
"""Shares of a row's budget at which the device pass and the wall pass end (the latter after its minimum of calls); the
rest is for the findings and the output check, which take a slow host up to 10 ms."""

HostTimes = dict[str, wall_pass.HostTime]


class DevicePass(NamedTuple):
    samples: Timing
    clock: ClockName
    budget_ms: float
    """What it was given, or twice that if calls are long."""
    unrecorded: list[Finding]
    """Why it fell back to event pairs; empty if it did not."""


@dataclass
class GpuPasses:
    gpu: Gpu
    request: RunRequest
    sides: blocks.Sides
    bench: blocks.Bench
    """A template: each pass runs a copy, because a run changes its budget."""
    new_clock: Callable[[], clocks.Clock]
    _passes: list[DevicePass] = field(default_factory=list)
    """Each keeps its last result, so later calls write elsewhere."""
    _host: HostTimes = field(default_factory=dict)

    def timed(self) -> Timed:
        began = self.bench.began
        assert began is not None  # on a GPU the budget includes large copies of inputs
        self._device_pass(self.bench)
        self._wall_pass(1e9 * (began - time.perf_counter()) + 1e6 * WITH_WALL / DEVICE_PASS * self._passes[0].budget_ms)
        mismatch = self._mismatch([], wall_check.SHORTEST_US)
        if mismatch:
            self._second_device_pass()
            mismatch = self._mismatch(mismatch)
        if mismatch:
            self._second_wall_pass()
            mismatch = self._mismatch(mismatch)
        samples, clock, _, _ = self._passes[-1]
        timed = Timed(samples, clock, {name: times.us for name, times in self._host.items()})
        timed.findings = [*self._of_passes(), *mismatch]
        timed.findings += [*self._late_work(timed), *_neighbours(self.gpu), *_throttled(samples)]
        return timed

    def _device_pass(self, bench: blocks.Bench) -> None:
        """By event pairs where the records cannot be used."""
        try:
            self._run(bench, [])
        except (ForgedRecords, LostRecords, clocks.Unsteady) as problem:
            clock = clocks.EventClock(self.gpu.flush(self.request.condition))
            events = replace(bench, clock=clock, budget_ms=bench.budget_ms / DEVICE_PASS, began=None)
            self._run(events, [_by_events(problem)])

    def _second_device_pass(self) -> None:
        """On the sets as they were: the first one's last call left the values of the other draw in one of them."""
        last = self._passes[-1].samples.last
        assert last is not None
        self.bench.rotation.refill(last[1])
        self._device_pass(replace(self.bench, clock=self.new_clock(), began=None))

    def _run(self, bench: blocks.Bench, unrecorded: list[Finding]) -> None:
        bench = replace(bench)
        bench.spots.begin_again()
        bench.beat()
        samples = bench.run(self.sides)
        bench.rotation.begin_block()  # later calls on this set would overwrite the last result, still to be judged
        self._passes.append(DevicePass(samples, bench.clock.name, bench.budget_ms, unrecorded))

    def _wall_pass(self, left_ns: float) -> None:
        flush = self.gpu.flush(self.request.condition)
        self._host = wall_pass.medians(list(self.sides), self._next_call, flush, left_ns)

    def _second_wall_pass(self) -> None:
        """With all its turns: the GPU's clocks may change between a few long calls."""
        flush = self.gpu.flush(self.request.condition)
        self._host = wall_pass.medians(list(self.sides), self._next_call, flush, fewest=wall_pass.TURNS)

    def _next_call(self, name: str) -> clocks.Call:
        self.bench.beat()  # a dozen calls may take longer than a worker may be silent
        return self.bench.call(name, self.sides[name])

    def _mismatch(self, otherwise: list[Finding], shortest_us: float = 0.0) -> list[Finding]:
        """What the last two passes disagree about; `otherwise` if they cannot tell: a side has no records or takes less
        than `shortest_us`, or both sides are off the same way."""
        samples, host = self._passes[-1].samples, self._host
        calls = [samples.activities.get(name) or [] for name in ("solution", "baseline")]
        own, base = (wall_check.on_device(some, shortest_us) for some in calls)
        if own is None or base is None or not {"solution", "baseline"} <= host.keys():
            return otherwise
        pairs = (own, host["solution"]), (base, host["baseline"])
        if wall_check.are_off_alike(*pairs):
            return otherwise
        found = wall_check.mismatch(*pairs, lambda: samples.estimate("baseline", "solution"))
        return [] if found is None else [found]

    def _of_passes(self) -> list[Finding]:
        """The findings of all device passes; one that both have comes with the later figures."""
        found = [finding for each in self._passes for finding in (*self._of_records(each.samples), *each.unrecorded)]
        return list({finding.code: finding for finding in found}.values())

    def _of_records(self, samples: Timing) -> list[Finding]:
        solution, baseline = (samples.activities.get(side) or [] for side in ("solution", "baseline"))
        found = kernel_ledger.findings(solution, baseline, samples.checked, self.request.task.libraries)
        kept = first_touch.finding(samples) if self.request.condition != "warm" else None
        return found if kept is None else [*found, kept]

    def _late_work(self, timed: Timed) -> list[Finding]:
        """Work on another stream that nothing waits for, although its records look joined."""
        calls = timed.samples.activities.get("solution") or []
        if not kernel_ledger.has_side_streams(calls) or any(found.code == "other_stream" for found in timed.findings):
            return []
        pause = self.gpu.flush(self.request.condition).pause
        late = wall_pass.left_us(lambda: self._next_call("solution"), pause)
        found = kernel_ledger.unjoined(*late, calls)
        return [] if found is None else [found]


def _neighbours(gpu: Gpu) -> list[Finding]:
    others = gpu.nvml.foreign_processes()
    if not others:
        return []
    return [findings.make("shared_gpu", processes=fmt.plural(others, "other process", "other processes"))]


def _by_events(problem: Exception) -> Finding:
    """The finding that explains the missing device time; forged records disqualify, lost ones may have any cause."""
    if isinstance(problem, ForgedRecords):
        return findings.make("forged_records", problem=problem)
    if isinstance(problem, LostRecords):
        return findings.make("event_pairs", problem=problem)
    return findings.make("not_recovered", problem=problem)


def _throttled(samples: Timing) -> list[Finding]:
    if samples.unsteady is None:
        return []
    return [findings.make("throttled", dropped=fmt.plural(samples.dropped, "block"), cause=samples.unsteady)]
