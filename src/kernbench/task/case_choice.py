"""Which cases a run includes, and in which order. Pure functions."""

from __future__ import annotations

import fnmatch
import random
from collections.abc import Mapping, Sequence

from harness.shared.codes import explain
from harness.shared.errors import UserError
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.task import Case, Task

GRID_PER_SAVE = 32
MOST_NAMED = 8
"""How many cases a message lists."""


def matching(task: Task, glob: str | None) -> list[Case]:
    """Cases whose id or label equals the pattern, else those that match it; all cases without a pattern."""
    if glob is None:
        return list(task.cases)
    exact = [case for case in task.cases if glob in (case.id, case.label)]  # a name may contain a bracket
    return exact or [case for case in task.cases if fnmatch.fnmatch(case.id, glob) or fnmatch.fnmatch(case.label, glob)]


def only(task: Task, glob: str) -> Case:
    """The one case that a pattern matches; raises UserError if there are none or several."""
    found = matching(task, glob)
    if len(found) == 1:
        return found[0]
    what = "no case matches" if not found else f"{len(found)} cases match"
    known = [case.id for case in found or task.timed or task.cases]
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    raise UserError(f"{glob}: {what} in {task.name}; choose one of {', '.join(known[:MOST_NAMED])}{more}")


def leaves_nothing_out(task: Task, glob: str | None) -> bool:
    """Whether a run may speak for the whole task: cases that are only checked count too."""
    return len(matching(task, glob)) == len(task.cases)


def is_interpreted(task: Task, environment: Environment) -> bool:
    return task.device == "cuda" and environment.device == "cpu"


def choose(
    cases: Sequence[Case], seed: int, whole_grid: bool, interpreted: bool
) -> tuple[list[Case], list[CaseResult]]:
    """The cases to run, and results for those that cannot run here."""
    grid = [case for case in cases if case.id.startswith("grid:")]
    if len(grid) > GRID_PER_SAVE and not whole_grid:
        grid = random.Random(seed).sample(grid, GRID_PER_SAVE)
    run = [case for case in cases if not case.id.startswith("grid:")] + grid
    if not interpreted:
        return run, []
    why = explain("needs_gpu")
    timed = [case for case in run if case.kind == "case"]
    skipped = [CaseResult(case.id, "skipped", detail=why.detail, reason=why.reason) for case in timed]
    return [case for case in run if case.kind != "case"], skipped


def ordered(cases: Sequence[Case], last: Mapping[str, CaseResult], selected: str | None) -> list[str]:
    """The last failure, the selected row, headline rows from long to short, the rest; check cases last."""

    def rank(case: Case) -> tuple[int, float]:
        before = last.get(case.id)
        if before is not None and before.failed:
            group = 0
        elif case.id == selected:
            group = 1
        else:
            group = 2 if case.headline else 3 if case.kind == "case" else 4 if case.kind == "smoke" else 5
        return group, -(before.baseline_us or 0.0) if before is not None else 0.0

    timed = sorted((case for case in cases if case.kind != "check"), key=rank)
    checks = sorted((case for case in cases if case.kind == "check"), key=rank)
    return [case.id for case in [*timed, *checks]]
