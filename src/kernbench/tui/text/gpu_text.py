"""The GPU pane's lines: the newest sample as bars, the minutes before it, and which GPU is ours. No Textual here.

Every line keeps its shape from second to second, so that only changed cells are sent. The history moves one cell every
five seconds.
"""

from __future__ import annotations

from collections import deque

from harness.shared import format as fmt
from kernbench.machine import telemetry
from kernbench.machine.telemetry import GpuSample, HostSample, Sample
from kernbench.tui.text.spans import Span, clean, clip, pad

CELLS, SECONDS_A_CELL = 60, 5
BARS, ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
FULL, EMPTY = "▇", "▁"
"""Lower than a cell, so that the meters of two lines do not run together."""
LABEL, VALUE = 8, 15
LEAST_BAR, MOST_BAR, LEAST_HISTORY = 6, 20, 6
HIGH = {"heat": 0.85, "memory": 0.95, "ram": 0.95}
"""The share from which a meter warns."""
GIB = 1024**3

Line = list[Span]


class History:
    """Five-second means of one figure between 0 and 1, for the last five minutes."""

    def __init__(self) -> None:
        self._means: deque[float | None] = deque(maxlen=CELLS)
        self._now: list[float] = []
        self._count = 0
        self._last: float | None = None

    def add(self, value: float | None) -> None:
        self._count += 1
        self._last = value
        if value is not None:
            self._now.append(value)
        if self._count == SECONDS_A_CELL:
            self._means.append(sum(self._now) / len(self._now) if self._now else None)
            self._now, self._count = [], 0

    @property
    def newest(self) -> float | None:
        """The last figure, not averaged."""
        return self._last

    def text(self, cells: int, ascii_only: bool) -> str:
        bars = ASCII_BARS if ascii_only else BARS[:-1]
        means = list(self._means)[-cells:] if cells else []
        return "".join(" " if mean is None else bars[min(int(mean * len(bars)), len(bars) - 1)] for mean in means)


def bar(share: float | None, cells: int, ascii_only: bool) -> str:
    """A bar of so many cells; blank if the share is not known."""
    if share is None:
        return " " * cells
    full, empty = ("#", ".") if ascii_only else (FULL, EMPTY)
    return (full * round(min(max(share, 0.0), 1.0) * cells)).ljust(cells, empty)


class Meters:
    """Turns samples into lines."""

    def __init__(self, ascii_only: bool) -> None:
        self._ascii = ascii_only
        self._sample: Sample | None = None
        self._past: dict[str, History] = {}
        self._width = 1
        self.device: str | None = None
        """The worker's device; None until it reports it."""
        self.uuid: str | None = None

    def take(self, sample: Sample) -> None:
        self._sample = sample
        figures = _host_figures(sample.host)
        gpu = self.gpu
        if gpu is not None:
            figures |= _gpu_figures(gpu)
        for name, value in figures.items():
            self._past.setdefault(name, History()).add(value)

    @property
    def gpu(self) -> GpuSample | None:
        """The GPU in use, else the first one, so that the pane shows a GPU even if the worker runs on the CPU. None if
        the worker's GPU is not listed: another GPU's heat and processes do not affect its times.
        """
        if self._sample is None or not self._sample.gpus:
            return None
        used = telemetry.in_use(self._sample.gpus, self.device or "cpu", self.uuid)
        return used or (None if self.uuid else self._sample.gpus[0])

    def warning(self) -> str:
        """Why times on the GPU in use are doubtful right now; empty if they are not."""
        gpu = self.gpu
        if gpu is None or self.device in (None, "cpu"):
            return ""
        others = telemetry.strangers(gpu)
        if others:
            return f"the GPU is shared with {fmt.plural(len(others), 'process', 'processes')}"
        heat = [word for word in gpu.limits or () if "thermal" in word or "brake" in word or "slowdown" in word]
        return f"the GPU is throttled: {heat[0]}" if heat else ""

    def lines(self, width: int) -> list[Line]:
        sample, self._width = self._sample, width
        if sample is None:
            return [[("reading the meters", "dim")]]
        gpu = self.gpu
        several = [self._short(item, item is gpu, width) for item in sample.gpus] if len(sample.gpus) > 1 else []
        first = self._one(gpu, width) if gpu is not None else [[(clip(self._why_none(sample), width), "warn")]]
        return [*first, *several, *self._host(sample.host)]

    def _why_none(self, sample: Sample) -> str:
        if self.uuid:
            return f"{self.device}: {clean(sample.why) or 'NVML does not list it'}"
        return f"no GPU: {clean(sample.why) or 'none found'}"

    def _one(self, gpu: GpuSample, width: int) -> list[Line]:
        used = "not used by this task" if self.device == "cpu" else self.device or ""
        return [
            [(clip(clean(gpu.name), width - len(used) - 2), "strong"), (f"  {used}", "dim")],
            self._figure("busy", _percent(gpu.busy), "busy"),
            self._figure("mem bus", _percent(gpu.bus), "bus"),
            self._figure("memory", _of(_gib(gpu.memory_used), _gib(gpu.memory_total), "GiB"), "memory"),
            self._figure("SM", _of(fmt.whole(gpu.sm_mhz), fmt.whole(gpu.sm_max_mhz), "MHz"), "sm"),
            self._figure("mem", _of(fmt.whole(gpu.memory_mhz), fmt.whole(gpu.memory_max_mhz), "MHz"), "mem"),
            self._figure("power", _of(fmt.whole(gpu.power_w), fmt.whole(gpu.limit_w), "W"), "power"),
            self._figure("temp", fmt.DASH if gpu.celsius is None else f"{gpu.celsius} C", "heat"),
            self._limits(gpu, width),
            self._processes(gpu, width),
        ]

    def _host(self, host: HostSample) -> list[Line]:
        busy = fmt.DASH if host.busy is None else f"{_percent(host.busy)} of {host.cores}"
        return [
            self._figure("cpu", busy, "cpu"),
            self._figure("ram", _of(_gib(host.memory_used), _gib(host.memory_total), "GiB"), "ram"),
        ]

    def _figure(self, label: str, value: str, name: str) -> Line:
        """Label, bar, figure and history; in a narrow pane without bar."""
        if value == fmt.DASH:
            return [(pad(label, LABEL) + value, "")]
        past = self._past.get(name)
        cells = _bar_cells(self._width)
        known = past.newest if past else None
        style = "warn" if known is not None and known >= HIGH.get(name, 2.0) else "accent"
        return [
            (pad(label, LABEL), ""),
            (bar(known, cells, self._ascii) + " " if cells else "", style),
            (pad(value, VALUE), ""),
            (past.text(_history_cells(self._width), self._ascii) if past else "", style),
        ]

    def _limits(self, gpu: GpuSample, width: int) -> Line:
        """Why the clock is not higher, and when it was not."""
        if gpu.limits is None:
            return [(pad("limit", LABEL) + fmt.DASH, "")]
        past, cells = self._past["limit"], _history_cells(width)
        room = width - LABEL - cells
        words = ", ".join(gpu.limits) or "none"
        return [
            (pad("limit", LABEL), ""),
            (pad(words, room) if cells else clip(words, room), "warn" if gpu.limits else ""),
            (past.text(cells, self._ascii), "warn"),
        ]

    def _short(self, gpu: GpuSample, used: bool, width: int) -> Line:
        figures = [
            pad(_percent(gpu.busy), 5, right=True),
            pad(f"{_gib(gpu.memory_used)}G", 6, right=True),
            pad(f"{fmt.whole(gpu.power_w)}W", 5, right=True),
            pad(f"{fmt.DASH if gpu.celsius is None else gpu.celsius}C", 4, right=True),
        ]
        text = f"{'*' if used else ' '} {gpu.index} " + " ".join(figures) + f"  {clean(gpu.name)}"
        return [(clip(text, width), "strong" if used else "")]

    def _processes(self, gpu: GpuSample, width: int) -> Line:
        if gpu.processes is None:
            return [(pad("procs", LABEL) + fmt.DASH, "")]
        others = telemetry.strangers(gpu)
        if not others:
            ours = sum(1 for process in gpu.processes if process.ours)
            words = (
                f"{ours} ours"
                if ours
                else fmt.plural(len(gpu.processes), "process", "processes")
                if gpu.processes
                else "none"
            )
            return [(pad("procs", LABEL) + words, "")]
        named = ", ".join(f"{clean(item.name or '?')} {item.pid} {_gib(item.memory)}G" for item in others)
        return [(pad("procs", LABEL), ""), (clip(f"! {len(others)} not ours: {named}", width - LABEL), "warn")]


def _gpu_figures(gpu: GpuSample) -> dict[str, float | None]:
    return {
        "busy": _share(gpu.busy, 100),
        "bus": _share(gpu.bus, 100),
        "sm": _share(gpu.sm_mhz, gpu.sm_max_mhz),
        "power": _share(gpu.power_w, gpu.limit_w),
        "heat": _share(gpu.celsius, 100),
        "memory": _share(gpu.memory_used, gpu.memory_total),
        "mem": _share(gpu.memory_mhz, gpu.memory_max_mhz),
        "limit": None if gpu.limits is None else float(bool(gpu.limits)),
    }


def _host_figures(host: HostSample) -> dict[str, float | None]:
    return {"cpu": _share(host.busy, 100), "ram": _share(host.memory_used, host.memory_total)}


def _bar_cells(width: int) -> int:
    """A third of what label and figure leave, if that and a history fit."""
    left = width - LABEL - VALUE - 1
    return min(max(left // 3, LEAST_BAR), MOST_BAR) if left >= LEAST_BAR + LEAST_HISTORY else 0


def _history_cells(width: int) -> int:
    bar_cells = _bar_cells(width)
    return max(min(width - LABEL - VALUE - (bar_cells + 1 if bar_cells else 0), CELLS), 0)


def _share(value: float | None, most: float | None) -> float | None:
    return None if value is None or not most else max(min(value / most, 1.0), 0.0)


def _percent(value: float | None) -> str:
    return fmt.percent(value, of=100)


def _gib(value: int | None) -> str:
    return fmt.fixed(None if value is None else value / GIB, 1)


def _of(value: str, most: str, unit: str) -> str:
    return fmt.DASH if value == fmt.DASH else f"{value}/{most} {unit}" if most != fmt.DASH else f"{value} {unit}"
