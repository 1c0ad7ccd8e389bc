"""A run as a tool's answer: its rows, what became of it, what was tried before, and whether the work is stalled.

A run is called best only if its confirmation has settled that: `holds` of its Summary, as everywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.shared import format as fmt
from harness.shared.results import CaseResult, Finding
from harness.shared.task import Task
from kernbench import render, report
from kernbench.events import (
    BuildFailed,
    CaseLanded,
    Confirmed,
    Confirming,
    Event,
    LogLine,
    Notice,
    ProfileReady,
    Progress,
    RunFinished,
    RunStarted,
    Summary,
    WorkerChanged,
)
from kernbench.log.runs.journal import Journal
from kernbench.machine.plain_text import plain
from kernbench.mcp_server import task_answers
from kernbench.mcp_server.answers import Remark, Row, RunAnswer, rounded, speed

MOST_TRIED = 5
MOST_PRINTED, WIDEST_PRINTED = 20, 200
LONGEST_TRACEBACK = 2000
MOST_FAILED_CHECKS = 5
CONFIRMING = "confirming it in a new worker"


@dataclass
class Heard:
    """What a session said since a run began."""

    started: RunStarted | None = None
    rows: dict[str, CaseResult] = field(default_factory=dict)
    failure: BuildFailed | None = None
    finished: Summary | None = None
    confirmed: Confirmed | None = None
    notices: dict[str, None] = field(default_factory=dict)
    printed: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_PRINTED))
    doing: str = ""
    """What it is doing now, in words."""
    done: int = 0
    count: int = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.started, self.count = event, len(event.cases)
        elif isinstance(event, CaseLanded):
            self.rows[event.result.id] = event.result
        elif isinstance(event, BuildFailed):
            self.failure = event
        elif isinstance(event, RunFinished):
            self.finished, self.done = event.summary, self.count
            self.doing = CONFIRMING if event.summary.is_unsettled else "writing the log"
        elif isinstance(event, Confirmed) and self.started is not None and event.run == self.started.run:
            self.confirmed = event
        elif isinstance(event, Notice):
            self.notices[event.text] = None
        elif isinstance(event, LogLine):
            self.printed.append(event.text)
        else:
            self._narrate(event)

    def _narrate(self, event: Event) -> None:
        if isinstance(event, Progress):
            self.doing, self.done, self.count = render.progress(event), max(self.done, event.index), event.count
        elif isinstance(event, WorkerChanged) and event.state == "starting":
            self.doing = "starting the worker (importing torch)"
        elif isinstance(event, Confirming) and event.is_running:
            self.doing = CONFIRMING


def answer(task: Task, journal: Journal, heard: Heard, profiles: Mapping[str, ProfileReady], device: str) -> RunAnswer:
    """Reads the log: call it in a thread."""
    name = Path(task.folder).name
    own = heard.finished.iteration if heard.finished is not None else None
    before, _older = task_answers.tried(task, journal, MOST_TRIED, own)
    about = RunAnswer(
        name,
        "",
        False,
        False,
        "",
        device=device,
        tried_before=before,
        printed=task_answers.last_lines(heard.printed, MOST_PRINTED, WIDEST_PRINTED),
        notices=tuple(heard.notices),
    )
    if heard.failure is not None:
        return _not_loaded(about, heard.failure)
    assert heard.finished is not None
    summary = journal.summary(heard.finished.run) or heard.finished  # confirmed or not
    return _finished(about, task, summary, heard, profiles)


def _not_loaded(about: RunAnswer, failure: BuildFailed) -> RunAnswer:
    return replace(
        about,
        outcome=failure.status.replace("_", " "),
        sentence=render.place(failure.where, failure.message),
        source=failure.source[:8],
        traceback=plain(failure.traceback[-LONGEST_TRACEBACK:]),
    )


def _finished(
    about: RunAnswer, task: Task, summary: Summary, heard: Heard, profiles: Mapping[str, ProfileReady]
) -> RunAnswer:
    rows, limits = heard.rows, _limits(heard.rows, summary, profiles)
    shown = [case for case in task.cases if case.id in rows and (case.kind == "case" or rows[case.id].failed)]
    failed = [case for case in shown if rows[case.id].failed]
    shown = [case for case in shown if case.kind == "case" or case in failed[:MOST_FAILED_CHECKS]]
    checks = [rows[case.id] for case in task.cases if case.kind != "case" and case.id in rows]
    return replace(
        about,
        outcome=render.outcome(summary),
        is_right=summary.right,
        is_best=summary.holds,
        sentence=_sentence(summary, heard),
        entry=summary.iteration,
        source=summary.source[:8],
        over_baseline=speed(summary.ratio),
        over_best=speed(summary.vs_best),
        rows=tuple(_row(case.id, rows[case.id], limits[case.id]) for case in shown),
        checks=render.checks(checks),
        findings=_remarks([*summary.findings, *(found for row in rows.values() for found in row.findings)]),
        traceback=next((plain(rows[case.id].traceback[-LONGEST_TRACEBACK:]) for case in failed), ""),
        same_source_as=summary.repeats,
        is_stalled=summary.stalled,
        seconds=rounded(summary.seconds, 2),
    )


def _row(case: str, row: CaseResult, limit: str) -> Row:
    return Row(
        case=case,
        verdict=row.verdict or render.verdict(row),
        speedup=rounded(row.speedup),
        low=rounded(row.low),
        high=rounded(row.high),
        over_best=speed(row.vs_best),
        baseline_us=rounded(row.baseline_us, 3),
        solution_us=rounded(row.solution_us, 3),
        limit=limit,
        problem=render.place(row.where, row.detail) if row.detail else "",
        findings=tuple(found.name for found in row.findings),
    )


def _remarks(findings: Iterable[Finding]) -> tuple[Remark, ...]:
    """Each once."""
    first = {found.name: found for found in reversed(list(findings))}
    return tuple(Remark(found.name, found.help, found.disqualifying) for found in reversed(first.values()))


def _limits(rows: Mapping[str, CaseResult], summary: Summary, profiles: Mapping[str, ProfileReady]) -> dict[str, str]:
    """How near each row is to its roofline, and what a profile of this very source said."""
    found = {}
    for case, row in rows.items():
        words = [fmt.roof(row.roofline, bound=row.bound)] if row.roofline is not None else []
        known = profiles.get(case)
        if known is not None and known.profile.source == summary.source:
            words.append(known.diagnosis.sentence)
        found[case] = "; ".join(words)
    return found


def _sentence(summary: Summary, heard: Heard) -> str:
    """The run in a line, and what its confirmation said."""
    parts = [report.outcome(summary, heard.rows.values())]
    if heard.confirmed is not None:
        parts.append(render.confirmation(heard.confirmed, summary))
    elif summary.is_unsettled:
        parts.append("it is not the best yet: no new worker has confirmed it; the next run tries again")
    return "; ".join(parts)
