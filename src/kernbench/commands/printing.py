"""Listeners that print: JSON lines for programs, a table for people. Data to stdout, narration to stderr."""

from __future__ import annotations

import sys

import click

from harness.shared import format as fmt
from harness.shared.codes import NO_GPU
from harness.shared.results import CaseResult
from kernbench import render, report
from kernbench.engine.session import Session
from kernbench.events import (
    BuildFailed,
    CaseLanded,
    Confirmed,
    Confirming,
    Event,
    LogLine,
    Notice,
    Progress,
    RunCancelled,
    RunFinished,
    RunStarted,
    Summary,
    WorkerChanged,
)
from kernbench.machine.plain_text import json_text
from kernbench.machine.terminal import clear_line, control, obeys


class Printer:
    """Keeps the run's results and exit code; subclasses decide what to print."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.exit_code = 2
        """2 until a run ends: nothing could be started."""
        self.allow_slower = False
        self.started: RunStarted | None = None
        self.results: dict[str, CaseResult] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.started, self.results = event, {}
            self.on_start(event)
        elif isinstance(event, CaseLanded):
            self.results[event.result.id] = event.result
            self.on_case(event.result)
        elif isinstance(event, RunFinished):
            slower = event.summary.counts.get("slower") and not self.allow_slower
            lacks_gpu = bool(self.results) and all(row.reason in NO_GPU for row in self.results.values())
            self.exit_code = 0 if lacks_gpu or (event.summary.right and not slower) else 1
            self.on_finish(event.summary)
        elif isinstance(event, Confirmed):
            self.on_confirmed(event)
        elif isinstance(event, BuildFailed):
            self.exit_code = 2 if event.status == "bad_task" else 1
            self.on_failure(event)
        elif isinstance(event, Notice):
            click.echo(f"kernbench: {event.text}", err=True)
        elif isinstance(event, RunCancelled):
            click.echo(f"cancelled: {event.reason}", err=True)
        else:
            self.on_narration(event)

    def close(self) -> None:
        """Called after the last event."""

    def on_start(self, event: RunStarted) -> None: ...

    def on_case(self, result: CaseResult) -> None: ...

    def on_finish(self, summary: Summary) -> None: ...

    def on_confirmed(self, event: Confirmed) -> None: ...

    def on_failure(self, failure: BuildFailed) -> None:
        place = render.place(failure.where, failure.message)
        click.echo(f"kernbench: {place}", err=True)
        if failure.where is not None and failure.where.text:
            click.echo(f"    {failure.where.text}", err=True)

    def on_narration(self, event: Event) -> None:
        if isinstance(event, LogLine):
            click.echo(f"| {event.text}", err=True)


class JsonPrinter(Printer):
    """One line per case, once its result is final; `live` prints a case each time it lands."""

    def __init__(self, session: Session, live: bool = False) -> None:
        super().__init__(session)
        self._live = live
        self._printed: set[str] = set()

    def on_start(self, event: RunStarted) -> None:
        self._printed = set()
        self._line(report.start_line(event, self.session.task, self.session.environment))

    def on_case(self, result: CaseResult) -> None:
        if self._live or (report.checked(result) and result.id not in self._printed):
            self._print(result)

    def on_finish(self, summary: Summary) -> None:
        for result in self.results.values():
            if result.id not in self._printed:
                self._print(result)
        self._line(report.finished_line(summary))

    def on_confirmed(self, event: Confirmed) -> None:
        self._line(report.confirmed_line(event))

    def on_failure(self, failure: BuildFailed) -> None:
        super().on_failure(failure)
        if self.started is not None and self.started.run == failure.run:
            for line in report.failed_lines(failure, self.started, self.session.environment):
                self._line(line)

    def _print(self, result: CaseResult) -> None:
        self._printed.add(result.id)
        assert self.started is not None
        self._line(report.case_line(result, self.started.run))

    def _line(self, text: str) -> None:
        sys.stdout.write(json_text(text) + "\n")
        sys.stdout.flush()


class TablePrinter(Printer):
    def __init__(self, session: Session, ascii_only: bool = False) -> None:
        super().__init__(session)
        self._ascii = ascii_only
        self._status = obeys(sys.stderr)

    def on_start(self, event: RunStarted) -> None:
        self._clear()
        click.echo(
            f"{self.session.task.name}: {fmt.plural(len(event.cases), 'case')}, source {event.source[:8]}", err=True
        )

    def on_finish(self, summary: Summary) -> None:
        self._clear()
        for line in report.table(self.session.task, self.results, self._ascii):
            click.echo(line)
        for finding in summary.findings:
            click.echo("\n".join(report.folded(f"{finding.name}: {finding.help}")))
        click.echo("\n".join(report.folded(report.outcome(summary, self.results.values()), " · ")))
        if summary.undecided:
            click.echo(f"to time it again: {summary.command}")

    def on_confirmed(self, event: Confirmed) -> None:
        self._clear()
        click.echo(render.confirmation(event, self.session.logbook.summary(event.run)))

    def on_failure(self, failure: BuildFailed) -> None:
        self._clear()
        super().on_failure(failure)

    def on_narration(self, event: Event) -> None:
        if isinstance(event, Progress) and self._status:
            self._clear()
            self._say_for_now(render.progress(event))
        elif isinstance(event, WorkerChanged) and event.state == "starting" and self._status:
            self._say_for_now("starting the worker (importing torch)")
        elif isinstance(event, Confirming) and self._status:
            self._clear()
            self._say_for_now("confirming it in a new worker" if event.is_running else "")
        elif isinstance(event, LogLine):
            self._clear()
            super().on_narration(event)

    def close(self) -> None:
        self._clear()

    def _say_for_now(self, words: str) -> None:
        """The next line overwrites it."""
        click.echo(words, nl=False, err=True)
        control(sys.stderr, "\r")

    def _clear(self) -> None:
        clear_line(sys.stderr)
