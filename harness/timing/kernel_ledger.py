"""Which kernels ran: summarizes the records of every timed call for the row and checks them for invalid timings.

Most findings here are accidents: work on a stream that is never waited for, a fallback to a library, a graph on one
side only, a first call that does more than later ones. Pure functions over activity records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.device.activity import Activity
from harness.shared import format as fmt
from harness.shared.findings import make
from harness.shared.results import Finding, KernelTime

LIBRARIES = ("at::native", "at_cuda_detail", "cub::", "cublas", "cutlass", "cudnn", "nvjet", "sm90_xmma", "thrust::")
MOST_LISTED = 32


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


def findings(solution: Sequence[Activity], baseline: Sequence[Activity]) -> list[Finding]:
    """What is wrong with a row according to its records."""
    if not solution:
        return []
    found = [_nothing_ran(solution), _other_stream(solution), _uneven(solution)]
    found += [_library_only(solution), _one_sided_graph(solution, baseline)]
    return [finding for finding in found if finding is not None]


def _nothing_ran(calls: Sequence[Activity]) -> Finding | None:
    empty = sum(not call.records for call in calls)
    return make("no_kernel_ran", empty=empty, calls=len(calls)) if empty else None


def _other_stream(calls: Sequence[Activity]) -> Finding | None:
    if not any(call.home is not None and call.streams - {call.home} for call in calls):
        return None
    return make("other_stream")


def _uneven(calls: Sequence[Activity]) -> Finding | None:
    counts = Counter(len(call.records) for call in calls)
    if len(counts) < 2:
        return None
    spelled = ", ".join(
        f"{fmt.plural(count, 'kernel')} in {fmt.plural(times, 'call')}" for count, times in sorted(counts.items())
    )
    return make("uneven_calls", counts=spelled)


def _library_only(calls: Sequence[Activity]) -> Finding | None:
    names = {name for call in calls for name in call.names}
    if not names or not all(any(word in name for word in LIBRARIES) for name in names):
        return None
    return make("library_kernels_only", kernel=min(names, key=len)[:60])


def _one_sided_graph(solution: Sequence[Activity], baseline: Sequence[Activity]) -> Finding | None:
    own, other = _uses_graph(solution), _uses_graph(baseline)
    if own == other or not baseline:
        return None
    return make("one_sided_graph", side="solution" if own else "baseline")


def _uses_graph(calls: Sequence[Activity]) -> bool:
    return any(record.graph for call in calls for record in call.records)
