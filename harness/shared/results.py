"""The result of a case in a run: its status, times, verdict, errors and findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from harness.shared.codes import FindingCode, Reason
from harness.shared.errors import Where
from harness.shared.lines import renamed

Status = Literal["ok", "wrong", "build_error", "runtime_error", "timeout", "crashed", "skipped", "interpreted"]
VerdictWord = Literal["faster", "same", "slower", "unclear"]
ClockName = Literal["device", "events", "wall"]
RoofBound = Literal["memory", "compute"]
FAILURES: frozenset[str] = frozenset({"wrong", "build_error", "runtime_error", "timeout", "crashed"})
"""Statuses of a case that ran and failed."""
TIMES = ("solution_us", "best_us", "speedup", "low", "high", "verdict", "vs_best", "wall", "roofline", "bound")


@dataclass(frozen=True)
class Finding:
    """A tripped sanity check. Most trip by accident, so `help` says what to look at."""

    name: str
    help: str
    disqualifying: bool = renamed("red", False)
    """A source with a disqualifying finding never becomes best."""
    code: FindingCode | None = None
    """None in a row logged by a version without codes, if no legacy pattern matches."""


@dataclass(frozen=True)
class Ratio:
    """Speedup over another side, with its 95% interval."""

    speedup: float
    low: float
    high: float
    verdict: VerdictWord


@dataclass(frozen=True)
class WallTime:
    """Host time of one call including synchronization, measured in a separate pass."""

    baseline_us: float | None
    solution_us: float | None
    speedup: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class OtherSide:
    """A side of `compare` in task.toml, timed next to the solution; it decides nothing."""

    name: str
    us: float
    speedup: float
    """Of the solution over this side, with its 95% interval."""
    low: float
    high: float

    @property
    def ratio(self) -> Ratio:
        """The verdict is left open."""
        return Ratio(self.speedup, self.low, self.high, "unclear")


@dataclass(frozen=True)
class OutputError:
    """The worst element over all outputs, compared with what the task's `judge` names: truth, or the reference."""

    max: float | None
    """Largest absolute error; None if the output is not finite there or has the wrong shape."""
    baseline_max: float | None
    bound: float | None
    """The error that the tolerance allows at the element closest to exceeding it."""
    output: str | None = None
    index: tuple[int, ...] | None = None
    got: float | None = None
    expected: float | None = None

    @property
    def vs_baseline(self) -> float | None:
        """Times the baseline's largest error; None if either is not known or the baseline is exact."""
        return self.max / self.baseline_max if self.max is not None and self.baseline_max else None


@dataclass(frozen=True)
class Verdict:
    """One comparison; correct if `problem` is None."""

    problem: str | None = None
    error: OutputError | None = None
    """The element closest to exceeding the tolerance, over all outputs."""
    errors: tuple[OutputError, ...] = ()
    """The same for each output, if there are several."""
    notes: tuple[Finding, ...] = ()
    """What the verdict had to allow for."""


@dataclass(frozen=True)
class InputForm:
    """One argument of a call: the form of a tensor, or the value of anything else."""

    name: str
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    dtype: str | None = None
    value: Any = None


@dataclass(frozen=True)
class KernelTime:
    """One kernel, copy or fill of a call."""

    name: str
    stream: int
    us: float


@dataclass(frozen=True)
class CaseResult:
    """The result of one case in one run. Only a correct case may have times (checked on construction)."""

    id: str
    status: Status
    clock: ClockName | None = None
    baseline_us: float | None = None
    solution_us: float | None = None
    best_us: float | None = None
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: VerdictWord | None = None
    vs_best: Ratio | None = None
    wall: WallTime | None = None
    roofline: float | None = renamed("light", None)
    """Fraction of the copy bandwidth measured on this machine, or of the nearer bound if `bound` names it, 0 to 1."""
    bound: RoofBound | None = None
    """What bounds the call, if its flops are known and the GPU's peak for its dtype could be measured."""
    error: OutputError | None = None
    errors: tuple[OutputError, ...] = ()
    """The worst element of each output, if there are several."""
    inputs: tuple[InputForm, ...] = ()
    """The call's arguments; timed cases only."""
    findings: tuple[Finding, ...] = ()
    kernels: int | None = None
    """Kernels that one call launches."""
    ledger: tuple[KernelTime, ...] | None = None
    """Those kernels in launch order, with their mean time."""
    span_us: float | None = None
    """From the first start to the last end on the device; the excess over the busy time is gaps between kernels."""
    blocks: int | None = None
    dropped: int | None = None
    dropped_for: str | None = None
    """Why blocks were dropped, such as `software thermal`."""
    known: dict[str, Any] | None = None
    detail: str | None = None
    """One sentence: why it failed, was skipped, or has no baseline time."""
    reason: Reason | None = None
    """The code behind `detail`, if its words come from codes.py."""
    where: Where | None = None
    traceback: str = ""
    """Of the solution's exception or the crash. Stored copies are limited in size and contain only user frames."""
    checked: int = 0
    """1 after the quick checks, 2 after the slow ones."""
    floor: float | None = None
    """A/A floor used for the verdict, as a fraction."""
    exact: float | None = None
    """Share of the output values that are bit for bit those of the reference, 0 to 1."""
    samples: dict[str, tuple[float, ...]] | None = None
    """Microseconds per block and side: baseline, best, solution."""
    others: tuple[OtherSide, ...] = ()
    """Further sides that the task names, as far as they could be timed; they come with the slow checks."""

    def __post_init__(self) -> None:
        if self.status != "ok":
            present = [name for name in TIMES if getattr(self, name) is not None] + ["others"] * bool(self.others)
            if present:
                raise ValueError(f"case {self.id} is {self.status} and must not have {', '.join(present)}")

    @property
    def failed(self) -> bool:
        return self.status in FAILURES

    @property
    def disqualifying(self) -> bool:
        return self.failed or any(finding.disqualifying for finding in self.findings)

    @property
    def is_unclear(self) -> bool:
        """Against the baseline or the best."""
        return self.verdict == "unclear" or (self.vs_best is not None and self.vs_best.verdict == "unclear")

    @property
    def ratio(self) -> Ratio | None:
        if self.speedup is None or self.low is None or self.high is None or self.verdict is None:
            return None
        return Ratio(self.speedup, self.low, self.high, self.verdict)

    def untimed(
        self,
        status: Status,
        detail: str,
        *findings: Finding,
        error: OutputError | None = None,
        errors: tuple[OutputError, ...] = (),
    ) -> CaseResult:
        """The same case without times, after a later check failed."""
        return CaseResult(
            id=self.id,
            status=status,
            detail=detail,
            known=self.known,
            error=error or self.error,
            errors=errors if error else self.errors,
            inputs=self.inputs,
            findings=self.findings + findings,
            checked=self.checked,
            exact=self.exact,
        )
