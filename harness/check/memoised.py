"""Detects results cached between calls: a second call on equal values that does less than the first.

A source that caches results, by address or by value, would be timed looking them up. Here it gets values it has never
seen, several times in a row. On a GPU the activity records show what each call did; on a CPU its time does, with a wide
margin, and every draw must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from harness.device.activity import ForgedRecords, LostRecords
from harness.inputs.cache import CaseInputs
from harness.inputs.calling import bound
from harness.inputs.reference import Inputs, copies
from harness.timing.clocks import Call, Clock, Measured, Unsteady

TIMES, MORE_US = 3.0, 50.0
"""A first call this much longer than the next cannot be explained by caches and page faults."""
REPEATS = 2


def second_call_is_cheaper(
    clock: Clock, function: Callable[..., Any], seen: CaseInputs, new: CaseInputs, mutates: tuple[str, ...]
) -> bool:
    """Measures a few calls on new values, after a warm-up call on known ones."""
    warm, fresh = (copies(item.inputs) for item in (seen, new))  # kept for later sources: this one may write to them
    first, later = bound(seen.entry(function), warm), bound(new.entry(function), fresh)
    calls = [Call(None, first), *[Call(_restorer(fresh, new.inputs, mutates), later)] * (1 + REPEATS)]
    try:
        measured = clock.measure(calls)
    except ForgedRecords:
        return True
    except (LostRecords, Unsteady):
        return False
    return did_less(measured[1], measured[2:])


def did_less(first: Measured, later: Sequence[Measured]) -> bool:
    if first.activity is None:
        return first.us > TIMES * max(item.us for item in later) + MORE_US
    launched = Counter(first.activity.names)
    return all(item.activity is not None and bool(launched - Counter(item.activity.names)) for item in later)


def _restorer(inputs: Inputs, master: Inputs, mutates: tuple[str, ...]) -> Callable[[], None] | None:
    if not mutates:
        return None

    def restore() -> None:
        for name in mutates:
            inputs[name].copy_(master[name])

    return restore
