"""Runs as text and as JSON lines, for the commands. Pure: every function returns the text to print."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from harness.shared import format as fmt
from harness.shared.codes import NOT_RUN, WORDS
from harness.shared.lines import SCHEMA, encode, to_dict
from harness.shared.results import CaseResult, Ratio
from harness.shared.run_request import Environment
from harness.shared.task import Case, Task
from kernbench import render
from kernbench.events import BuildFailed, Confirmed, RunStarted, Summary

WIDTH = 100
"""Columns of what `run`, `watch` and `show` print."""
LEAST_LABEL = 12
MOST_NAMED = 3
"""Rows that a finding names."""
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
    """A row per timed and smoke case, at most WIDTH columns wide, with an error's sentence below its row; then a line
    each for checks and skipped cases, and a paragraph per finding."""
    rest = Counter(row.detail or "no reason given" for row in results.values() if row.status == "skipped")
    shown = [case for case in task.cases if case.id in results and _own_row(case, results[case.id])]
    title = render.roof_title(results[case.id] for case in shown)
    rows = [(*HEADER, title, "error"), *(_row(case.label, results[case.id], title, ascii_only) for case in shown)]
    lines = columns(_narrowed(_without_empty(rows, title), ascii_only), left=(0, 4))
    text = lines[:1] if shown else []
    said: list[str] = []
    for case, line in zip(shown, lines[1:], strict=True):
        remark = _remark(results[case.id])
        text += [line] if remark == said else [line, *remark]
        said = remark
    checks = [results[case.id] for case in task.cases if case.kind == "check" and case.id in results]
    if checks:
        text.append(render.checks(checks))
    text += [f"not run: {count} ({why.removeprefix(NOT_RUN)})" for why, count in rest.items()]
    return text + _findings(shown, results)


def folded(text: str, between: str = " ", indent: str = "") -> list[str]:
    """A long line in lines of at most WIDTH columns, broken at `between` where that is possible."""
    lines: list[str] = []
    for part in text.split(between):
        if lines and len(longer := f"{lines[-1]}{between}{part}") <= WIDTH:
            lines[-1] = longer
        else:
            lines += textwrap.wrap(part, WIDTH, initial_indent=indent, subsequent_indent=indent) or [indent]
    return lines


def _without_empty(rows: Sequence[tuple[str, ...]], title: str) -> list[tuple[str, ...]]:
    """Without the share of the roofline if no row has one, as on a CPU."""
    place = rows[0].index(title)
    if any(row[place] != fmt.DASH for row in rows[1:]):
        return list(rows)
    return [(*row[:place], *row[place + 1 :]) for row in rows]


def _narrowed(rows: Sequence[tuple[str, ...]], ascii_only: bool) -> list[tuple[str, ...]]:
    """Long labels give way, in the middle: their ends tell cases apart. `--json` has the whole id."""
    others = sum(2 + max(len(row[place]) for row in rows) for place in range(1, len(rows[0])))
    room, gap = max(WIDTH - others, LEAST_LABEL), "..." if ascii_only else "…"
    head = (room - len(gap)) // 2
    tail = room - len(gap) - head
    return [(label if len(label) <= room else f"{label[:head]}{gap}{label[-tail:]}", *cells) for label, *cells in rows]


def outcome(summary: Summary, rows: Iterable[CaseResult] = ()) -> str:
    """The run in one line."""
    not_timed = "not timed" if summary.right else "failed: speedup withheld"
    if not summary.right and render.outcome(summary) == render.NOT_RUN:
        reasons = (row.detail for row in rows if row.detail != WORDS["needs_gpu"])
        why = next(reasons, "without a GPU, a [[smoke]] case in task.toml would be")
        not_timed = f"nothing was checked: {why}"
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
        _vs_best(result.vs_best, ascii_only),
        render.roof(result, roof),
        fmt.error(result.error.max if result.error else None),
    )


def _vs_best(ratio: Ratio | None, ascii_only: bool) -> str:
    signs = render.ASCII_SIGNS if ascii_only else render.SIGNS
    return f"{fmt.times(ratio.speedup)} {signs[ratio.verdict]}" if ratio else fmt.DASH


def _remark(result: CaseResult) -> list[str]:
    return folded(render.place(result.where, result.detail), indent="    ") if result.detail else []


def _findings(shown: Sequence[Case], results: Mapping[str, CaseResult]) -> list[str]:
    """Each once, with the rows that it is about."""
    helps: dict[str, str] = {}
    rows: dict[str, list[str]] = {}
    for case in shown:
        for finding in results[case.id].findings:
            helps.setdefault(finding.name, finding.help)
            rows.setdefault(finding.name, []).append(case.label)
    text: list[str] = []
    for name, labels in rows.items():
        more = len(labels) - MOST_NAMED
        named = fmt.joined([*labels[:MOST_NAMED], f"{more} more"] if more > 1 else labels)
        text += folded(f"{name} ({named}): {helps[name]}")
    return text


def checked(result: CaseResult) -> bool:
    """Whether this row is final for this run."""
    return result.checked == 2 or result.status not in ("ok", "interpreted")
