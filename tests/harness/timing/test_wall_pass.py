"""The wait for all streams after a call: work that a call leaves behind, told from a wait that was disturbed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.shared.results import Finding
from harness.timing import clocks, kernel_ledger, wall_pass

CALLS: Any = [SimpleNamespace(busy_us=60.0)]
DISTURBED = 36.0


def accusation(monkeypatch: pytest.MonkeyPatch, waits: list[float]) -> Finding | None:
    """The finding for calls that take these microseconds to wait for, after pauses that take eight."""
    left = iter(waits)
    monkeypatch.setattr(wall_pass, "_waits", lambda run: (None, next(left) if run is call else 8.0))
    late = wall_pass.left_us(lambda: clocks.Call(None, call), lambda: None)
    assert next(left, None) is None
    return kernel_ledger.unjoined(*late, CALLS)


def call() -> None:
    """A call on side streams."""


@pytest.mark.parametrize("places", [(0, 1), (0, 2), (1, 2), (4, 5, 6)])
def test_a_few_disturbed_waits_accuse_no_streams_that_were_joined(
    monkeypatch: pytest.MonkeyPatch, places: tuple[int, ...]
) -> None:
    assert accusation(monkeypatch, [DISTURBED if at in places else 8.0 for at in range(wall_pass.LOOKS)]) is None


def test_what_most_calls_leave_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    late = accusation(monkeypatch, [8.0, 8.0, *[DISTURBED] * (wall_pass.LOOKS - 2)])
    assert late is not None
    assert (late.code, late.disqualifying) == ("other_stream", True)


def test_many_streams_may_take_longer_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert accusation(monkeypatch, [8.0 + kernel_ledger.LATE_US] * wall_pass.LOOKS) is None
