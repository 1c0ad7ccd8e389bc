"""What a gate says about a row and about a task. Pure functions over results.

A slowdown counts from the tolerance on. A row passes if its interval excludes a slowdown that large, and it is slower
if its interval excludes that nothing changed. If the interval includes both, the noise is wider than what the gate is
there to see, and it cannot tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.shared import findings
from harness.shared import format as fmt
from harness.shared.codes import NO_GPU
from harness.shared.results import CaseResult, Ratio
from harness.shared.task import Case
from kernbench import render

Word = Literal["wrong", "slower", "cannot tell", "not timed", "pass"]
WORST_FIRST: tuple[Word, ...] = ("wrong", "slower", "cannot tell", "not timed", "pass")
FAILED, CANNOT_TELL = 1, 4
"""Exit codes."""
ON_GPU, ON_CPU = 0.02, 0.05
"""The default tolerance by clock. Rows on a GPU repeat to a few tenths of a percent; the wall clock of a CPU does
not."""


@dataclass(frozen=True)
class GateRow:
    case: str
    label: str
    word: Word
    before_us: float | None = None
    now_us: float | None = None
    ratio: Ratio | None = None
    why: str = ""
    tries: int = 1

    @property
    def is_doubtful(self) -> bool:
        """Whether more time could give another answer."""
        return self.word in ("slower", "cannot tell") and self.ratio is not None


@dataclass(frozen=True)
class Judge:
    tolerance: float | None = None
    """The smallest slowdown that counts, as a fraction; None for the clock's default."""
    compares: bool = True
    """False for a task that the other revision does not have: it only has to be right."""

    def row(self, case: Case, result: CaseResult, tries: int = 1) -> GateRow:
        word, why = self._word(case, result)
        times = (result.baseline_us, result.solution_us, result.ratio) if self.compares else (None, None, None)
        return GateRow(case.id, case.label, word, *times, why, tries)

    def _word(self, case: Case, result: CaseResult) -> tuple[Word, str]:
        if result.failed:
            said = render.place(result.where, result.detail or "")
            return "wrong", f"{render.STATUS_WORDS[result.status]}: {said}" if said else ""
        found = next((finding for finding in result.findings if finding.disqualifying), None)
        if found is not None:
            return "wrong", f"{found.name}: {found.help}"
        if result.status == "skipped":
            is_expected = result.reason in NO_GPU or case.kind != "case"
            return "not timed" if is_expected else "cannot tell", result.detail or ""
        if case.kind != "case" or not self.compares:
            return "pass", ""
        if any(finding.code == "baseline_inexact" for finding in result.findings):
            return "pass", "it was wrong there, so its speed is not compared"
        return self._speed(result)

    def _speed(self, result: CaseResult) -> tuple[Word, str]:
        ratio = result.ratio
        if ratio is None:
            return "cannot tell", result.detail or "it was not timed"
        least = 1 - self.tolerance_of(result)
        if ratio.low > least:
            return "pass", ""
        if ratio.high < 1:
            return "slower", ""
        cause = findings.disturbance([result])
        ends = f"{fmt.exact(ratio.low)} to {fmt.exact(ratio.high)}"
        wide = f"the interval, {ends}, has room for no change and for {fmt.fine_percent(1 - least)} slower"
        return "cannot tell", f"{wide}; {cause.help}" if cause else wide

    def tolerance_of(self, result: CaseResult) -> float:
        if self.tolerance is not None:
            return self.tolerance
        return ON_CPU if result.clock == "wall" else ON_GPU


@dataclass(frozen=True)
class TaskOutcome:
    task: str
    """The name of its folder."""
    rows: tuple[GateRow, ...] = ()
    notes: tuple[str, ...] = ()
    device: str = ""
    python: str = ""
    """The interpreter, if the gate was asked for several."""
    seconds: float = 0.0
    is_new: bool = False
    """The other revision does not have the task."""

    @property
    def word(self) -> Word:
        return worst(row.word for row in self.rows)

    @property
    def name(self) -> str:
        return f"{self.task} ({self.python})" if self.python else self.task


def worst(words: Iterable[Word]) -> Word:
    return min(words, key=WORST_FIRST.index, default="pass")


def exit_code(outcomes: Sequence[TaskOutcome]) -> int:
    """A row that was not timed because this machine has no GPU does not fail: it was never going to be."""
    word = worst(outcome.word for outcome in outcomes)
    return FAILED if word in ("wrong", "slower") else CANNOT_TELL if word == "cannot tell" else 0
