"""One run as it happens: folds the worker's messages into results, findings and an ending.

Independent of journal and screen: `on_message` and `on_worker_lost` return the events that follow. The row on which the
worker died or timed out says so; rows not reached are skipped and name that row.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast, get_args

from harness.shared import findings
from harness.shared.codes import explain
from harness.shared.errors import Where
from harness.shared.lines import UNREADABLE, decode_checked
from harness.shared.results import CaseResult, Finding
from harness.shared.run_request import Environment, Step
from harness.shared.task import Task
from kernbench import render
from kernbench.engine.conversation.kernel_writes import listed
from kernbench.events import BuildFailed, CaseLanded, Event, FailedStatus, Progress, RunCancelled, RunStarted
from kernbench.worker import tracebacks
from kernbench.worker.process import WorkerLost

STEPS = {name: name for name in get_args(Step)}
STATUSES = {name: name for name in get_args(FailedStatus)}
FAULT_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in ')
PRINTED = re.compile(
    r"(?P<file>[^\s:(][^:(]*)[:(](?P<line>\d+)(?:\)|:\d+)?: (?:fatal |catastrophic )?error.*?: (?P<what>.+)"
)


class RunProgress:
    def __init__(self, task: Task, started: RunStarted, snapshot: str, failed_builds: int) -> None:
        self.task, self.started = task, started
        self.results: dict[str, CaseResult] = {}
        self.findings: tuple[Finding, ...] = ()
        self.environment: Environment | None = None
        self.fixed_seed = 0
        """The seed that stays the same from run to run in the worker that answered; 0 if unknown."""
        self.controls_passed = False
        """The task passed its controls."""
        self.failure: BuildFailed | None = None
        self.cancelled: RunCancelled | None = None
        self.wrote = False
        """The source has written files into the task's folder."""
        self._at: Progress | None = None
        self._changed_files: set[str] = set()
        """Files of the task that the source has written."""
        self._snapshot = snapshot
        self._failed_builds = failed_builds

    def on_message(self, message: dict[str, Any]) -> list[Event]:
        """A line that the worker would not write fails the run: the source has found the pipe."""
        try:
            return self._take(message)
        except UNREADABLE:
            self._fail("crashed", "the worker sent an invalid message; run it again", None, "")
            return []

    def _take(self, message: dict[str, Any]) -> list[Event]:
        kind, run = message.get("event"), self.started.run
        if kind == "case":
            result = decode_checked(CaseResult, message["result"])
            self._case(result.id)
            detail, where = self._printed(result.detail or "", result.where, message)
            return [self._land(replace(result, detail=detail or None, where=where))]
        if kind == "step":
            place = int(message.get("index", 0)), int(message.get("count", 0))
            step = cast(Step, STEPS[message["step"]])
            self._at = Progress(run, step, self._case(message.get("case")), *place)
            return [self._at]
        if kind == "compiling":  # from the supervisor
            return [replace(self._at, compiler=str(message["compiler"]))] if self._at is not None else []
        if kind == "started":
            self.environment = decode_checked(Environment, message.get("environment") or {})
            self.fixed_seed = int(message.get("fixed_seed", 0))
            self.findings = ()  # of a worker that was not clean, if this is the second start
        elif kind == "finding":
            self.findings += (decode_checked(Finding, message["finding"]),)
        elif kind == "wrote":
            self.wrote |= bool(message.get("files"))
            self._note_changed(message.get("task_files", ()))
        elif kind == "controls":
            self.controls_passed = bool(message.get("passed"))
        elif kind == "failed":
            where = decode_checked(Where, message["where"]) if message.get("where") else None
            status = cast(FailedStatus, STATUSES[message.get("status", "build_error")])
            text, where = self._printed(str(message["message"]), where, message)
            self._fail(status, text, where, str(message.get("traceback", "")))
        elif kind == "cancelled":
            self.cancelled = RunCancelled(run, "a newer save")
        return []

    def _printed(self, text: str, where: Where | None, message: dict[str, Any]) -> tuple[str, Where | None]:
        """For a compiler that the source itself ran: its first error is in the log, not in the exception."""
        error = next(filter(None, map(PRINTED.match, message.get("log", ()))), None)
        if error is None or not text.startswith("CalledProcessError: "):
            return text, where
        file = os.path.relpath(os.path.join(self._snapshot, error["file"]), self._snapshot)
        own = not file.startswith("..") and os.path.isfile(os.path.join(self._snapshot, file))
        place = Where(file if own else os.path.basename(file), int(error["line"]))
        return (error["what"], place) if own else (f"{place}: {error['what']}", where)

    def _note_changed(self, files: Iterable[str]) -> None:
        """A source that changes the task while it runs would be judged by itself: its run does not count."""
        self._changed_files.update(map(str, files))
        if self._changed_files:
            others = tuple(finding for finding in self.findings if finding.code != "task_files_changed")
            self.findings = (*others, findings.make("task_files_changed", files=listed(self._changed_files)))

    def on_worker_lost(self, lost: WorkerLost) -> list[Event]:
        """Fails the row in progress and skips the rows not reached."""
        if lost.kind == "cancelled":
            self.cancelled = RunCancelled(self.started.run, lost.detail)
            return []
        where = self._fault(lost)
        doing = render.STEP_WORDS.get(lost.step, lost.step)
        crashed, stack = lost.kind == "crashed", tracebacks.last_stack(lost.log)
        if tracebacks.waits_for_gpu(stack):
            doing += ", and the GPU was still at work"
        why = explain("worker_crashed" if crashed else "worker_timeout", outcome=lost.detail, doing=doing)
        if lost.case not in self.started.cases:
            self._fail(lost.kind, why.detail, where, stack or "\n".join(lost.log))
            return []
        before = self.results.get(lost.case, CaseResult(lost.case, "skipped"))
        events: list[Event] = []
        if not before.failed:  # a row that had failed keeps its status: its error broke the CUDA context
            lost_row = before.untimed(lost.kind, why.detail)
            events.append(self._land(replace(lost_row, reason=why.reason, where=where, traceback=stack)))
        left = explain("after_crash" if crashed else "after_timeout", blame=self.task.case(lost.case).label)
        for case in self.started.cases:
            if case not in self.results:
                events.append(self._land(CaseResult(case, "skipped", detail=left.detail, reason=left.reason)))
        return events

    def _case(self, name: Any) -> str | None:
        """A case of the task; a step of its controls may be about one that is not part of the run."""
        if name is not None and all(case.id != name for case in self.task.cases):
            raise ValueError(f"no case {name!r}")
        return cast("str | None", name)

    def _land(self, result: CaseResult) -> CaseLanded:
        known, traceback = self.task.case(result.id).known, tracebacks.bounded(self._own_frames(result.traceback))
        result = replace(result, known=known, traceback=traceback)
        self.results[result.id] = result
        return CaseLanded(self.started.run, result)

    def _fail(self, status: FailedStatus, message: str, where: Where | None, traceback: str) -> None:
        started, count = self.started, self._failed_builds + 1
        own = self._own_frames(traceback)
        self.failure = BuildFailed(started.run, started.source, message, where, own, status, count)

    def _fault(self, lost: WorkerLost) -> Where | None:
        """The user's line in the fault handler's report, which lists the innermost frame first. Python runs in the
        snapshot; C++ was compiled under the names of the task's folder."""
        for found in filter(None, map(FAULT_FRAME.search, lost.log)):
            for folder in (self._snapshot, self.task.folder):
                if found["file"].startswith(folder + "/"):
                    return Where(found["file"].removeprefix(folder + "/"), int(found["line"]))
        return None

    def _own_frames(self, traceback: str) -> str:
        """Replaces the snapshot's paths by those in the task's folder, which the user knows."""
        own = tracebacks.own(traceback)
        return own.replace(self._snapshot + "/", "").replace(self.task.folder + "/", "")
