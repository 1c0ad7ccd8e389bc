"""Times one case: chooses the clock and the input sets, then fills in the row.

On a GPU the row is timed by gpu_passes.py, under the GPU's lock and after unpinning the L2 lines that the solution may
have pinned. On a CPU there is only the wall clock.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from harness.device import environment, gpu, roofline
from harness.device.cpu_bandwidth import CpuBandwidth
from harness.device.cpu_load import CpuLoad, Load
from harness.inputs import tensor_layout
from harness.inputs.cache import CaseInputs
from harness.inputs.reference import Inputs
from harness.shared import findings, stats
from harness.shared import format as fmt
from harness.shared.codes import Explanation
from harness.shared.results import CaseResult, Finding, Ratio, WallTime
from harness.shared.run_request import RunRequest
from harness.shared.task import Case
from harness.timing import blocks, clocks, gpu_passes, kernel_ledger
from harness.timing.input_sets import Rotation, Rules, rotation
from harness.timing.samples import Timed
from harness.timing.spot_checks import SpotChecks

Beat = Callable[[], None]
Masters = Sequence[CaseInputs]
"""The draws that the inputs of timed calls are copies of."""
_bandwidth, _peaks = CpuBandwidth(), roofline.ComputePeaks()
OTHER_SHARE = 0.5
"""Of a row's budget, for each side that is timed for comparison only: as much as baseline or best get of it."""


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
            bench = self._bench(self.clock(), masters, len(sides), beat, gpu_passes.DEVICE_PASS, spots)
            return gpu_passes.GpuPasses(self._gpu, self._request, sides, bench, self.clock).timed()

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


def _disturbed(row: CaseResult, load: Load | None) -> list[Finding]:
    """Only of a row that is unclear: the others have their verdict in spite of the load."""
    if load is None or not load.is_high or not row.is_unclear:
        return []
    return [findings.make("busy_machine", busy=fmt.fixed(load.busy, 1), cpus=load.cpus)]
