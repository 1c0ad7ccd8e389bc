"""Steps of models that `M` asks for: one at a time, in a worker by itself, while nothing else is timed.

A save or a key ends the worker; a save never starts one. The files as they are go into the step; without a GPU, the
reference of a GPU task. What only a model needs is imported once the session is idle: the first paint does not wait
for it.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from harness.shared.errors import UserError
from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench.engine.jobs import Options
from kernbench.events import Event, ModelLine, ModelsChanged, Notice
from kernbench.log.logbook import Logbook
from kernbench.task import case_choice

if TYPE_CHECKING:
    from kernbench.transfer.model_log import ModelLog
    from kernbench.transfer.model_row import ModelRow
    from kernbench.transfer.model_run import TransferOptions


class ModelSteps:
    def __init__(self, options: Options, logbook: Logbook, emit: Callable[[Event], None], wake: asyncio.Event) -> None:
        self._options, self._logbook, self._emit, self.wake = options, logbook, emit, wake
        self.last = ""
        self._wanted = ""
        self._log: ModelLog | None = None
        self._lines: tuple[ModelLine, ...] = ()
        self._warned = ""

    def choices(self) -> list[str]:
        """The models that have a site for the task."""
        assert self._logbook.task is not None
        return sorted(self._log_of(self._logbook.task).models)

    def start(self, name: str) -> None:
        """Runs it as soon as the session is idle."""
        self.last = self._wanted = name
        self.wake.set()

    async def carry_out(self, task: Task, environment: Environment | None) -> None:
        """Runs the model that is wanted until a job arrives, and shows what models have said about the task."""
        name, self._wanted = self._wanted, ""
        if name:
            try:
                await self._run(name, task, environment)
            except (UserError, OSError) as problem:
                self._emit(Notice(str(problem), "error"))
            finally:
                self._emit(ModelsChanged(self._lines))
        try:
            lines = await self._logbook.in_thread(self._read, task)
        except (UserError, OSError) as problem:  # a model's log that cannot be read must not stop what comes next
            self._warn_once(str(problem))
            return
        if lines != self._lines:
            self._lines = lines
            self._emit(ModelsChanged(lines))

    def _warn_once(self, said: str) -> None:
        if said != self._warned:
            self._warned = said
            self._emit(Notice(said, "warning"))

    def _log_of(self, task: Task) -> ModelLog:
        from kernbench.transfer.model_log import ModelLog

        return ModelLog(task, self._logbook.state)

    async def _run(self, name: str, task: Task, environment: Environment | None) -> None:
        from kernbench.transfer import model_report
        from kernbench.transfer.model_run import ModelRun

        folder = self._log_of(task).models.get(name)
        if folder is None:
            raise UserError(f"{name} has no site for {task.name} any more")
        run = asyncio.create_task(ModelRun(folder, self._asked(name, task, environment), self._teller(name)).rows())
        woken = asyncio.create_task(self.wake.wait())
        try:
            await asyncio.wait((run, woken), return_when=asyncio.FIRST_COMPLETED)
            if not run.done():
                self._emit(Notice(f"{name} was ended by a save or a key; M runs it again"))
                return
            (row,) = run.result()
        finally:
            for part in (run, woken):
                part.cancel()
            await asyncio.gather(run, woken, return_exceptions=True)
        self._emit(Notice(model_report.outcome(row), "information" if row.kept else "warning"))
        await self._logbook.in_thread(self._logbook.refresh)  # its entry has another line

    def _asked(self, name: str, task: Task, environment: Environment | None) -> TransferOptions:
        from kernbench.transfer.model_run import TransferOptions

        is_interpreted = environment is not None and case_choice.is_interpreted(task, environment)
        return TransferOptions(
            tasks=(task.folder,),
            what=None if is_interpreted else "now",
            device=environment.device if environment else self._options.device,
            python=self._options.python,
            state=self._logbook.state,
            command=shlex.join(["kernbench", "transfer", name, "--task", Path(task.folder).name, "--source", "now"]),
            harness=self._options.harness,
        )

    def _teller(self, name: str) -> Callable[[str], None]:
        def tell(text: str) -> None:
            doing = text.rpartition(": ")[2]  # it begins with the task's name
            self._emit(ModelsChanged(self._lines, f"model {name}: {doing}"))

        return tell

    def _read(self, task: Task) -> tuple[ModelLine, ...]:
        if self._log is None:
            self._log = self._log_of(task)
        self._log.read()
        rows = self._log.newest()
        models = [row.model for row in rows]
        return tuple(self._line(row, self._log.source_in(row), models.count(row.model) > 1) for row in rows)

    def _line(self, row: ModelRow, source: str, has_configs: bool) -> ModelLine:
        from kernbench.transfer import model_report

        before, after = model_report.step_ms(row)
        return ModelLine(
            model=row.title if has_configs else row.model,
            source=source,
            number=self._logbook.journal.iteration_of(source),
            word=row.said,
            kept=row.kept,
            before_ms=before,
            after_ms=after,
            ratio=row.ratio,
            expected=row.expected,
            why=row.why if row.ratio is not None else "",
        )
