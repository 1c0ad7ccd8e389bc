"""The loaded parts of a run: the solution, the reference it is compared with, and the inputs of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.check.between_calls import BetweenCalls
from harness.inputs.cache import CaseInputs, RunCache
from harness.inputs.reference import Draw, Reference
from harness.shared.run_request import Environment, RunRequest
from harness.shared.task import Case, Task


@dataclass(frozen=True)
class RunContext:
    request: RunRequest
    environment: Environment
    solution: Callable[..., Any]
    reference: Reference
    cache: RunCache
    between: BetweenCalls

    @property
    def task(self) -> Task:
        return self.request.task

    @property
    def device(self) -> str:
        return self.environment.device

    @property
    def fixed(self) -> Draw:
        """The draw that stays the same from run to run."""
        return Draw(self.request.fixed_seed) if self.request.fixed_seed else self.cache.fixed

    def masters(self) -> list[Draw]:
        """The draws of the inputs that are timed."""
        return [self.fixed, *([Draw(self.request.seed)] if self.request.seed else [])]

    def material(self, case: Case, draw: Draw) -> CaseInputs:
        return self.cache.material(self.reference, case, draw, self.device)
