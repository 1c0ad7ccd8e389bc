"""Which kernels ran: summarizes the records of every timed call for the row and checks them for invalid timings.

Most findings here are accidents: work on a stream that is never waited for, a fallback to a library, a graph on one
side only, a first call that does more than later ones. Less work than in the checked call is none: that source knows
when it is timed. Pure functions over activity records.
"""

from __future__ import annotations

import math
import statistics
import struct
from collections import Counter
from collections.abc import Sequence

from harness.device.activity import Activity
from harness.shared import format as fmt
from harness.shared.findings import make
from harness.shared.results import Finding, KernelTime

LIBRARIES = ("at::native", "at_cuda_detail", "cub::", "cublas", "cutlass", "cudnn", "nvjet", "sm90_xmma", "thrust::")
LIBRARY_SHARE = 0.9
"""Of the device time: a source that spends it in a library's kernels is that library."""
MOST_LISTED = 32
LAUNCH = struct.Struct("<8i")
"""Grid and block in three dimensions, static and dynamic shared memory."""
WITH_THE_HOST = ("Memcpy HtoD", "Memcpy DtoH", "Memcpy HtoH")
"""Copies of parameters, such as descriptors of tensors, which a source may keep by address: not the work of a call."""
LESS_IN_MOST = 0.75
"""Share of the timed calls with less work from which on it is a cheat. Work may depend on values: of the two sets of
values that are timed, the one that was checked is in at least a third of the calls."""
LATE_SHARE = 0.1
"""Of a call's busy time: less may be the end of a kernel that clears a workspace for the next call."""
LATE_US = 20.0
"""Waiting for several streams that are done takes at most so much longer than for one: on two H200s it took 8 to 9 us
for 0 to 16 streams, and 15 us for one and 21 for eight."""


def kernels(activities: Sequence[Activity]) -> tuple[KernelTime, ...]:
    """Every kernel of a call with its mean time, in launch order; from calls that launched the usual number."""
    usual = usual_count(activities)
    alike = [item for item in activities if len(item.records) == usual]
    listed = []
    for place in range(min(usual, MOST_LISTED)):
        records = [item.records[place] for item in alike]
        mean = sum(record.us for record in records) / len(records)
        listed.append(KernelTime(records[0].name, records[0].stream, mean))
    return tuple(listed)


def usual_count(activities: Sequence[Activity]) -> int:
    counts = Counter(len(item.records) for item in activities)
    return counts.most_common(1)[0][0] if counts else 0


def findings(
    solution: Sequence[Activity],
    baseline: Sequence[Activity],
    checked: Activity | None = None,
    libraries: bool = False,
) -> list[Finding]:
    """What is wrong with a row according to its records; `libraries` if the task is about calling one."""
    if not solution:
        return []
    found = [_nothing_ran(solution), _other_stream(solution), _uneven(solution)]
    found += [less_than_checked(checked, solution) if checked is not None else None]
    found += [None if libraries else _library(solution), _one_sided_graph(solution, baseline)]
    return [finding for finding in found if finding is not None]


def less_than_checked(checked: Activity, timed: Sequence[Activity]) -> Finding | None:
    """Compares every timed call with the last call before timing, whose result was found right.

    Kernel by kernel: fewer programs, or fewer launches where a record does not say how it was launched, is less work.
    Less in nearly every timed call disqualifies. Anything else that differs is a note: autotuners and libraries choose
    again, and work may depend on values.
    """
    wanted, less, other = _by_name(_launches(checked)), Counter[str](), Counter[str]()
    for launches, calls in Counter(map(_launches, timed)).items():  # nearly all calls are alike
        done = _by_name(launches)
        if name := _first_less(done, wanted):
            less[name] += calls
        elif name := _first_less(wanted, done):
            other[name] += calls
    if less.total() > LESS_IN_MOST * len(timed):
        return make("less_work_timed", less=less.total(), calls=len(timed), kernel=_most(less))
    other += less
    if not other:
        return None
    return make("other_work_timed", other=other.total(), calls=len(timed), kernel=_most(other))


_Launch = tuple[str, bytes]
"""Name of a record and, of a kernel, how it was launched."""


def _launches(call: Activity) -> tuple[_Launch, ...]:
    return tuple((record.name, record.launch) for record in call.records)


def _by_name(launches: Sequence[_Launch]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for name, launch in launches:
        if not name.startswith(WITH_THE_HOST):
            found.setdefault(name, []).append(launch)
    return found


def _first_less(done: dict[str, list[bytes]], wanted: dict[str, list[bytes]]) -> str | None:
    """The first kernel that was to run more than it did."""
    return next((name for name in wanted if _is_less(done.get(name, []), wanted[name])), None)


def _is_less(done: list[bytes], wanted: list[bytes]) -> bool:
    if all((*done, *wanted)):
        return sum(map(_programs, done)) < sum(map(_programs, wanted))
    return len(done) < len(wanted)


def _programs(launch: bytes) -> int:
    return math.prod(LAUNCH.unpack(launch)[:3])


def _most(names: Counter[str]) -> str:
    return names.most_common(1)[0][0][:60]


def _nothing_ran(calls: Sequence[Activity]) -> Finding | None:
    empty = sum(not call.records for call in calls)
    return make("no_kernel_ran", empty=empty, calls=len(calls)) if empty else None


def _other_stream(calls: Sequence[Activity]) -> Finding | None:
    """Only work that nothing waits for: a joined stream's is part of the call's time, and done when the call ends."""
    followed = [call for call in calls if call.next_ns is not None]
    late = [call for call in followed if (us := call.late_us) and us > LATE_SHARE * call.busy_us]
    if 2 * len(late) <= len(followed):
        return None
    return make("other_stream", late=len(late), calls=len(followed))


def has_side_streams(calls: Sequence[Activity]) -> bool:
    """Whether most calls launch work on another stream than the caller's."""
    return 2 * sum(bool(call.streams - {call.home}) for call in calls) > len(calls)


def unjoined(left_us: Sequence[float], idle_us: Sequence[float], calls: Sequence[Activity]) -> Finding | None:
    """The same of work that fills the GPU: the next mark cannot begin before its end, so its records look joined.
    `idle_us` are waits for a GPU with nothing left to do."""
    least = max(max(idle_us) + LATE_US, LATE_SHARE * statistics.median(call.busy_us for call in calls))
    late = [us for us in left_us if us > least]
    return make("other_stream", late=len(late), calls=len(left_us)) if 2 * len(late) > len(left_us) else None


def _uneven(calls: Sequence[Activity]) -> Finding | None:
    counts = Counter(len(call.records) for call in calls)
    if len(counts) < 2:
        return None
    spelled = ", ".join(
        f"{fmt.plural(count, 'kernel')} in {fmt.plural(times, 'call')}" for count, times in sorted(counts.items())
    )
    return make("uneven_calls", counts=spelled)


def _library(calls: Sequence[Activity]) -> Finding | None:
    spent: Counter[str] = Counter()
    for record in (record for call in calls for record in call.records):
        spent[record.name] += record.end_ns - record.start_ns
    of_a_library = {
        name: ns
        for name, ns in spent.items()
        if any(word in name for word in LIBRARIES) and not name.startswith("kernel_cutlass_")  # the user's, in CuTe DSL
    }
    share = sum(of_a_library.values()) / max(1, sum(spent.values()))
    if share < LIBRARY_SHARE:
        return None
    longest = max(of_a_library, key=lambda name: of_a_library[name])
    return make("library_kernels_only", share=fmt.percent(share), kernel=longest[:60])


def _one_sided_graph(solution: Sequence[Activity], baseline: Sequence[Activity]) -> Finding | None:
    own, other = _uses_graph(solution), _uses_graph(baseline)
    if own == other or not baseline:
        return None
    return make("one_sided_graph", side="solution" if own else "baseline")


def _uses_graph(calls: Sequence[Activity]) -> bool:
    return any(record.graph for call in calls for record in call.records)
