"""What a run's rows add up to: its summary, whether its source becomes best and why not, the stall rule. Pure
functions over results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from harness.shared import findings, stats
from harness.shared import format as fmt
from harness.shared.results import CaseResult, Finding, Ratio
from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench.events import NotBestCode, RunStarted, Summary, Worst
from kernbench.log.runs.series import best_of

STALL_AFTER = 3
MOVES = {
    "profile": "profiled again",
    "profileagain": "profiled again",
    "reread": "re-read the log",
    "rereadthelog": "re-read the log",
    "direction": "changed direction",
    "newdirection": "changed direction",
    "changedirection": "changed direction",
}
"""Moves out of a stall, by the word that a hypothesis may begin with."""


def streak(series: Sequence[Summary], best: bool, counts: bool) -> int:
    """Right iterations in a row without a new best, including this one; `series` ends before it."""
    if best or not counts:
        return 0
    length = 1
    for run in _counted(series):
        if run.new_best:
            break
        length += 1
    return length


def is_stalled(series: Sequence[Summary], best: bool, counts: bool) -> bool:
    """Whether this is at least the third iteration in a row without a new best."""
    return streak(series, best, counts) >= STALL_AFTER


def follows_stall(series: Sequence[Summary], is_try: bool) -> bool:
    """Whether the iteration before this one was stalled; a new, right source answers that even if it is undecided."""
    last = next(_counted(series), None) if is_try else None
    return last is not None and last.stalled


def said_move(hypothesis: str) -> str:
    """The move that a hypothesis begins with: `direction: two rows a warp`."""
    word = hypothesis.partition(":")[0].strip().lower() if ":" in hypothesis else ""
    return MOVES.get(word.replace("-", "").replace(" ", ""), "")


def _counted(series: Sequence[Summary]) -> Iterator[Summary]:
    """The runs that the stall rule counts, newest first."""
    return (item for item in reversed(series) if item.counted)


@dataclass(frozen=True)
class SummaryInputs:
    """What a summary needs besides the rows."""

    environment: Environment
    series: Sequence[Summary]
    """The runs of the task's own series, which decides what is best."""
    complete: bool
    """The run included every timed case of the task."""
    is_same_as_best: bool = False
    """The source has the code of the best one, so it already is the best."""
    findings: tuple[Finding, ...] = ()
    seconds: float | None = None
    is_iteration: bool = False
    repeats: int | None = None
    failed_builds: int = 0
    next: str = ""
    hypothesis_by: str = ""
    hypothesis_at: str = ""
    profiled: bool = False
    """A profile was taken since the previous iteration."""
    baseline_hash: str = ""
    command: str = ""
    version: str = ""


def summarise(task: Task, started: RunStarted, results: Mapping[str, CaseResult], about: SummaryInputs) -> Summary:
    """Sums up a run. A source that is not right has no speedup; its other rows still have their times."""
    headline = _headline(task, results)
    timed = [(row, ratio) for row in headline if (ratio := row.ratio) is not None]
    right = _is_right(results.values())
    mean, direct = means(task, results) if right else (None, None)
    old_best = best_of(about.series)
    is_best_already = old_best is not None and (old_best.source == started.source or about.is_same_as_best)
    decides = started.baseline == task.baseline
    best = decides and _is_best(right, results.values(), headline, about, is_best_already, old_best)
    is_new = best and about.repeats is None and not is_best_already
    order = sorted(timed, key=lambda item: item[1].speedup) if right else []
    code, why_not = _not_best(task, started, headline, about) if right and not (best or is_best_already) else _NO_REASON
    is_known = about.repeats is not None or (best and is_best_already)
    is_try = decides and right and not is_known and about.is_iteration and not about.environment.interpreted
    wall = _wall(headline) if right else None
    after_stall, counts = follows_stall(about.series, is_try), is_try and code != "undecided"  # that may still be best
    return Summary(
        run=started.run,
        source=started.source,
        code=started.code,
        at=started.at,
        right=right,
        geomean=mean.speedup if mean else None,
        low=mean.low if mean else None,
        high=mean.high if mean else None,
        verdict=mean.verdict if mean else None,
        weighted=_weighted(task, timed) if right else None,
        wall=wall.speedup if wall else None,
        wall_low=wall.low if wall and _has_interval(headline) else None,
        wall_high=wall.high if wall and _has_interval(headline) else None,
        vs_best=direct,
        best=best,
        awaits=best and not is_best_already,
        best_geomean=old_best.geomean if old_best and decides else None,
        not_best=why_not,
        not_best_code=code,
        stalled=is_stalled(about.series, is_new, counts),
        streak=streak(about.series, is_new, counts),
        after_stall=after_stall,
        move=_move(started.hypothesis, about.profiled) if after_stall else "",
        counts=_counts(results.values(), len(timed)),
        worst=_named(task, *order[0]) if order else None,
        fastest=_named(task, *order[-1]) if order else None,
        findings=about.findings,
        repeats=about.repeats,
        complete=about.complete,
        failed_builds=about.failed_builds,
        hypothesis=started.hypothesis,
        hypothesis_by=about.hypothesis_by if started.hypothesis else "",
        hypothesis_at=about.hypothesis_at if started.hypothesis else "",
        next=about.next,
        baseline=started.baseline,
        baseline_hash=about.baseline_hash,
        task_hash=started.task_hash,
        command=about.command,
        version=about.version,
        seconds=about.seconds,
        environment=about.environment,
    )


def _is_right(rows: Iterable[CaseResult]) -> bool:
    """Some case ran, and none failed."""
    rows = list(rows)
    return any(row.status in ("ok", "interpreted") for row in rows) and not any(row.failed for row in rows)


def means(task: Task, results: Mapping[str, CaseResult]) -> tuple[Ratio | None, Ratio | None]:
    """The geomeans over the baseline and over the best, of the headline rows that were timed."""
    headline = _headline(task, results)
    over_baseline = [row.ratio for row in headline if row.ratio is not None]
    return stats.geomean(over_baseline), stats.geomean(_against_best(headline))


def _headline(task: Task, results: Mapping[str, CaseResult]) -> list[CaseResult]:
    return [results[case.id] for case in task.timed if case.headline and case.id in results]


def axis_of(run: Summary) -> tuple[str, str, str]:
    """What a speedup is measured over, and where; also works for a pulled entry, whose series is not known."""
    return run.baseline, run.environment.device_name, run.environment.l2


def is_same_task(one: str, other: str) -> bool:
    """Of two hashes; an old entry names the task's by its first digits, or not at all."""
    return one.startswith(other) or other.startswith(one)


def newest_of_plot(timed: Sequence[Summary], alike: Callable[[Summary, Summary], bool]) -> Summary:
    """What an iteration has to be comparable with to be in the plot: the newest, or if nothing is, as after a run over
    another baseline, the newest that follows a comparable one."""
    newest = timed[-1]
    if any(alike(item, newest) for item in timed[:-1]):
        return newest
    return next((after for before, after in reversed([*pairwise(timed)]) if alike(before, after)), newest)


def best_levels(entries: Sequence[Summary]) -> list[float | None]:
    """The geomean of the best after each entry, as measured when it became best. That may have been between two
    entries, and timing it again does not change it. One that waits for its confirmation is not the best yet."""
    levels: list[float | None] = []
    level: float | None = None
    for item in entries:
        before = [value for value in (level, item.best_geomean) if value is not None]
        takes_over = item.took_over and item.holds
        level = item.geomean if takes_over and item.geomean else max(before, default=None)
        levels.append(level)
    return levels


def numbered(summary: Summary, number: int) -> Summary:
    return replace(summary, iteration=number)


def _against_best(rows: Sequence[CaseResult]) -> list[Ratio]:
    return [row.vs_best for row in rows if row.vs_best is not None]


def _is_best(
    right: bool,
    results: Iterable[CaseResult],
    headline: Sequence[CaseResult],
    about: SummaryInputs,
    is_best_already: bool,
    old_best: Summary | None,
) -> bool:
    checked = all(row.checked == 2 for row in results if row.status == "ok")
    timed = any(row.ratio is not None for row in headline)
    if not right or not checked or not timed or not about.complete or about.environment.interpreted:
        return False
    if any(row.disqualifying for row in headline) or any(finding.disqualifying for finding in about.findings):
        return False
    return old_best is None or is_best_already or _beats_best(headline)


def _beats_best(headline: Sequence[CaseResult]) -> bool:
    """Whether every row was timed against the best, and they satisfy the rule for a best."""
    direct = _against_best(headline)
    return len(direct) == sum(row.status == "ok" for row in headline) and stats.beats_best(direct)


def unproven(task: Task, run: Summary, results: Mapping[str, CaseResult]) -> str:
    """What a run claims that these rows, timed again, do not show: to beat the best or, of a first best that was faster
    than the baseline, that it is. Empty if they show it."""
    headline, (mean, _direct) = _headline(task, results), means(task, results)
    if run.vs_best is not None and run.best_geomean is not None:  # else what it beat has been refused since
        return "" if _beats_best(headline) else _not_faster(task, headline)[1]
    if run.verdict != "faster" or (mean is not None and mean.low > 1):
        return ""
    cause = findings.disturbance(headline)
    return f"the whole interval must be above {fmt.times(1.0)}{f' ({cause.name})' if cause else ''}"


_NotBest = tuple[NotBestCode | None, str]
_NO_REASON: _NotBest = (None, "")


def _not_best(task: Task, started: RunStarted, headline: Sequence[CaseResult], about: SummaryInputs) -> _NotBest:
    """Why a right source did not become best, if it could have: the first reason, in the order in which a user can act
    on them, as code and words."""
    if about.environment.interpreted:
        return _NO_REASON
    if started.baseline == "best":
        return "timed_against_best", f"timed only against best; a new best needs a run against {task.baseline}"
    if started.baseline != task.baseline:
        name = Path(started.baseline).name
        return "other_baseline", f"timed against {name}; a new best needs a run against {task.baseline}"
    red = next((row for row in headline if row.disqualifying), None)
    if red is not None:
        return "row_finding", f"{task.case(red.id).label} is disqualified ({_disqualifying(red.findings)})"
    if any(finding.disqualifying for finding in about.findings):
        return "run_finding", f"the run is disqualified ({_disqualifying(about.findings)})"
    if best_of(about.series) is None:
        return _NO_REASON
    if not about.complete:
        return "part", "only some of the cases were run"
    return _not_faster(task, headline)


def _disqualifying(found: Iterable[Finding]) -> str:
    return ", ".join(finding.name for finding in found if finding.disqualifying)


def _not_faster(task: Task, headline: Sequence[CaseResult]) -> _NotBest:
    """The part of the answer that the times against the best give. A row that is unclear decides nothing."""
    direct = [(row, row.vs_best) for row in headline if row.vs_best is not None]
    clear = [(row, ratio) for row, ratio in direct if ratio.verdict != "unclear"]
    low = min(clear, key=lambda item: item[1].speedup, default=None)
    if low is not None and low[1].speedup < stats.WORST_HEADLINE:
        label, limit = task.case(low[0].id).label, stats.WORST_HEADLINE
        return "row_below_limit", f"{label} is {fmt.times(low[1].speedup)} vs best, below the limit of {limit}"
    mean = stats.geomean([ratio for _row, ratio in direct])
    if mean is None or len(direct) < sum(row.status == "ok" for row in headline):
        return "not_timed_with_best", "it was not timed against the best"
    unclear, may_be_best = len(direct) - len(clear), mean.high > 1 + stats.MARGIN
    if may_be_best and (mean.verdict == "unclear" or (mean.verdict == "faster" and unclear)):
        what = f"{fmt.plural(unclear, 'row')} {'is' if unclear == 1 else 'are'}" if unclear else "the geomean is"
        cause = findings.disturbance(headline)
        return "undecided", f"{what} unclear against the best{f' on a {cause.name}' if cause else ''}"
    least = fmt.times(1 + stats.MARGIN)
    return "not_above_margin", f"{fmt.exact(mean.speedup)} vs best; the whole interval must be above {least}"


def _weighted(task: Task, timed: Sequence[tuple[CaseResult, Ratio]]) -> float | None:
    """The geomean with the weights of the cases; None where no headline case has one."""
    if all(case.weight == 1 for case in task.timed if case.headline):
        return None
    weights = [task.case(row.id).weight for row, _ratio in timed]
    return stats.weighted_geomean([ratio.speedup for _row, ratio in timed], weights)


def _wall(rows: Sequence[CaseResult]) -> Ratio | None:
    walls = [row.wall for row in rows if row.wall is not None]
    speedups = [(wall.speedup, wall.low, wall.high) for wall in walls if wall.speedup is not None]
    return stats.geomean([Ratio(value, low or value, high or value, "same") for value, low, high in speedups])


def _has_interval(rows: Sequence[CaseResult]) -> bool:
    return all(row.wall.low is not None and row.wall.high is not None for row in rows if row.wall is not None)


def _move(hypothesis: str, profiled: bool) -> str:
    """The move that the hypothesis names, and a profile taken meanwhile."""
    moves = [said_move(hypothesis), "profiled again" if profiled else ""]
    return " and ".join(dict.fromkeys(move for move in moves if move))


def _named(task: Task, row: CaseResult, ratio: Ratio) -> Worst:
    return Worst(row.id, task.case(row.id).label, ratio.speedup)


def _counts(results: Iterable[CaseResult], in_geomean: int) -> dict[str, int]:
    tally: Counter[str] = Counter()
    for row in results:
        tally[row.status] += 1
        if row.verdict is not None:
            tally[row.verdict] += 1
    tally["headline"] = in_geomean
    return dict(tally)
