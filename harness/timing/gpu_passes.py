"""Times one case on a GPU: a device pass, then a wall pass with no profiler active.

The device pass reads activity records, or event pairs, labeled as such, if there are no records. Where the wall pass
contradicts it, a second device pass is taken: the mismatch counts unless that pass agrees with the wall clock. A
LayerNorm of 1.8 GB took 850 us in some calls and 945 in others, probably by where its output lay, so that an honest
source may be timed one way in one pass and the other way in the next. The second pass is the one that is reported, so a
source gains nothing from the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
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
    """What the pass may have taken: more than it was given, if calls are long."""
    unrecorded: list[Finding]
    """Why event pairs timed it."""


@dataclass
class GpuPasses:
    gpu: Gpu
    request: RunRequest
    sides: blocks.Sides
    bench: blocks.Bench
    """Never run itself, because a run changes its bench's budget: each pass runs on a copy."""
    new_clock: Callable[[], clocks.Clock]

    def timed(self) -> Timed:
        began = time.perf_counter() if self.bench.began is None else self.bench.began
        passes = [self._device_pass(self.bench)]
        self.bench.rotation.begin_block()
        left_ns = 1e9 * (began - time.perf_counter()) + 1e6 * WITH_WALL / DEVICE_PASS * passes[0].budget_ms
        host, mismatch = self._wall_pass(passes[0].samples, left_ns)
        if mismatch:
            passes.append(self._device_pass(replace(self.bench, clock=self.new_clock(), began=None)))
            again = _mismatch(passes[-1].samples, host)
            mismatch = mismatch if again is None else again
        samples, clock, _, _ = passes[-1]
        timed = Timed(samples, clock, {name: times.us for name, times in host.items()})
        timed.findings = [*self._of_passes(passes), *mismatch]
        timed.findings += [*self._late_work(timed), *_neighbours(self.gpu), *_throttled(samples)]
        return timed

    def _device_pass(self, bench: blocks.Bench) -> DevicePass:
        """By event pairs where the records cannot be used."""
        try:
            return self._run(bench, [])
        except (ForgedRecords, LostRecords, clocks.Unsteady) as problem:
            clock = clocks.EventClock(self.gpu.flush(self.request.condition))
            return self._run(replace(bench, clock=clock, began=None), [_by_events(problem)])

    def _run(self, bench: blocks.Bench, unrecorded: list[Finding]) -> DevicePass:
        bench = replace(bench)
        bench.spots.begin_again()
        samples = bench.run(self.sides)
        return DevicePass(samples, bench.clock.name, bench.budget_ms, unrecorded)

    def _wall_pass(self, samples: Timing, left_ns: float) -> tuple[HostTimes, list[Finding]]:
        """The host's times, and the finding if they contradict those of the device pass."""
        flush = self.gpu.flush(self.request.condition)
        host = wall_pass.medians(list(self.sides), self._next_call, flush, left_ns)
        mismatch = _mismatch(samples, host) or []
        if not mismatch or all(times.calls >= wall_pass.FULL for times in host.values()):
            return host, mismatch

        def next_call(name: str) -> clocks.Call:
            self.bench.beat()
            return self._next_call(name)

        # the GPU's clocks may have changed between a few long calls
        host = wall_pass.medians(list(self.sides), next_call, flush, fewest=wall_pass.TURNS)
        return host, _mismatch(samples, host) or []

    def _next_call(self, name: str) -> clocks.Call:
        return self.bench.call(name, self.sides[name])

    def _of_passes(self, passes: list[DevicePass]) -> list[Finding]:
        """A finding of one pass stays if the next does not repeat it; the later one gives the figures."""
        found = [finding for each in passes for finding in (*self._of_records(each.samples), *each.unrecorded)]
        return list({finding.code: finding for finding in found}.values())

    def _of_records(self, samples: Timing) -> list[Finding]:
        solution, baseline = (samples.activities.get(side) or [] for side in ("solution", "baseline"))
        found = kernel_ledger.findings(solution, baseline, samples.checked, self.request.task.libraries)
        kept = first_touch.finding(samples) if self.request.condition != "warm" else None
        return found if kept is None else [*found, kept]

    def _late_work(self, timed: Timed) -> list[Finding]:
        """Work on another stream that nothing waits for and that the records do not show."""
        calls = timed.samples.activities.get("solution") or []
        if not kernel_ledger.has_side_streams(calls) or any(found.code == "other_stream" for found in timed.findings):
            return []
        pause = self.gpu.flush(self.request.condition).pause
        late = wall_pass.left_us(lambda: self._next_call("solution"), pause)
        found = kernel_ledger.unjoined(*late, calls)
        return [] if found is None else [found]


def _mismatch(samples: Timing, host: HostTimes) -> list[Finding] | None:
    """Whether the wall pass contradicts the device time; None where the two cannot be compared, which needs records of
    both sides."""
    calls = samples.activities
    own, base = (wall_check.on_device(calls.get(name) or []) for name in ("solution", "baseline"))
    if own is None or base is None or not {"solution", "baseline"} <= host.keys():
        return None
    pairs = (own, host["solution"]), (base, host["baseline"])
    found = wall_check.mismatch(*pairs, lambda: samples.estimate("baseline", "solution"))
    return [found] if found is not None else []


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
