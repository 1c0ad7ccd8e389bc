"""Host time of one call and a synchronise on a GPU, beside the device time: what small rows live on.

The sides take turns of several calls, and the first of a turn are not counted: one call each in turn, a wrapper of 17
us took 23 beside a torch.compile baseline, and one of 26 took 39, because what it needs had left the host's caches.
Every call follows a flush of the L2. No profiler is active, yet that CUPTI was used in the process costs a call 4 to 8
us on such a host; `tests/measure/measure_wall.py` times calls without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.shared import stats
from harness.timing import clocks

TURNS, FEWEST_TURNS = 6, 2
COUNTED, SETTLING = 5, 2
"""Calls of a turn."""
LONG_NS = 1_000_000
"""The host's caches are no part of calls like this: the first of a turn count, and are all."""
WALL_NS = 12_000_000
"""Enough for thirty calls of what lives on the launch path; the median of a long call needs fewer."""


def medians(
    names: Sequence[str],
    next_call: Callable[[str], clocks.Call],
    flush: Callable[[], None],
    left_ns: float = WALL_NS,
) -> dict[str, float]:
    """Median microseconds per side, in the time that is left."""
    import torch

    synchronize, now = torch.cuda.synchronize, clocks.now

    def span(name: str) -> int:
        call = next_call(name)
        if call.prepare is not None:
            call.prepare()
        flush()
        synchronize()
        start = now()
        result = call.run()
        synchronize()
        end = now()
        del result
        return end - start

    times: dict[str, list[int]] = {name: [] for name in names}
    began = now()
    for turn in range(TURNS):
        if turn >= FEWEST_TURNS and now() - began > min(left_ns, WALL_NS):
            break
        for name in names[:: 1 if turn % 2 else -1]:
            times[name] += _turn(lambda name=name: span(name))  # type: ignore[misc]
    return {name: stats.median(values) / 1000 for name, values in times.items()}


def _turn(span: Callable[[], int]) -> list[int]:
    """The spans that count."""
    settling = [span() for _ in range(SETTLING)]
    return settling if min(settling) >= LONG_NS else [span() for _ in range(COUNTED)]
