"""What the tools answer: plain records, which the SDK turns into JSON and into the schema that a client reads.

Short, because a model reads every word: a word or a sentence instead of a code, nothing that another field says.
Numbers are rounded; runs.jsonl has all digits.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from harness.shared.results import Ratio

DIGITS = 4


@dataclass(frozen=True)
class Speed:
    """How many times as fast, with its 95% interval and the verdict: faster, same, slower or unclear."""

    speedup: float
    low: float
    high: float
    verdict: str


def speed(ratio: Ratio | None) -> Speed | None:
    if ratio is None:
        return None
    return Speed(round(ratio.speedup, DIGITS), round(ratio.low, DIGITS), round(ratio.high, DIGITS), ratio.verdict)


def rounded(value: float | None, digits: int = DIGITS) -> float | None:
    return None if value is None else round(value, digits)


def compact(answer: Any) -> str:
    """A record as one line of JSON for a model to read: what is not known or empty is left out, at every level."""

    def kept(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: value for name, value in pairs if value not in (None, "", (), {})}

    return json.dumps(asdict(answer, dict_factory=kept), ensure_ascii=False)


@dataclass(frozen=True)
class BudgetLeft:
    """What may still be run; null means that nothing limits it."""

    runs_left: int | None
    minutes_left: float | None
    sentence: str


@dataclass(frozen=True)
class Remark:
    """A finding. One that disqualifies keeps its source from becoming best."""

    name: str
    help: str
    """What to look at; for several rows, that of the first."""
    disqualifies: bool


@dataclass(frozen=True)
class Row:
    """A case of a run: a timed one, or one that failed."""

    case: str
    verdict: str
    """faster, same, slower or unclear for a row that is right and was timed; otherwise what became of it."""
    speedup: float | None = None
    """Over the baseline, with its 95% interval."""
    low: float | None = None
    high: float | None = None
    over_best: Speed | None = None
    baseline_us: float | None = None
    solution_us: float | None = None
    limit: str = ""
    """What limits the row, as far as it is known."""
    problem: str = ""
    findings: tuple[str, ...] = ()
    """Their names; the run explains them."""


@dataclass(frozen=True)
class Tried:
    """An iteration of the log."""

    entry: int
    outcome: str
    geomean: str
    hypothesis: str
    source: str
    age: str
    next_step: str = ""
    stalled: bool = False
    is_best_now: bool = False


@dataclass(frozen=True)
class RunAnswer:
    task: str
    outcome: str
    """first, improved, best, same, slower, undecided, refused, partial, or how it failed."""
    is_right: bool
    is_best: bool
    """True only once a new worker has confirmed it."""
    sentence: str
    """What came of it and why."""
    entry: int | None = None
    """Its number in ITERATIONS.md; a source that cannot be loaded makes none."""
    source: str = ""
    over_baseline: Speed | None = None
    over_best: Speed | None = None
    rows: tuple[Row, ...] = ()
    checks: str = ""
    findings: tuple[Remark, ...] = ()
    traceback: str = ""
    printed: tuple[str, ...] = ()
    """The last lines that the kernel printed."""
    notices: tuple[str, ...] = ()
    same_source_as: int | None = None
    """The entry that tried the same code before."""
    tried_before: tuple[Tried, ...] = ()
    is_stalled: bool = False
    device: str = ""
    seconds: float | None = None
    budget: BudgetLeft | None = None


@dataclass(frozen=True)
class TaskState:
    task: str
    iterations: int
    best: str
    last: str
    age: str
    is_stalled: bool
    problem: str = ""


@dataclass(frozen=True)
class StatusAnswer:
    tasks: tuple[TaskState, ...]
    budget: BudgetLeft
    running: str = ""
    """The task that is being run or profiled now."""


@dataclass(frozen=True)
class TaskAnswer:
    task: str
    summary: str
    entry: str
    """The function that solution.py has to define."""
    device: str
    baseline: str
    best: str
    timed_cases: tuple[str, ...]
    other_cases: int
    """Checked, not timed."""
    task_files: dict[str, str] = field(default_factory=dict)
    """What right means; they cannot be written."""
    solution_files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WriteAnswer:
    task: str
    path: str
    changed: bool
    kept: str
    """`restore` with this brings back the files as they were; empty if nothing changed."""


@dataclass(frozen=True)
class ProfileAnswer:
    task: str
    case: str
    limit: str
    """What limits the case, in a sentence."""
    evidence: tuple[str, ...]
    to_try: tuple[str, ...]
    numbers: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class DiffAnswer:
    task: str
    old: str
    new: str
    diff: str
    lines_left_out: int = 0


@dataclass(frozen=True)
class LogAnswer:
    task: str
    best: str
    entries: tuple[Tried, ...]
    """Oldest first."""
    older: int = 0
    """Entries before these."""


@dataclass(frozen=True)
class RestoreAnswer:
    task: str
    sentence: str
    changed: tuple[str, ...]
    kept: str
    """`restore` with this undoes it; empty if nothing changed."""


@dataclass(frozen=True)
class SweptVariant:
    variant: str
    verdict: str
    """Over the source as it is: faster, same, slower or unclear; otherwise what became of it."""
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    us: float | None = None
    """Geomean of its rows' times."""
    timed: str = ""
    """`in full`, or the screening after which it was out."""
    problem: str = ""


@dataclass(frozen=True)
class SweepAnswer:
    task: str
    verdict: str
    """Of the winner over the source as it is; `same` if that is the winner, `none` if no variant is right."""
    sentence: str
    """What came of it."""
    winner: str = ""
    over_now: Speed | None = None
    """The winner over the source as it is; over the baseline if that one is wrong."""
    variants: tuple[SweptVariant, ...] = ()
    """The fastest first."""
    variants_left_out: int = 0
    entry: int | None = None
    """Of the winner's own run, which only a sweep that came to its end makes."""
    outcome: str = ""
    is_best: bool = False
    written: str = ""
    """What was written to the solution, or why nothing was; empty if that was not asked for."""
    device: str = ""
    seconds: float | None = None
    budget: BudgetLeft | None = None


@dataclass(frozen=True)
class TransferAnswer:
    model: str
    config: str
    word: str
    """faster, same, slower, unclear, too small to see, not wired, forbidden, or checked: on a CPU, not timed."""
    kept: bool
    """False if the kernels must not stay: slower, never called, or the output is out of its limits."""
    why: str
    """Behind the word, or why they are not kept."""
    tasks: tuple[str, ...]
    """Each with which of its sources went in."""
    side: str = ""
    """The fastest way to run the step with the kernels, and the fastest without, which it is compared with."""
    over: str = ""
    step: Speed | None = None
    expected: float | None = None
    """Speedup of the step that the kernels' own rows promise."""
    resolvable: float | None = None
    """The smallest change of the step that could be seen, as a fraction."""
    is_exact: bool | None = None
    """Whether the output is the same bit for bit."""
    notes: tuple[str, ...] = ()
    device: str = ""
    budget: BudgetLeft | None = None
