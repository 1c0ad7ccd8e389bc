"""The sides that a solution is timed against: the requested baseline, the best source so far, and those that the task
names for comparison only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from harness.check import verdicts
from harness.inputs.cache import CaseInputs, RunCache
from harness.inputs.reference import Reference, copies
from harness.load.failure import Paths, describe
from harness.shared import findings
from harness.shared.codes import Explanation, explain
from harness.shared.results import Finding, Verdict
from harness.shared.run_request import RunRequest
from harness.shared.task import Case


class NoBaseline(Exception):
    """No baseline to compare with."""

    def __init__(self, why: Explanation) -> None:
        super().__init__(why.detail)
        self.why = why


class NotCompared(Exception):
    """Why a side for comparison is left out of a row."""


@dataclass(frozen=True)
class FirstCall:
    """The baseline of a case after its first call."""

    function: Callable[..., Any] | None = None
    largest_error: float | None = None
    problem: str | None = None
    """What is wrong with its result by the task's own rules."""
    missing: Explanation | None = None
    """Why `function` is None."""


class Opponents:
    def __init__(
        self,
        request: RunRequest,
        cache: RunCache,
        interpreted: bool,
        on_loaded: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_loaded` is called when a baseline's file has been loaded."""
        self.request, self.task, self.cache, self._on_loaded = request, request.task, cache, on_loaded
        self.interpreted = interpreted
        self.best: Callable[..., Any] | None = None
        self._paths = Paths(self.task.folder, request.source, request.best)

    def load_best(self) -> list[Finding]:
        """Loads the best source next to the solution, unless their operator names collide."""
        side = self.cache.side("solution")
        shared = sorted(side.operators.shared) if side is not None else []
        found = []
        if shared:
            self.cache.drop("best")
            found.append(_shared_finding(shared))
        elif self.request.best and not self.interpreted:
            found += self._load_best(self.request.best)
        return found

    def _load_best(self, folder: str) -> list[Finding]:
        try:
            self.best = self.cache.function("best", "solution.py", folder, self.task, self.request.build)
        except BaseException as problem:
            message = describe(problem, self._paths).message
            return [findings.make("best_not_loaded", message=message)]
        side = self.cache.side("best")
        if side is not None and side.operators.shared:
            self.best = None
            return [_shared_finding(sorted(side.operators.shared))]
        return []

    def baseline(self, reference: Reference, case: Case) -> Callable[..., Any]:
        """The function to beat in this case."""
        kind = self.request.baseline
        if kind == "best":
            if self.best is None:
                raise NoBaseline(explain("no_best_yet"))
            return self.best
        return self._side(kind, "baseline", reference, case)

    def _side(self, kind: str, role: str, reference: Reference, case: Case) -> Callable[..., Any]:
        if kind == "eager":
            return reference.entry
        if kind == "compile":
            return self.cache.compiled(reference.entry, reference.entry.__module__.partition(".")[0], case)
        return self._from_file(kind, role)

    @property
    def others(self) -> list[str]:
        """The sides for comparison only; one that is the baseline of this run is timed already."""
        return [name for name in self.task.compare if name != self.request.baseline]

    def other(self, name: str, reference: Reference, case: Case, fixed: CaseInputs) -> Callable[..., Any]:
        """Such a side after its first call; raises NotCompared if it cannot be timed."""
        try:
            function = self._side(name, f"other{self.task.compare.index(name)}", reference, case)
            problem = self._verdict(function, fixed, reference).problem
        except NoBaseline as refusal:
            raise NotCompared(refusal.why.detail.removeprefix("baseline: ")) from None
        except BaseException as fault:
            raise NotCompared(f"it failed ({self._place_of(fault)})") from None
        if problem is not None:
            raise NotCompared(f"its result is wrong ({problem})")
        return function

    def ready(self, reference: Reference, case: Case) -> bool:
        """Whether the baseline can be called immediately; compiling one takes a second or more."""
        package = reference.entry.__module__.partition(".")[0]
        return self.request.baseline != "compile" or self.cache.is_compiled(package, case)

    def _from_file(self, name: str, role: str) -> Callable[..., Any]:
        task, folder = self.task, self.request.source
        if os.path.isabs(name):
            folder = os.path.dirname(name)
            task, name = replace(task, folder=folder), os.path.basename(name)
        function = self.cache.function(role, name, folder, task, self.request.build)
        self._on_loaded()
        mine, other = self.cache.side(role), self.cache.side("solution")
        if mine is not None and other is not None and mine.operators.shared & other.operators.shared:
            raise NoBaseline(explain("baseline_shares_operator", file=name))
        return function

    def first_baseline(self, reference: Reference, case: Case, fixed: CaseInputs) -> FirstCall:
        """The baseline after its first call, or why there is none."""
        try:
            function = self.baseline(reference, case)
            found = self._verdict(function, fixed, reference)
            return FirstCall(function, found.error.max if found.error is not None else None, found.problem)
        except NoBaseline as problem:
            return FirstCall(missing=problem.why)
        except BaseException as problem:
            return FirstCall(missing=explain("baseline_fails", fault=self._place_of(problem)))

    def _place_of(self, problem: BaseException) -> str:
        fault = describe(problem, self._paths)
        return f"{fault.where}: {fault.message}" if fault.where else fault.message

    def best_is_right(self, reference: Reference, fixed: CaseInputs) -> bool:
        """Whether best is correct; if it fails (new device, changed library), the row leaves it out."""
        assert self.best is not None
        try:
            return self._verdict(self.best, fixed, reference).problem is None
        except BaseException:
            return False

    def _verdict(self, function: Callable[..., Any], fixed: CaseInputs, reference: Reference) -> Verdict:
        """The verdict on a side for these inputs. Cached, since both usually stay the same between runs."""
        with contextlib.suppress(KeyError, TypeError):  # an entry without weak references is called every time
            return fixed.verdicts[function]
        if function is reference.entry:
            found = verdicts.reference_verdict(fixed)
        else:
            inputs = copies(fixed.inputs)
            answer = verdicts.Answer.to(fixed, fixed.entry(function)(**inputs), inputs, fixed.expected)
            found = verdicts.verdict(answer, fixed, fixed.expected)
        with contextlib.suppress(TypeError):
            fixed.verdicts[function] = found
        return found


def _shared_finding(names: list[str]) -> Finding:
    return findings.make("shared_operator", operators=", ".join(f"torch.ops.{name}" for name in names))
