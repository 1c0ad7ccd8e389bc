"""Runs as text and as JSON lines, for the commands. Pure: every function returns the text to print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from harness.shared import format as fmt
from harness.shared.codes import NOT_RUN
from harness.shared.lines import SCHEMA, encode, to_dict
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.task import Case, Task
from kernbench import render
from kernbench.events import BuildFailed, Confirmed, RunStarted, Summary

HEADER = ("case", "base us", "now us", "speedup", "verdict", "vs best")


def start_line(started: RunStarted, task: Task, environment: Environment | None) -> str:
    about = to_dict(environment) if environment else None
    return encode("start", schema=SCHEMA, task=task.name, **to_dict(started), environment=about)


def case_line(result: CaseResult, run: str) -> str:
    return encode("case", result, run=run)


def finished_line(summary: Summary) -> str:
    return encode("finished", summary)


def confirmed_line(event: Confirmed) -> str:
    return encode("confirmed", event)


def failed_lines(failure: BuildFailed, started: RunStarted, environment: Environment | None) -> list[str]:
    """The lines of a source that could not be loaded: a failed row per case, then the summary."""
    detail = render.place(failure.where, failure.message)
    status = failure.status if failure.status in ("timeout", "crashed") else "build_error"
    rows = [CaseResult(case, status, detail=detail, where=failure.where) for case in started.cases]
    summary = Summary(
        run=failure.run,
        source=failure.source,
        at=started.at,
        right=False,
        counts={status: len(rows)},
        baseline=started.baseline,
        task_hash=started.task_hash,
        failed_builds=failure.failed_builds,
        hypothesis=started.hypothesis,
        environment=environment or Environment(),
    )
    return [*(case_line(row, failure.run) for row in rows), finished_line(summary)]


def columns(rows: Sequence[Sequence[str]], left: Iterable[int] = (0,)) -> list[str]:
    """Rows as aligned text; the columns in `left` are left-aligned, the others right-aligned."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    flush = set(left)
    return [
        "  ".join(
            cell.ljust(width) if place in flush else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def table(task: Task, results: Mapping[str, CaseResult], ascii_only: bool = False) -> list[str]:
    """A row per timed and smoke case, then a line each for checks and skipped cases; remarks are below their row."""
    rest = Counter(row.detail or "no reason given" for row in results.values() if row.status == "skipped")
    shown = [case for case in task.cases if case.id in results and _own_row(case, results[case.id])]
    title = render.roof_title(results[case.id] for case in shown)
    header = (*HEADER, title, "error")
    rows = [header, *(_row(case.label, results[case.id], title, ascii_only) for case in shown)]
    lines = columns(rows, left=(0, 4))
    text = [lines[0]]
    said: list[str] = []
    for case, line in zip(shown, lines[1:], strict=True):
        remarks = _remarks(results[case.id])
        text += [line] if remarks == said else [line, *remarks]
        said = remarks
    checks = [results[case.id] for case in task.cases if case.kind == "check" and case.id in results]
    if checks:
        text.append(render.checks(checks))
    return text + [f"not run: {count} ({why.removeprefix(NOT_RUN)})" for why, count in rest.items()]


def outcome(summary: Summary, rows: Iterable[CaseResult] = ()) -> str:
    """The run in one line."""
    not_timed = "not timed" if summary.right else "failed: speedup withheld"
    head = f"geomean {render.geomean(summary)}" if summary.ratio else not_timed
    parts = [head, render.counts(summary, rows)]
    if summary.worst is not None:
        parts.append(f"worst {summary.worst.label} {fmt.times(summary.worst.speedup)}")
    if summary.vs_best is not None:
        parts.append(f"against best {fmt.geomean(summary.vs_best)}")
    if standing := _standing(summary):
        parts.append(standing)
    if summary.repeats is not None:
        parts.append(f"same source as #{summary.repeats}")
    if why_not := render.not_best(summary):
        parts.append(why_not)
    if summary.stalled:
        parts.append(f"stalled: {render.MOVES}")
    if summary.iteration is not None:
        parts.append(f"entry {summary.iteration}")
    if summary.seconds is not None:
        parts.append(fmt.seconds(summary.seconds))
    about = [summary.environment.device_name, summary.environment.condition, f"baseline {summary.baseline}"]
    return " · ".join(parts) + f"  ({', '.join(part for part in about if part)})"


def _standing(summary: Summary) -> str:
    if summary.is_unsettled or summary.is_refused:
        return f"{render.outcome(summary)} over {summary.baseline}"
    if not summary.best:
        return ""
    return f"best so far over {summary.baseline}" if summary.took_over else "still the best"


def _own_row(case: Case, result: CaseResult) -> bool:
    return result.status != "skipped" and (case.kind != "check" or result.failed)


def _row(label: str, result: CaseResult, roof: str, ascii_only: bool) -> tuple[str, ...]:
    return (
        label,
        fmt.microseconds(result.baseline_us),
        fmt.microseconds(result.solution_us),
        fmt.speedup(result.ratio),
        render.verdict(result, ascii_only),
        fmt.times(result.vs_best.speedup if result.vs_best else None),
        render.roof(result, roof),
        fmt.error(result.error.max if result.error else None),
    )


def _remarks(result: CaseResult) -> list[str]:
    lines = [f"    {render.place(result.where, result.detail)}"] if result.detail else []
    return lines + [f"    {finding.name}: {finding.help}" for finding in result.findings]


def checked(result: CaseResult) -> bool:
    """Whether this row is final for this run."""
    return result.checked == 2 or result.status not in ("ok", "interpreted")
