"""Progress reports of a run, and its cancellation.

Every part of a run calls `step` when it begins something and `pulse` while it continues; both check for a cancel.
`emit`, passed in by the worker, sends events to the workbench.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from harness.shared.results import Finding
from harness.shared.run_request import Step
from harness.shared.task import Case

REARM_S = 2.0
"""How often a long step reports that it is alive."""


class Emit(Protocol):
    def __call__(self, event: str, **fields: Any) -> None: ...


class Cancelled(Exception):
    """The workbench canceled this run."""


class Progress:
    def __init__(self, emit: Emit, cancelled: Callable[[], bool], count: int) -> None:
        """`count` is the number of cases in the run."""
        self.emit, self._cancelled, self._count = emit, cancelled, count
        self.done = 0
        """Cases that the current step has finished."""
        self._said: set[Finding] = set()

    def step(self, step: Step, case: Case | None = None) -> None:
        if self._cancelled():
            raise Cancelled
        self.emit("step", step=step, case=case.id if case else None, index=self.done, count=self._count)

    def pulse(self, case: Case, step: Step = "time") -> Callable[[], None]:
        """Returns a function that checks for a cancel and reports a long step as still alive."""
        last = time.monotonic()

        def beat() -> None:
            nonlocal last
            if self._cancelled():
                raise Cancelled
            if time.monotonic() - last > REARM_S:
                last = time.monotonic()
                self.step(step, case)

        return beat

    def say_once(self, finding: Finding | None) -> None:
        """Emits a finding about the whole run, once even if it recurs."""
        if finding is not None and finding not in self._said:
            self._said.add(finding)
            self.emit("finding", finding=finding)
