"""What the engine says: one stream of frozen events that the journal, the screen and the commands all read.

A run is RunStarted, then Progress and CaseLanded in any order (a case may land twice: after its quick checks and after
the slow ones), then exactly one of RunFinished, BuildFailed or RunCancelled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from harness.shared.errors import Where
from harness.shared.results import CaseResult, Finding, Ratio, VerdictWord
from harness.shared.run_request import Environment, Step
from harness.shared.task import Task
from kernbench.diagnosis.counters import Profile
from kernbench.diagnosis.rules import Diagnosis

NotBestCode = Literal[
    "timed_against_best", "other_baseline", "part", "row_finding", "run_finding", "row_below_limit",
    "not_timed_with_best", "not_above_margin",
]  # fmt: skip
"""Why a right source did not become best."""

FailedStatus = Literal["build_error", "timeout", "crashed", "bad_task"]
"""How a run ended that answered no case."""

RefusalCode = Literal[
    "permission",
    "counters_taken",
    "exclusive",
    "no_counters",
    "no_gpu",
    "no_device",
    "lock",
    "no_room",
    "gpu_full",
    "no_kernel",
    "driver_mismatch",
    "unknown_gpu",
    "unknown_metrics",
    "ncu_missing",
    "not_a_program",
    "no_version",
    "not_started",
    "timed_out",
    "ncu_failed",
    "ended",
    "side_failed",
    "mixed_sides",
    "task_left",
    "on_cpu",
    "no_case",
    "same_source",
]
"""Why there is no profile; ncu/refusals.py holds the words."""


@dataclass(frozen=True)
class WorkerChanged:
    """The child process came up, went down, or was replaced."""

    state: Literal["starting", "ready", "lost"]
    environment: Environment | None = None
    detail: str = ""


@dataclass(frozen=True)
class TaskLoaded:
    """The task's own files changed, or can be read again; `series` is True when that starts a new series of results."""

    task: Task
    series: bool = False


@dataclass(frozen=True)
class RunStarted:
    run: str
    source: str
    """Hash of the snapshot."""
    reason: Literal["save", "key", "command", "open"]
    cases: tuple[str, ...]
    at: str
    """UTC, ISO 8601 to the second."""
    baseline: str
    hypothesis: str = ""
    best: str | None = None
    """Hash of the best source that the run is compared with."""
    seed: int = 0
    task_hash: str = ""
    code: str = ""
    """Hash of the solution's code, without comments and layout: two sources with one code are the same."""


@dataclass(frozen=True)
class Progress:
    run: str
    step: Step
    case: str | None
    index: int
    """Cases done before this one."""
    count: int


@dataclass(frozen=True)
class CaseLanded:
    run: str
    result: CaseResult


@dataclass(frozen=True)
class BuildFailed:
    """The source could not be loaded at all: no case was run."""

    run: str
    source: str
    message: str
    """One sentence, without the place."""
    where: Where | None = None
    traceback: str = ""
    status: FailedStatus = "build_error"
    failed_builds: int = 1
    """How many in a row, this one included."""


@dataclass(frozen=True)
class RunCancelled:
    run: str
    reason: str


@dataclass(frozen=True)
class Worst:
    """A row that stands for the others: the worst, or the fastest."""

    id: str
    label: str
    speedup: float


@dataclass(frozen=True)
class Summary:
    """A whole run in one record: the `finished` line of runs.jsonl and of `run --json`."""

    run: str
    source: str
    at: str
    right: bool
    """Every case that was run came out right."""
    geomean: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: VerdictWord | None = None
    wall: float | None = None
    """Geomean of the wall-time speedups."""
    wall_low: float | None = None
    wall_high: float | None = None
    vs_best: Ratio | None = None
    """Direct interleaved ratio to the best source before this run, over the headline rows."""
    best: bool = False
    """This source became (or, re-timed, still is) the best of its series."""
    best_geomean: float | None = None
    """Geomean of the series' best before this run."""
    not_best: str = ""
    """Why a right source did not become best, where there is one to beat."""
    not_best_code: NotBestCode | None = None
    """The code behind `not_best`; None in runs of older versions too."""
    stalled: bool = False
    streak: int = 0
    """Iterations in a row without a new best, this one included."""
    after_stall: bool = False
    """The iteration before this one was stalled."""
    move: str = ""
    """What was done about the stall before this run, as far as it was said or left a trace."""
    counts: dict[str, int] = field(default_factory=dict)
    """Cases by status, by verdict word, and `headline`: rows in the geomean."""
    worst: Worst | None = None
    fastest: Worst | None = None
    findings: tuple[Finding, ...] = ()
    iteration: int | None = None
    """Number of the ITERATIONS.md entry, where this run made one."""
    repeats: int | None = None
    """Number of the first entry with the very same source, whichever machine made it."""
    complete: bool = True
    """Every timed case of the task was asked for; a run of a part of them (`--case`) stands for nothing else."""
    failed_builds: int = 0
    hypothesis: str = ""
    hypothesis_by: str = ""
    hypothesis_at: str = ""
    """UTC; before `at` (or the same) means that it was written before the result was known."""
    next: str = ""
    baseline: str = ""
    baseline_hash: str = ""
    """Of what was timed as the baseline: the file, the reference behind eager and compile, or the best source."""
    task_hash: str = ""
    command: str = ""
    """What repeats this run from the shell."""
    version: str = ""
    """Of kernbench."""
    seconds: float | None = None
    """From the save (or the command) to the last row."""
    code: str = ""
    """Hash of the solution's code; empty in runs that older versions made."""
    dropped: bool = False
    """`kernbench drop` took its entry out of the log; only said of the best."""
    environment: Environment = field(default_factory=Environment)

    @property
    def local_run(self) -> Summary | None:
        """The run on this machine that its rows are read from: itself, unless it is a pulled entry."""
        return self

    @property
    def ratio(self) -> Ratio | None:
        """The geomean with its interval; a source that is not right has none, whatever its other rows took."""
        if not self.right or self.geomean is None or self.low is None or self.high is None or self.verdict is None:
            return None
        return Ratio(self.geomean, self.low, self.high, self.verdict)

    @property
    def identity(self) -> str:
        """The same for sources with one code; runs of older versions know only the source."""
        return self.code[:8] or self.source

    @property
    def counted(self) -> bool:
        """The stall rule looks at it: no plain run, nothing interpreted or timed against the best alone, no source that
        an entry had before or that was the best already."""
        kept_its_place = self.best and not self.new_best
        progress = self.iteration is not None and self.repeats is None and not self.environment.interpreted
        progress = progress and self.baseline != "best"
        return progress and not kept_its_place

    @property
    def disproved(self) -> bool:
        """A row came out wrong, failed or crashed; a timeout is none of these."""
        return any(self.counts.get(status) for status in ("wrong", "runtime_error", "crashed"))

    @property
    def took_over(self) -> bool:
        """It became best with this run. The best is never timed beside itself, so one that only kept its place has no
        `vs_best`."""
        return self.best and (self.best_geomean is None or self.vs_best is not None)

    @property
    def new_best(self) -> bool:
        """A source that no entry had before took over, or is the first: the same one is no improvement over itself."""
        return self.took_over and self.repeats is None


@dataclass(frozen=True)
class PulledEntry(Summary):
    """An entry that ITERATIONS.md brought along: its rows are in its text, and no run here made it."""

    outcome: str = ""
    """Its word, as `render.outcome` gives it: by the trailer, or as the heading of an old entry has it."""
    again: Summary | None = None
    """A whole run of its source on this machine: told beside the entry, whose own time and numbers stay."""

    @property
    def local_run(self) -> Summary | None:
        return self.again

    @property
    def took_over(self) -> bool:
        """As it is worded: `best` is one that was timed again."""
        return self.outcome in ("first", "improved")


@dataclass(frozen=True)
class RunFinished:
    summary: Summary


@dataclass(frozen=True)
class LogLine:
    """A line the kernel, or a library under it, printed."""

    text: str


@dataclass(frozen=True)
class Notice:
    """One sentence from the workbench to the user."""

    text: str
    severity: Literal["information", "warning", "error"] = "information"


@dataclass(frozen=True)
class ProfileStarted:
    """A case is being profiled; cold means that ncu has to start first."""

    case: str
    full: bool = False
    warm: bool = True


@dataclass(frozen=True)
class ProfileReady:
    """What Nsight Compute says of one case, in numbers and in words; `other` is what it stands beside."""

    case: str
    profile: Profile
    diagnosis: Diagnosis
    other: Profile | None = None
    seconds: float = 0.0
    """From the key to here."""


@dataclass(frozen=True)
class ProfileFailed:
    case: str
    message: str
    """One sentence with what to do."""
    where: Where | None = None
    known: Profile | None = None
    """What the compiler says all the same: no kernels, only facts."""
    code: RefusalCode | None = None
    """None where something else than the profiler failed, such as reading the log."""


Event = (
    WorkerChanged
    | TaskLoaded
    | RunStarted
    | Progress
    | CaseLanded
    | BuildFailed
    | RunCancelled
    | RunFinished
    | LogLine
    | Notice
    | ProfileStarted
    | ProfileReady
    | ProfileFailed
)
