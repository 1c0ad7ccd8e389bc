"""Times one case: chooses the clock, input sets and passes, then fills in the row.

On a GPU the device pass comes first (activity records, or event pairs, labeled as such, if there are no records), then
the wall pass with no profiler active. Both hold the GPU's lock and start after unpinning the L2 lines that the solution
may have pinned. On a CPU there is only the wall clock.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from harness.device import environment, gpu, roofline
from harness.device.activity import ForgedRecords, LostRecords
from harness.device.cpu_bandwidth import CpuBandwidth
from harness.device.cpu_load import CpuLoad, Load
from harness.inputs import tensor_layout
from harness.inputs.cache import CaseInputs
from harness.inputs.reference import Inputs
from harness.shared import findings, stats
from harness.shared import format as fmt
from harness.shared.codes import Explanation
from harness.shared.results import CaseResult, ClockName, Finding, Ratio, WallTime
from harness.shared.run_request import RunRequest
from harness.shared.task import Case
from harness.timing import blocks, clocks, first_touch, kernel_ledger, wall_check, wall_pass
from harness.timing.input_sets import Rotation, Rules, rotation
from harness.timing.samples import Timing
from harness.timing.spot_checks import SpotChecks

Beat = Callable[[], None]
Masters = Sequence[CaseInputs]
"""The draws that the inputs of timed calls are copies of."""
_bandwidth, _peaks = CpuBandwidth(), roofline.ComputePeaks()
DEVICE_PASS, WITH_WALL = 0.72, 0.86
"""Shares of a row's budget on a GPU at which the device pass and the wall pass end (the latter after its minimum of
calls); the rest is for the findings and the output check, which take a slow host up to 10 ms."""

OTHER_SHARE = 0.5
"""Of a row's budget, for each side that is timed for comparison only: as much as baseline or best get of it."""


@dataclass
class Timed:
    """All measurements of one case."""

    samples: Timing
    clock: ClockName
    wall: dict[str, float] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    load: Load | None = None
    """Of other programs, meanwhile; only on a CPU."""


class CaseTimer:
    def __init__(self, request: RunRequest, device: gpu.Gpu | None) -> None:
        self._request, self._gpu = request, device
        self._rotated = 0
        """Bytes of the last row's inputs that each call read from memory; 0 if that is not sure."""

    @functools.cached_property
    def _cpu_load(self) -> CpuLoad:
        return CpuLoad()

    def time(self, sides: blocks.Sides, masters: Masters, beat: Beat, spots: SpotChecks) -> Timed:
        if self._gpu is None:
            return self._on_cpu(sides, masters, beat, spots)
        with gpu.locked(self._gpu.uuid, beat):
            gpu.reset_persisting_l2()
            return self._on_gpu(self._gpu, sides, masters, beat, spots)

    def floor(self, function: Callable[..., Any], masters: Masters, beat: Beat) -> float:
        """A/A floor: how far the function deviates from itself in four short runs."""
        with gpu.locked(self._gpu.uuid, beat) if self._gpu else nullcontext():
            clock = self.clock()
            return blocks.floor(lambda: self._bench(clock, masters, 2, beat, share=0.5), function)

    def alone(self, function: Callable[..., Any], masters: Masters, beat: Beat) -> float:
        """Microseconds of a function that nothing alternates with."""
        with gpu.locked(self._gpu.uuid, beat) if self._gpu else nullcontext():
            bench = self._bench(self.clock(), masters, 1, beat, share=0.25)
            return bench.run({bench.candidate: function}).time_us(bench.candidate) or 0.0

    def other(
        self, function: Callable[..., Any], solution: Callable[..., Any], masters: Masters, beat: Beat
    ) -> tuple[float, Ratio] | None:
        """Microseconds of a side, and how much faster the solution is; the two alternate, as with the baseline."""
        with gpu.locked(self._gpu.uuid, beat) if self._gpu else nullcontext():
            bench = self._bench(self.clock(), masters, 2, beat, share=OTHER_SHARE)
            timing = bench.run({"other": function, bench.candidate: solution})
        us = timing.time_us("other")
        ratio = timing.ratio("other", bench.candidate, stats.MARGIN)
        return None if us is None or ratio is None else (us, ratio)

    def _on_cpu(self, sides: blocks.Sides, masters: Masters, beat: Beat, spots: SpotChecks) -> Timed:
        bench = self._bench(clocks.WallClock(), masters, len(sides), beat, spots=spots)
        bench.looked_at = spots.more
        self._cpu_load.begin()
        samples = bench.run(sides)
        load = self._cpu_load.end()
        self._rotated = _rotated(bench.rotation, masters[0].inputs, self._request.task.written)
        times = {name: samples.time_us(name) for name in sides}
        wall = {name: value for name, value in times.items() if value is not None}
        return Timed(samples, "wall", wall, load=load)

    def _on_gpu(self, device: gpu.Gpu, sides: blocks.Sides, masters: Masters, beat: Beat, spots: SpotChecks) -> Timed:
        began = time.perf_counter()
        bench = self._bench(self.clock(), masters, len(sides), beat, DEVICE_PASS, spots)

        def by_records() -> tuple[blocks.Bench, Timing, list[Finding]]:
            """The device pass; with pairs of events where the records cannot be used."""
            try:
                return bench, bench.run(sides), []
            except (ForgedRecords, LostRecords, clocks.Unsteady) as problem:
                clock = clocks.EventClock(device.flush(self._request.condition))
                instead = self._bench(clock, masters, len(sides), beat, spots=spots)
                return instead, instead.run(sides), [_by_events(problem)]

        bench, samples, instead = by_records()
        bench.rotation.begin_block()
        flush = device.flush(self._request.condition)
        # the bench knows its budget, which is larger if calls are long
        left_ns = 1e9 * (began - time.perf_counter()) + 1e6 * WITH_WALL / DEVICE_PASS * bench.budget_ms
        host = wall_pass.medians(list(sides), lambda name: bench.call(name, sides[name]), flush, left_ns)
        mismatch = _mismatch(samples, host)
        if mismatch and any(times.calls < wall_pass.FULL for times in host.values()):

            def next_call(name: str) -> clocks.Call:
                beat()
                return bench.call(name, sides[name])

            # the GPU's clocks may have changed between a few long calls
            host = wall_pass.medians(list(sides), next_call, flush, fewest=wall_pass.TURNS)
            mismatch = _mismatch(samples, host)
        if mismatch:
            # A LayerNorm of 1.8 GB took 850 us in some calls and 945 in others, probably by where its output lay. The
            # new pass is what is reported, so that a source gains nothing by lying in the first.
            bench, samples, instead = by_records()
            mismatch = _mismatch(samples, host)
        timed = Timed(samples, bench.clock.name)
        timed.wall = {name: times.us for name, times in host.items()}
        timed.findings = [*self._ledger_findings(samples), *mismatch]
        calls = samples.activities.get("solution") or []
        if kernel_ledger.has_side_streams(calls) and all(found.code != "other_stream" for found in timed.findings):
            late = wall_pass.left_us(lambda: bench.call("solution", sides["solution"]), flush.pause)
            timed.findings += [found] if (found := kernel_ledger.unjoined(*late, calls)) is not None else []
        kept = first_touch.finding(samples) if self._request.condition != "warm" else None
        timed.findings += [kept] if kept is not None else []
        timed.findings += [*_neighbours(device), *_throttled(samples), *instead]
        return timed

    def _ledger_findings(self, samples: Timing) -> list[Finding]:
        calls, libraries = samples.activities, self._request.task.libraries
        return kernel_ledger.findings(
            calls.get("solution") or [], calls.get("baseline") or [], samples.checked, libraries
        )

    def clock(self) -> clocks.Clock:
        """The best clock available here."""
        if self._gpu is None:
            return clocks.WallClock()
        flush = self._gpu.flush(self._request.condition)
        try:
            return clocks.DeviceClock(self._gpu, flush, self._gpu.recorder)
        except (ImportError, AttributeError, RuntimeError):  # a torch without the profiler underneath
            return clocks.EventClock(flush)

    def _bench(
        self,
        clock: clocks.Clock,
        masters: Masters,
        sides: int,
        beat: Beat,
        share: float = 1.0,
        spots: SpotChecks | None = None,
    ) -> blocks.Bench:
        began = time.perf_counter() if self._gpu is not None else None
        task = self._request.task
        rules = Rules(task.mutates, task.outputs, (lambda master: masters[master].seed()) if task.seeded else None)
        device = self._gpu.device if self._gpu else "cpu"
        sets = rotation(device, [master.inputs for master in masters], rules, sides)
        spots = spots or SpotChecks(task.written, overwrites=self.overwrites, most_bytes=0, outputs=task.outputs)
        return blocks.Bench(clock, sets, self._request.budget_ms * share, beat, spots=spots, began=began)

    @property
    def overwrites(self) -> bool:
        """Whether results are overwritten before they are let go; with a warm L2, that would change what is in it."""
        return self._gpu is None or self._request.condition != "warm"

    def row(self, case: Case, result: CaseResult, timed: Timed, missing: Explanation | None) -> CaseResult:
        """The numbers of a correct row; `missing` explains a missing baseline."""
        samples = timed.samples
        base, best = samples.time_us("baseline"), samples.time_us("best")
        # The times shown are those that the speedup compares.
        times = {**samples.samples, "solution": samples.paired_with("solution", "baseline")}
        if base is not None and best is not None and samples.rounds:
            times["with_best"] = samples.paired_with("solution", "best")
        own = stats.interquartile_mean(times["solution"])
        floor = self._request.floors.get(case.id)
        margin = stats.margin(min(value for value in (own, base, best) if value is not None), floor)
        ratio = samples.ratio("baseline", "solution", margin) if base is not None else None
        vs_best = samples.ratio("best", "solution", margin) if best is not None else None
        calls = samples.activities.get("solution") or []
        row = replace(
            result,
            clock=timed.clock,
            baseline_us=base,
            solution_us=own,
            best_us=best,
            speedup=ratio.speedup if ratio else None,
            low=ratio.low if ratio else None,
            high=ratio.high if ratio else None,
            verdict=ratio.verdict if ratio else None,
            vs_best=ratio if self._request.baseline == "best" else vs_best,
            wall=_wall(timed, ratio),
            findings=(*result.findings, *timed.findings),
            kernels=kernel_ledger.usual_count(calls) if calls else None,
            ledger=kernel_ledger.kernels(calls) if calls else None,
            span_us=stats.interquartile_mean([call.span_us for call in calls]) if calls else None,
            blocks=samples.blocks,
            dropped=samples.dropped,
            dropped_for=samples.unsteady,
            detail=None if missing is None else missing.detail,
            reason=None if missing is None else missing.reason,
            floor=floor,
            samples={name: tuple(round(value, 4) for value in values) for name, values in times.items()},
        )
        return replace(row, findings=(*row.findings, *_disturbed(row, timed.load)))

    def with_roofline(
        self, result: CaseResult, traffic: roofline.Traffic, bandwidth: float | None, beat: Beat
    ) -> CaseResult:
        """Adds the fraction of a GPU's copy bandwidth, or of its peak in flops if that is nearer, and a finding if the
        time is impossibly short."""
        if self._gpu is None and result.solution_us is not None and result.clock == "wall":
            beyond = _bandwidth.impossible(traffic, self._rotated, result.solution_us, result.baseline_us)
            return replace(result, findings=(*result.findings, beyond)) if beyond else result
        if self._gpu is None or bandwidth is None or result.solution_us is None or result.clock != "device":
            return result
        beyond = None
        if self._request.condition == "cold":
            beyond = roofline.impossible(traffic, result.solution_us, self._gpu.l2_bytes, self._gpu.nvml.memory_peak())
        peak = None
        if roofline.needs_peak(traffic):
            fastest = min(us for us in (result.solution_us, result.baseline_us) if us is not None)
            with gpu.locked(self._gpu.uuid, beat):
                peak = _peaks.of(self._gpu, result.inputs, traffic.flops / (fastest * 1e-6))
        share, bound = roofline.nearer(traffic, result.solution_us, bandwidth, peak)
        return replace(
            result,
            roofline=share,
            bound=bound,
            findings=(*result.findings, beyond) if beyond else result.findings,
        )


def _rotated(rotation: Rotation, inputs: Inputs, mutates: tuple[str, ...]) -> int:
    """Bytes of the inputs that no call finds in the cache: at another address than in the calls before, and not
    restored just before the call. Gaps do not count, and an expanded element counts once."""
    if rotation.bytes < 2 * environment.last_level_cache():  # for lack of memory
        return 0
    tensors = [value for name, value in inputs.items() if name not in mutates and isinstance(value, torch.Tensor)]
    spans = ((tensor_layout.span_bytes(value), value.nbytes) for value in tensors if tensor_layout.plain(value))
    return sum(map(min, spans))


def _wall(timed: Timed, ratio: Ratio | None) -> WallTime | None:
    own, base = timed.wall.get("solution"), timed.wall.get("baseline")
    if timed.clock == "wall":
        return WallTime(base, own, ratio.speedup if ratio else None)
    return WallTime(base, own, base / own if own and base else None)


def _mismatch(samples: Timing, host: dict[str, wall_pass.HostTime]) -> list[Finding]:
    """Whether the wall pass contradicts the device time; needs the records of both sides."""
    calls = samples.activities
    own, base = (wall_check.on_device(calls.get(name) or []) for name in ("solution", "baseline"))
    if own is None or base is None or not {"solution", "baseline"} <= host.keys():
        return []
    pairs = (own, host["solution"]), (base, host["baseline"])
    found = wall_check.mismatch(*pairs, lambda: samples.estimate("baseline", "solution"))
    return [found] if found is not None else []


def _neighbours(device: gpu.Gpu) -> list[Finding]:
    others = device.nvml.foreign_processes()
    if not others:
        return []
    return [findings.make("shared_gpu", processes=fmt.plural(others, "other process", "other processes"))]


def _disturbed(row: CaseResult, load: Load | None) -> list[Finding]:
    """Only of a row that is unclear: the others have their verdict in spite of the load."""
    if load is None or not load.is_high or not row.is_unclear:
        return []
    return [findings.make("busy_machine", busy=fmt.fixed(load.busy, 1), cpus=load.cpus)]


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
