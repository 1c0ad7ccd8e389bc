"""Whether the wall pass confirms the device time: no profiler is active there, and the host's clock is another one.

A call waits for its work, so it takes at least as long as that work, and once the launches are done, no longer. A side
whose wall time is shorter did less without a profiler, or seemed slower with one; one that waits longer did something
that the records do not show. Both sides are needed: where both disagree, the cause is common to them, such as other
clocks of the GPU or another program on it. The bounds are wide, so that gaps between kernels, graphs, branches on
values and slow wrappers stay within them. Pure functions over activity records.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from harness.device.activity import Activity, Record
from harness.shared import format as fmt
from harness.shared import stats
from harness.shared.findings import make
from harness.shared.results import Finding
from harness.timing.wall_pass import HostTime

SHORTEST_US = 50.0
"""Below, a wall time is mostly launches."""
LESS, LESS_US = 0.02, 2.0
"""A wall time may be shorter by this share of the device time and this much per kernel: a recorded kernel is a little
longer."""
MORE, MORE_US, GAP_US = 0.1, 20.0, 3.0
"""Waiting may take longer by this share, for the wait itself, and per kernel for the gap after it."""
APART = 0.1
"""A longer wait counts if the speedups of device and wall time differ by this share too."""
TENTH = 10
"""A tenth of the calls may be faster or slower: two sets of values take turns, and a call may be disturbed."""
MOST_CALLS = 64
"""Calls to look at; a row has thousands."""


class Device(NamedTuple):
    """What the calls of a side took on the device."""

    least_us: float
    """Time that a fast call needs even if everything overlaps that may."""
    busy_us: float
    """Time that a slow call keeps the device busy."""
    kernels: int


def mismatch(
    solution: tuple[Device, HostTime],
    baseline: tuple[Device, HostTime],
    speedup: Callable[[], stats.Estimate | None],
) -> Finding | None:
    """The finding, if one side's times disagree and the other's do not; `speedup`, by device time, is rarely needed."""
    short = [_is_short(*side) for side in (solution, baseline)]
    if short[0] != short[1]:
        name, (device, host) = ("solution", solution) if short[0] else ("baseline", baseline)
        return _finding(name, device.least_us, host.us)
    if not _is_long(*solution) or _is_long(*baseline) or not _are_apart(speedup(), baseline[1].us / solution[1].us):
        return None
    return _finding("solution", solution[0].busy_us, solution[1].us)


def are_off_alike(solution: tuple[Device, HostTime], baseline: tuple[Device, HostTime]) -> bool:
    """Whether the times of both sides disagree the same way, which says nothing about either."""
    return any(is_off(*solution) and is_off(*baseline) for is_off in (_is_short, _is_long))


def on_device(calls: Sequence[Activity], shortest_us: float = 0.0) -> Device | None:
    """None if no call ran anything, or if a fast one takes less than `shortest_us`."""
    chosen = random.Random(0).sample(calls, min(len(calls), MOST_CALLS))  # every n-th may always have the same values
    some = [call for call in chosen if call.records]
    if not some:
        return None
    busy = sorted(call.busy_us for call in some)
    if busy[len(some) // TENTH] < shortest_us:  # it needs at most as long as it is busy
        return None
    least_us = sorted(map(_least_us, some))[len(some) // TENTH]
    if least_us < shortest_us:
        return None
    return Device(least_us, busy[-1 - len(some) // TENTH], max(len(call.records) for call in some))


def _least_us(call: Activity) -> float:
    """Records of a stream run one after another; the parts of a graph, and streams, may overlap without a profiler."""
    chains: dict[Hashable, list[Record]] = {}
    for place, record in enumerate(call.records):
        chains.setdefault((record.stream, place if record.graph else None), []).append(record)
    return max(Activity(tuple(chain)).busy_us for chain in chains.values())


def _is_short(device: Device, host: HostTime) -> bool:
    return host.us < (1 - LESS) * device.least_us - LESS_US * device.kernels


def _is_long(device: Device, host: HostTime) -> bool:
    """The device starts no later than the last launch, so from then on it needs at most its busy time."""
    return host.us - host.launch_us > (1 + MORE) * device.busy_us + MORE_US + GAP_US * device.kernels


def _are_apart(device: stats.Estimate | None, wall: float) -> bool:
    return device is not None and not device.low - math.log1p(APART) <= math.log(wall) <= device.high + math.log1p(
        APART
    )


def _finding(side: str, device_us: float, wall_us: float) -> Finding:
    return make("device_wall_mismatch", side=side, us=fmt.microseconds(device_us), wall_us=fmt.microseconds(wall_us))
