"""What the engine reports: one stream of frozen events, read by the journal, the screen and the commands.

A run is RunStarted, then Progress and CaseLanded in any order (a case may land twice: after its quick checks and after
the slow ones), then exactly one of RunFinished, BuildFailed or RunCancelled. A finished run that would be best waits
for its Confirmed, which comes once a new worker has timed and judged its source again.
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
    "not_timed_with_best", "undecided", "not_above_margin",
]  # fmt: skip
"""Why a right source did not become best. `undecided`: rows or the geomean are unclear against the best, and nothing
else is in the way."""

FailedStatus = Literal["build_error", "timeout", "crashed", "bad_task"]
"""How a run ended that has no result for any case."""
RefusalCode = Literal[
    "permission", "counters_taken", "exclusive", "no_counters", "no_gpu", "no_device", "lock", "no_room",
    "gpu_full", "no_kernel", "driver_mismatch", "unknown_gpu", "unknown_metrics", "ncu_missing", "not_a_program",
    "no_version", "not_started", "timed_out", "ncu_failed", "ended", "side_failed", "mixed_sides", "task_left",
    "on_cpu", "no_case", "same_source",
]  # fmt: skip
"""Why a profile is missing; ncu/refusals.py has the sentences."""


@dataclass(frozen=True)
class WorkerChanged:
    """The child process started, stopped or was replaced."""

    state: Literal["starting", "ready", "lost"]
    environment: Environment | None = None
    detail: str = ""


@dataclass(frozen=True)
class TaskLoaded:
    """The task's own files changed, or are readable again; `series` is True if that starts a new series."""

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
    """Hash of the solution's code, without comments and formatting: sources with the same code are the same."""


@dataclass(frozen=True)
class Progress:
    run: str
    step: Step
    case: str | None
    index: int
    """Cases done before this one."""
    count: int
    compiler: str = ""
    """The compiler at work, if there is one."""


@dataclass(frozen=True)
class CaseLanded:
    run: str
    result: CaseResult


@dataclass(frozen=True)
class BuildFailed:
    """The source could not be loaded, so no case ran."""

    run: str
    source: str
    message: str
    """One sentence, without file and line."""
    where: Where | None = None
    traceback: str = ""
    status: FailedStatus = "build_error"
    failed_builds: int = 1
    """How many in a row, including this one."""


@dataclass(frozen=True)
class RunCancelled:
    run: str
    reason: str


@dataclass(frozen=True, slots=True)
class Worst:
    """The row of a run with the lowest or the highest speedup."""

    id: str
    label: str
    speedup: float


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole run in one record: the `finished` line of runs.jsonl and of `run --json`."""

    run: str
    source: str
    at: str
    right: bool
    """Every case that ran is right."""
    geomean: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: VerdictWord | None = None
    weighted: float | None = None
    """Geomean with the cases' weights; None if every headline case has weight 1."""
    wall: float | None = None
    """Geomean of the wall-time speedups."""
    wall_low: float | None = None
    wall_high: float | None = None
    vs_best: Ratio | None = None
    """Direct interleaved ratio to the best source before this run, over the headline rows."""
    best: bool = False
    """This source became (or, re-timed, still is) the best of its series; `holds` says whether that counts."""
    best_geomean: float | None = None
    """Geomean of the series' best before this run."""
    not_best: str = ""
    """Why a right source did not become best, if there was one to beat."""
    not_best_code: NotBestCode | None = None
    """The code behind `not_best`; None in runs of older versions too."""
    stalled: bool = False
    streak: int = 0
    """Iterations in a row without a new best, including this one."""
    after_stall: bool = False
    """The iteration before this one was stalled."""
    move: str = ""
    """What was done about the stall before this run, if the hypothesis or a profile shows it."""
    counts: dict[str, int] = field(default_factory=dict)
    """Cases by status, by verdict word, and `headline`: rows in the geomean."""
    worst: Worst | None = None
    fastest: Worst | None = None
    findings: tuple[Finding, ...] = ()
    iteration: int | None = None
    """Number of the ITERATIONS.md entry, if this run made one."""
    repeats: int | None = None
    """Number of the first entry with the same source, from any machine."""
    complete: bool = True
    """Every timed case of the task was requested; a partial run (`--case`) never becomes best."""
    failed_builds: int = 0
    hypothesis: str = ""
    hypothesis_by: str = ""
    hypothesis_at: str = ""
    """UTC; `at` or earlier means that it was written before the result was known."""
    next: str = ""
    tried: str = ""
    """What the sweep that found this source tried: Markdown lines for its entry."""
    baseline: str = ""
    baseline_hash: str = ""
    """Hash of the timed baseline: the file, the reference behind eager and compile, or the best source."""
    task_hash: str = ""
    command: str = ""
    """The shell command that repeats this run."""
    version: str = ""
    """The version of kernbench."""
    seconds: float | None = None
    """From the save (or the command) to the last row."""
    code: str = ""
    """Hash of the solution's code; empty in runs of older versions."""
    dropped: bool = False
    """`kernbench drop` removed its entry from the log; set for the best only."""
    confirmed: bool | None = None
    """What its confirmation in a new worker said; None if there was none."""
    awaits: bool = False
    """It would be best, and a confirmation was due when it ended; runs of older versions became best at once."""
    environment: Environment = field(default_factory=Environment)

    @property
    def local_run(self) -> Summary | None:
        """The run on this machine that its rows are read from: itself, unless it is a pulled entry."""
        return self

    @property
    def ratio(self) -> Ratio | None:
        """The geomean with its interval; None unless every case is right, even if some rows were timed."""
        if not self.right or self.geomean is None or self.low is None or self.high is None or self.verdict is None:
            return None
        return Ratio(self.geomean, self.low, self.high, self.verdict)

    @property
    def identity(self) -> str:
        """Equal for sources with the same code; runs of older versions have only the source hash."""
        return self.code[:8] or self.source

    @property
    def names(self) -> set[str]:
        """Sources whose names overlap have the same code."""
        return {self.source, self.identity}

    @property
    def holds(self) -> bool:
        """Whether its `best` counts: it is confirmed, or no confirmation is due."""
        return self.best and (self.confirmed is True or (self.confirmed is None and not self.awaits))

    @property
    def is_unsettled(self) -> bool:
        """`best?`: it would be best, and its confirmation has not ended."""
        return self.best and self.awaits and self.confirmed is None

    @property
    def is_refused(self) -> bool:
        """It would have been best, but its confirmation disagreed."""
        return self.best and self.confirmed is False

    @property
    def counted(self) -> bool:
        """Whether the stall rule counts it: an iteration of a new, right source that was not the best already, neither
        interpreted, undecided, refused nor timed only against the best."""
        kept_its_place = self.best and not self.new_best
        progress = self.iteration is not None and self.repeats is None and not self.environment.interpreted
        progress = progress and self.right and self.baseline != "best" and not (self.undecided or self.is_refused)
        return progress and not kept_its_place

    @property
    def undecided(self) -> bool:
        """Whether it may become best once it is timed again."""
        return self.not_best_code == "undecided"

    @property
    def disproved(self) -> bool:
        """A row is wrong, raised or crashed; a timeout does not count."""
        return any(self.counts.get(status) for status in ("wrong", "runtime_error", "crashed"))

    @property
    def took_over(self) -> bool:
        """It became best with this run, or does so once it is confirmed. The best is never timed against itself, so one
        that only kept its place has no `vs_best`."""
        return self.best and not self.is_refused and (self.best_geomean is None or self.vs_best is not None)

    @property
    def new_best(self) -> bool:
        """A source without an earlier entry took over or is the first; a repeated source does not improve on itself."""
        return self.took_over and self.repeats is None


@dataclass(frozen=True, slots=True)
class PulledEntry(Summary):
    """An entry pulled with ITERATIONS.md: its rows are in its text, and no run on this machine made it."""

    outcome: str = ""
    """Its word, as from `render.outcome`: by the trailer, or by the heading of an old entry."""
    again: Summary | None = None
    """A whole run of its source on this machine, shown next to the entry, which keeps its own time and numbers."""

    @property
    def local_run(self) -> Summary | None:
        return self.again

    @property
    def took_over(self) -> bool:
        """By its outcome; `best` means that it was timed again."""
        return self.outcome in ("first", "improved")


@dataclass(frozen=True)
class RunFinished:
    summary: Summary


@dataclass(frozen=True)
class Confirming:
    """A run's confirmation has begun or stopped: ended, or a save came first; `before_save` if a save waits for it."""

    run: str
    iteration: int | None
    is_running: bool
    before_save: bool = False


@dataclass(frozen=True)
class Confirmed:
    """A run's confirmation has ended: the `confirmed` line of runs.jsonl, of `run --json` and of `watch --json`."""

    run: str
    confirmed: bool
    why: str
    """One sentence; a refusal says what disagreed."""
    geomean: float | None = None
    low: float | None = None
    high: float | None = None
    judged: int = 0
    """Calls whose results were compared with the reference."""
    seconds: float | None = None


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
    """A case is being profiled; `warm` is False if ncu has to start first."""

    case: str
    full: bool = False
    warm: bool = True


@dataclass(frozen=True)
class ProfileReady:
    """The Nsight Compute profile of one case and its diagnosis; `other` is the profile to compare it with."""

    case: str
    profile: Profile
    diagnosis: Diagnosis
    other: Profile | None = None
    seconds: float = 0.0
    """From the key press to this event."""


@dataclass(frozen=True)
class ProfileFailed:
    case: str
    message: str
    """One sentence that includes what to do."""
    where: Where | None = None
    known: Profile | None = None
    """What is known without a profile: the compiler's facts, no kernels."""
    code: RefusalCode | None = None
    """None if something other than the profiler failed, such as reading the log."""


@dataclass(frozen=True)
class ModelLine:
    """The newest result of a model about the task, for a row below the results; `number` is its source's entry."""

    model: str
    source: str
    number: int | None
    word: str
    """With what belongs to it, such as `too small to see (expected +0.3%, resolvable 1.0%)`."""
    kept: bool
    before_ms: float | None = None
    after_ms: float | None = None
    ratio: Ratio | None = None
    expected: float | None = None
    why: str = ""
    """Why it is not kept, if the word does not say it."""


@dataclass(frozen=True)
class ModelsChanged:
    lines: tuple[ModelLine, ...]
    running: str = ""
    """The model that runs in its own worker now, and what it is doing."""


Event = (
    WorkerChanged
    | TaskLoaded
    | RunStarted
    | Progress
    | CaseLanded
    | BuildFailed
    | RunCancelled
    | RunFinished
    | Confirming
    | Confirmed
    | LogLine
    | Notice
    | ProfileStarted
    | ProfileReady
    | ProfileFailed
    | ModelsChanged
)
