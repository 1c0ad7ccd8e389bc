"""Watches sites and entries: whether each was called, and how long its calls take.

Timed sides run without any of this. Under torch.compile the Python of a site runs only while it is traced, so what was
traced is noted instead: a side that runs another side's graph traces no site.
"""

from __future__ import annotations

import functools
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from harness.shared.model_step import Site

Function = Callable[..., Any]


class Watch:
    """Lets everything through."""

    def site(self, site: Site, function: Function) -> Function:
        return function

    def entry(self, task: str, function: Function) -> Function:
        return function


class Counts(Watch):
    """Counts the calls of one step."""

    def __init__(self) -> None:
        self.sites: Counter[str] = Counter()
        self.entries: Counter[str] = Counter()

    def site(self, site: Site, function: Function) -> Function:
        return self._counted(site.call, self.sites, function)

    def entry(self, task: str, function: Function) -> Function:
        return self._counted(task, self.entries, function)

    def _counted(self, name: str, counts: Counter[str], function: Function) -> Function:
        counts[name] += 0

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return function(*args, **kwargs)

        return call

    @property
    def missing(self) -> str:
        """Which site or entry never ran, in words; empty if all did."""
        for name, count in self.sites.items():
            if not count:
                return f"{name} was never called"
        return next((f"the entry of {name} never ran" for name, count in self.entries.items() if not count), "")


class Traced(Counts):
    """Notes what torch.compile traces; costs nothing afterwards."""

    def _counted(self, name: str, counts: Counter[str], function: Function) -> Function:
        import torch

        counts[name] += 0

        def note() -> int:
            counts[name] += 1
            return 0

        noted = torch.compiler.assume_constant_result(note)  # type: ignore[no-untyped-call]

        def call(*args: Any, **kwargs: Any) -> Any:
            noted()
            return function(*args, **kwargs)

        return call


class Noted(Watch):
    """Notes the first call of each, with what it ran on: a process of a command may end without a word."""

    def __init__(self, note: Callable[..., None]) -> None:
        self._note = note

    def site(self, site: Site, function: Function) -> Function:
        return self._noted({"site": site.call}, function)

    def entry(self, task: str, function: Function) -> Function:
        return self._noted({"entry": task}, function)

    def _noted(self, what: dict[str, str], function: Function) -> Function:
        is_new = [True]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if is_new:
                is_new.clear()
                self._note(**what, **_here())
            return result

        return call


def _here() -> dict[str, str]:
    """torch's version and the GPU, in a process that uses them."""
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return {}
    return {"torch": str(torch.__version__), "device_name": str(cuda.get_device_name())}


class Timers(Watch):
    """Seconds in each task's sites during one step: on a GPU between two events, else on the host."""

    def __init__(self, on_gpu: bool) -> None:
        self.calls: Counter[str] = Counter()
        self._on_gpu = on_gpu
        self._spans: list[tuple[str, Any, Any]] = []

    def site(self, site: Site, function: Function) -> Function:
        now = self._event if self._on_gpu else time.perf_counter

        def call(*args: Any, **kwargs: Any) -> Any:
            begin = now()
            result = function(*args, **kwargs)
            self._spans.append((site.task, begin, now()))
            return result

        return call

    def _event(self) -> Any:
        import torch

        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def take(self) -> dict[str, float]:
        """Seconds by task since the last call; on a GPU after a synchronize."""
        total: dict[str, float] = {}
        self.calls = Counter(task for task, _, _ in self._spans)
        for task, begin, end in self._spans:
            seconds = begin.elapsed_time(end) / 1000 if self._on_gpu else end - begin
            total[task] = total.get(task, 0.0) + seconds
        self._spans = []
        return total
