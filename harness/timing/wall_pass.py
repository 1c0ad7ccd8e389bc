"""Host time of one call plus a synchronize on a GPU, which dominates small rows; measured after the device time.

The sides take turns of several calls, and the first calls of a turn do not count. With turns of one call, a wrapper
that takes 17 us took 23 us next to a torch.compile baseline, and one of 26 us took 39, because the other side had
evicted its data from the host's caches. Every call follows a flush of the L2. No profiler is active, but having used
CUPTI in the process costs 4 to 8 us per call on that host; `tests/measure/measure_wall.py` times calls without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from harness.shared import stats
from harness.timing import clocks

TURNS, FEWEST_TURNS = 6, 2
COUNTED, SETTLING = 5, 2
"""Calls per turn."""
LONG_NS = 1_000_000
"""For calls this long the host's caches do not matter: the first calls of a turn count, and the turn ends there."""
WALL_NS = 12_000_000
"""Enough for thirty launch-bound calls; the median of a long call needs fewer."""

LOOKS, PAUSES = 7, 1
"""Calls that `left_us` makes, and the pauses before each of them. On an H200 up to one wait in thirty for a GPU that is
done takes over 20 us: of three calls two would be late by chance too often, of seven hardly ever four."""

Span = tuple[int, int]
"""Nanoseconds of a call with the wait for the device, and until it returned."""


class HostTime(NamedTuple):
    """Median microseconds of one side's calls."""

    us: float
    """With the wait for the device."""
    launch_us: float
    """Until the call returned; all of it if the call itself waits."""


def medians(
    names: Sequence[str],
    next_call: Callable[[str], clocks.Call],
    flush: Callable[[], None],
    left_ns: float = WALL_NS,
    fewest: int = FEWEST_TURNS,
) -> dict[str, HostTime]:
    """Times per side, within the remaining time; `fewest` turns are taken anyway."""
    import torch

    synchronize, now = torch.cuda.synchronize, clocks.now

    def span(name: str) -> Span:
        call = next_call(name)
        if call.prepare is not None:
            call.prepare()
        flush()
        synchronize()
        run = call.run
        # The times are in no variable during the call, which could change them.
        start, result, launched, _, end = now(), run(), now(), synchronize(), now()
        if call.after is not None:
            call.after(result)
        del result
        return end - start, launched - start

    times: dict[str, list[Span]] = {name: [] for name in names}
    began = now()
    for turn in range(TURNS):
        if turn >= fewest and now() - began > min(left_ns, WALL_NS):
            break
        for name in names[:: 1 if turn % 2 else -1]:
            times[name] += _turn(lambda name=name: span(name))  # type: ignore[misc]
    return {
        name: HostTime(stats.median(whole) / 1000, stats.median(launch) / 1000)
        for name, (whole, launch) in ((name, tuple(zip(*spans, strict=True))) for name, spans in times.items())
    }


def left_us(next_call: Callable[[], clocks.Call], pause: Callable[[], None]) -> tuple[list[float], list[float]]:
    """Microseconds from the end of the caller's stream to the end of all work: after a few calls, and after pauses,
    which leave nothing running. On a GPU that other programs use, even those may take milliseconds."""
    found, idle = [], []
    for _ in range(LOOKS):
        call = next_call()
        if call.prepare is not None:
            call.prepare()
        idle += [_waits(pause)[1] for _ in range(PAUSES)]
        result, us = _waits(call.run)
        found.append(us)
        if call.after is not None:
            call.after(result)
        del result
    return found, idle


def _waits(run: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and how long the device goes on. An event tells when the stream is done: a kernel on it, such as the
    next flush, cannot start while others fill the GPU."""
    import torch

    done = torch.cuda.Event()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    result = run()
    done.record()
    done.synchronize()
    began = clocks.now()
    torch.cuda.synchronize()
    return result, (clocks.now() - began) / 1000


def _turn(span: Callable[[], Span]) -> list[Span]:
    """The spans that count."""
    settling = [span() for _ in range(SETTLING)]
    return settling if min(settling)[0] >= LONG_NS else [span() for _ in range(COUNTED)]
