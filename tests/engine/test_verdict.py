"""What a confirmation decides about the times of a run: it has to show by itself what the run claims."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.shared import findings, stats
from harness.shared.results import CaseResult, Ratio
from harness.shared.task import Task
from kernbench.engine.conversation.confirmation import Attempt, Judged, verdict
from kernbench.engine.conversation.run_progress import RunProgress
from kernbench.events import Confirmed, RunStarted, Summary
from tests.log.logs import make_task, rows_of, summary_of

Ends = tuple[float, float, float]
"""Of every row: the speedup and its interval."""
BUSY = findings.make("busy_machine", busy="1.9", cpus=2)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return make_task(tmp_path / "t", 1)


def ratio(ends: Ends) -> Ratio:
    return Ratio(*ends, stats.verdict(*ends, stats.MARGIN))


def rows(task: Task, over: Ends, direct: Ends | None, busy: bool = False) -> list[CaseResult]:
    speedup, low, high, word = (own := ratio(over)).speedup, own.low, own.high, own.verdict
    about = {"speedup": speedup, "low": low, "high": high, "verdict": word}
    found = (BUSY,) if busy else ()
    best = ratio(direct) if direct else None
    return [replace(row, **about, vs_best=best, findings=found) for row in rows_of(task, 1, 1.0, {}, 1)]  # type: ignore[arg-type]


def claimed(task: Task, over: Ends, direct: Ends | None = None) -> Summary:
    """A run that would be best, over an earlier best or as the first."""
    first = [summary_of(task, 1, rows(task, (1.0, 0.99, 1.01), None), [])] if direct else []
    run = replace(summary_of(task, 2, rows(task, over, direct), first), awaits=True, confirmed=None)
    assert run.is_unsettled
    return run


def confirmed(
    task: Task, run: Summary, over: Ends, direct: Ends | None = None, busy: bool = False, lacks: str = ""
) -> Confirmed:
    cases = tuple(case.id for case in task.timed)
    progress = RunProgress(task, RunStarted("confirm-1", run.source, "command", cases, run.at, run.baseline), "", 0)
    for row in rows(task, over, direct, busy):
        progress.results[row.id] = replace(row, vs_best=None) if row.id == lacks else row
    return verdict(run, Attempt(progress, {case: Judged(case, 100, None) for case in cases}, None, 1.0))


def test_a_speedup_that_a_new_worker_does_not_show_is_refused(task: Task) -> None:
    """Next to a busy program it says almost nothing, and overlaps with almost everything."""
    over, wide = (1.49, 1.30, 1.71), (0.85, 0.67, 1.33)
    event = confirmed(task, claimed(task, over), wide)
    numbers = "1.49x [1.30, 1.71] in the run, 0.85x [0.67, 1.33] in a new worker"
    assert (event.confirmed, event.why) == (False, f"{numbers}: the whole interval must be above 1.00x; run it again")
    busy = confirmed(task, claimed(task, over), wide, busy=True)
    assert busy.why == f"{numbers}: the whole interval must be above 1.00x (busy machine); run it again"
    same = (1.0, 0.99, 1.01)
    event = confirmed(task, claimed(task, same, over), same, wide)
    numbers = "1.49x [1.30, 1.71] over the best in the run, 0.85x [0.67, 1.33] in a new worker"
    assert (event.confirmed, event.geomean) == (False, 1.0)
    assert event.why == f"{numbers}: 1 row is unclear against the best; run it again"


@pytest.mark.parametrize(
    ("in_run", "new", "why"),
    [
        ((1.05, 1.03, 1.07), (1.04, 1.02, 1.06), ""),
        ((1.30, 1.10, 1.54), (1.10, 1.02, 1.19), ""),
        ((1.05, 1.02, 1.08), (1.02, 1.005, 1.035), "1.020x vs best; the whole interval must be above 1.01x; "),
        ((1.05, 1.02, 1.08), (1.05, 0.95, 1.16), "1 row is unclear against the best; "),
        ((1.05, 1.02, 1.08), (1.00, 0.999, 1.001), "1.000x vs best; the whole interval must be above 1.01x; "),
    ],
)
def test_a_new_best_has_to_beat_the_best_again(task: Task, in_run: Ends, new: Ends, why: str) -> None:
    same = (1.0, 0.99, 1.01)
    event = confirmed(task, claimed(task, same, in_run), same, new)
    assert (event.confirmed, event.why.endswith(f"in a new worker: {why}run it again")) == (not why, bool(why))


def test_every_row_has_to_be_timed_against_the_best_again(tmp_path: Path) -> None:
    task, same, faster = make_task(tmp_path / "t", 2), (1.0, 0.99, 1.01), (1.2, 1.19, 1.21)
    run = claimed(task, same, faster)
    assert confirmed(task, run, same, faster).confirmed
    event = confirmed(task, run, same, faster, lacks=task.timed[0].id)
    assert (event.confirmed, "it was not timed against the best" in event.why) == (False, True)


@pytest.mark.parametrize(
    ("in_run", "new", "is_confirmed"),
    [
        ((0.90, 0.88, 0.92), (0.91, 0.89, 0.93), True),  # slower than the baseline, and the best there is
        ((0.90, 0.88, 0.92), (0.93, 0.70, 1.24), True),
        ((1.00, 0.995, 1.005), (1.00, 0.97, 1.03), True),
        ((1.02, 0.97, 1.07), (1.00, 0.95, 1.05), True),
        ((1.02, 1.005, 1.035), (1.015, 1.001, 1.03), True),
        ((1.02, 1.005, 1.035), (1.00, 0.985, 1.015), False),  # it was called faster, and is not
        ((0.90, 0.88, 0.92), (1.10, 1.08, 1.12), False),
    ],
)
def test_a_first_best_has_to_be_faster_again_if_it_was(task: Task, in_run: Ends, new: Ends, is_confirmed: bool) -> None:
    assert confirmed(task, claimed(task, in_run), new).confirmed is is_confirmed


@pytest.mark.parametrize("over", [(3.0, 2.99, 3.01), (1.0, 0.99, 1.01)])
def test_both_geomeans_have_to_agree_with_the_run(task: Task, over: Ends) -> None:
    """A best may be as much faster than claimed over the best: its speedup over the baseline is a number too."""
    faster = (1.2, 1.19, 1.21)
    event = confirmed(task, claimed(task, over, faster), (2.0, 1.99, 2.01), faster)
    assert (event.confirmed, "over the best" in event.why) == (False, False)
    event = confirmed(task, claimed(task, over, faster), over, (2.0, 1.99, 2.01))
    assert (event.confirmed, "over the best in the run, 2.00x" in event.why) == (False, True)
