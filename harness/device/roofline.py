"""The roofline: how fast the bytes could move and the flops be done at best, and which times are impossible.

The best copy bandwidth that was measured is stored by the GPU's UUID in the user's cache. `roofline` is the time that
the bytes would take at that rate, divided by the measured time. A kernel faster than the memory bus (bytes read, plus
bytes written beyond what may still be in the L2, at the driver's peak) did not do the work; that finding disqualifies
it.

If a task's `traffic` counts flops, or torch does for an imported task, the time that they would take in a large dense
matmul of the inputs' dtype counts too, and the longer of the two times is the bound. That rate is measured once per
worker, when a row first needs it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.device.flush import cache_folder, write_whole
from harness.device.gpu import Gpu
from harness.shared import findings
from harness.shared import format as fmt
from harness.shared.results import Finding, InputForm, RoofBound

COPIED = 1 << 30
TF32 = "tf32"
MATMULS = {"bfloat16": 8192, "float16": 8192, "float32": 4096, TF32: 8192}
"""Dtypes whose peak can be measured, with the size of the square matrices: at the rates of an H200's data sheet a
product takes 1 to 2 ms."""
FEW_FLOPS = 4.0
"""Per byte. Every GPU does more in the time that it moves a byte: the least is about 10, in float32 on an A100. So a
norm needs no measurement."""
ABOVE = 1.05
"""A rate up to this many times a peak may be the peak's, measured at other clocks."""
USUAL = 0.8
"""A copy reaches this share of the bus's peak, or more, on an idle GPU: 0.85 to 0.9 on an H200. Where it does not,
measuring again costs each worker some 10 ms."""
BURSTS, COPIES, MATMULS_IN_A_BURST = 3, 5, 2


@dataclass(frozen=True)
class Traffic:
    """Bytes that one call must move."""

    read: float
    written: float
    flops: float = 0.0


def fraction(traffic: Traffic, us: float, bandwidth: float) -> float:
    """Fraction of the copy bandwidth; above 1 if caches help."""
    return (traffic.read + traffic.written) / bandwidth / (us * 1e-6)


def nearer(traffic: Traffic, us: float, bandwidth: float, peak: float | None) -> tuple[float, RoofBound | None]:
    """The fraction of the nearer bound, and which one it is; `peak` is in flops per second."""
    memory = fraction(traffic, us, bandwidth)
    if not traffic.flops:
        return memory, None
    if not needs_peak(traffic):
        return memory, "memory"
    if peak is None:
        return memory, None
    compute = traffic.flops / peak / (us * 1e-6)
    # above the peak, a solution evidently does with fewer flops: half of a triangular product is zeros
    return (compute, "compute") if memory < compute <= ABOVE else (memory, "memory")


def counted_flops(call: Callable[[], object]) -> float:
    """Of the matrix products, convolutions and attention in a call, by torch's own formulas."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        call()
    return float(counter.get_total_flops())


def needs_peak(traffic: Traffic) -> bool:
    """Whether only a measurement can tell which bound is nearer."""
    return traffic.flops > FEW_FLOPS * (traffic.read + traffic.written)


class ComputePeaks:
    """Flops per second of a large dense matmul by GPU and dtype."""

    def __init__(self, measure: Callable[[Gpu, str], float | None] | None = None) -> None:
        self._measure = measure or _matmul_rate
        self._known: dict[tuple[str, str], float] = {}

    def of(self, gpu: Gpu, inputs: Sequence[InputForm], reached: float = 0.0) -> float | None:
        """The peak for the dtype of most elements, in float32 that of TF32 if a side `reached` more flops per second:
        cuDNN's convolutions use it by default. None if the dtype has none here or it could not be measured this time.
        """
        dtype = _main_dtype(inputs)
        peak = self._peak(gpu, dtype) if dtype in MATMULS else None
        if dtype == "float32" and peak is not None and reached > peak * ABOVE:
            return self._peak(gpu, TF32)
        return peak

    def _peak(self, gpu: Gpu, dtype: str) -> float | None:
        key = gpu.uuid, dtype
        if key not in self._known and (rate := self._measure(gpu, dtype)) is not None:
            self._known[key] = rate
        return self._known.get(key)


def _main_dtype(inputs: Sequence[InputForm]) -> str:
    """The floating dtype of most elements; empty if no input is floating."""
    elements: Counter[str] = Counter()
    for form in inputs:
        if form.shape is not None and form.dtype is not None and "float" in form.dtype:
            elements[form.dtype] += math.prod(form.shape)
    return max(elements, key=elements.__getitem__, default="")


def impossible(traffic: Traffic, us: float, l2_bytes: int, peak: float | None) -> Finding | None:
    if peak is None:
        return None
    floor_us = (traffic.read + max(0.0, traffic.written - l2_bytes)) / peak * 1e6
    if us >= floor_us:
        return None
    return findings.make("impossible_time", us=fmt.microseconds(us), floor_us=fmt.microseconds(floor_us))


def copy_bandwidth(gpu: Gpu) -> float:
    """Bytes per second of a large copy, counting reads and writes. Another program can only make a copy slower, so the
    best one is stored, and measured again until it reaches USUAL of the bus's peak. One beyond the peak stayed in the
    L2, for lack of free memory."""
    path, peak = cache_folder() / "bandwidth.json", gpu.nvml.memory_peak() or 0.0
    try:
        known: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        known = {}
    stored = known.get(gpu.uuid)
    best = stored if isinstance(stored, float) else 0.0
    if best and best >= USUAL * peak:
        return best
    measured = _copies(gpu)
    if peak and measured > peak:
        return best or peak
    if measured > best:
        write_whole(path, json.dumps({**known, gpu.uuid: measured}))
    return max(measured, best)


def _copies(gpu: Gpu) -> float:
    import torch

    size = min(COPIED, torch.cuda.mem_get_info()[0] // 8)
    source = torch.empty(size, dtype=torch.uint8, device=gpu.device).random_()
    target = torch.empty_like(source)
    for _ in range(3):
        target.copy_(source)
    return 2.0 * size / _fastest(lambda: target.copy_(source), COPIES)


def _fastest(call: Callable[[], object], calls: int) -> float:
    """Seconds per call in the fastest burst: another program may slow one down."""
    import torch

    event: Any = torch.cuda.Event
    found = math.inf
    for _ in range(BURSTS):
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        found = min(found, start.elapsed_time(end) * 1e-3)
    return float(found / calls)


def _matmul_rate(gpu: Gpu, dtype: str) -> float | None:
    """With TF32 only if asked for, whatever the source has set; None for lack of memory, or if torch refuses to change
    that."""
    import torch

    size, kind = MATMULS[dtype], torch.float32 if dtype == TF32 else getattr(torch, dtype)
    if torch.cuda.mem_get_info()[0] < 16 * kind.itemsize * size * size:
        return None
    try:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if dtype == TF32 else "highest")
        try:
            with torch.no_grad():
                return _matmuls(gpu.device, size, kind)
        finally:
            torch.set_float32_matmul_precision(before)
    except RuntimeError:
        return None


def _matmuls(device: str, size: int, kind: Any) -> float:
    import torch

    lot = torch.Generator(device=device).manual_seed(0)  # the source's own random numbers stay as they are
    left, right = (torch.randn(size, size, dtype=kind, device=device, generator=lot) for _ in range(2))
    out = torch.empty_like(left)
    torch.mm(left, right, out=out)
    return 2.0 * size**3 / _fastest(lambda: torch.mm(left, right, out=out), MATMULS_IN_A_BURST)
