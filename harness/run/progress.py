"""What a run says while it is on, and where it hears that it is to stop.

Every part of a run calls `step` when it begins something and `pulse` while that goes on: each looks at cancel. Events
go up to the workbench by `emit`, which the worker hands in.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from harness.shared.results import Finding
from harness.shared.run_request import Step
from harness.shared.task import Case

REARM_S = 2.0
"""How often a long timing says that it is alive."""


class Emit(Protocol):
    def __call__(self, event: str, **fields: Any) -> None: ...


class Cancelled(Exception):
    """The workbench wants no more of this run."""


class Progress:
    def __init__(self, emit: Emit, cancelled: Callable[[], bool], count: int) -> None:
        """`count` cases are to be answered."""
        self.emit, self._cancelled, self._count = emit, cancelled, count
        self.done = 0
        """Cases that the present step is past."""
        self._said: set[Finding] = set()

    def step(self, step: Step, case: Case | None = None) -> None:
        if self._cancelled():
            raise Cancelled
        self.emit("step", step=step, case=case.id if case else None, index=self.done, count=self._count)

    def pulse(self, case: Case, step: Step = "time") -> Callable[[], None]:
        """Looks at cancel; a step that goes on for long, with every call coming back, says so."""
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
        """A finding about the whole run, which may be made again and again."""
        if finding is not None and finding not in self._said:
            self._said.add(finding)
            self.emit("finding", finding=finding)
