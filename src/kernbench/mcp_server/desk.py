"""Where the calls of a client meet the engine: one open task, one run or profile at a time, all through its Session.

A call's work is a task of the event loop that holds the turn until it has ended. A cancelled call returns at once; its
work is broken off behind it, and the next call waits for that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from harness.shared import taskfile
from harness.shared.errors import UserError
from harness.shared.task import Task
from kernbench import render
from kernbench.engine.jobs import Options
from kernbench.engine.session import Session
from kernbench.events import ProfileFailed, RunCancelled
from kernbench.mcp_server import run_answer
from kernbench.mcp_server.answers import ProfileAnswer, RunAnswer, StatusAnswer
from kernbench.mcp_server.run_answer import Heard
from kernbench.mcp_server.run_budget import RunBudget
from kernbench.mcp_server.served_tasks import ServedTasks
from kernbench.mcp_server.task_answers import task_state
from kernbench.ncu import profile_text
from kernbench.task import case_choice, lookup

Tell = Callable[[float, float, str], Awaitable[None]]
"""Reports progress: done, of how many, and what is being done."""
EVERY = 0.25
"""Seconds between two looks at the progress."""
SOON = 0.05
"""Seconds between two attempts to break a call's work off."""
T = TypeVar("T")


@dataclass
class Call:
    """A call's work, as far as a cancellation needs to know it."""

    has_turn: bool = False
    is_cancelled: bool = False
    break_off: Callable[[], object] = lambda: None
    heard: Heard = field(default_factory=Heard)


class Desk:
    def __init__(self, tasks: ServedTasks, options: Options, budget: RunBudget) -> None:
        self.tasks, self.budget = tasks, budget
        self.options = replace(options, has_keys=False, confirm=True)
        self._session: Session | None = None
        self._heard = Heard()
        self._turn = asyncio.Lock()
        self._works_on = ""
        self._jobs: dict[asyncio.Task[Any], Call] = {}
        """The work of every call, until it has ended."""
        self._ending: set[asyncio.Task[None]] = set()
        """Kept here, because a task that nothing refers to may be lost."""

    # -- for every tool ---------------------------------------------------------------------------------------------

    def task(self, name: str, *, solution: bool = True) -> tuple[Task, Path]:
        """The task as it is now, and the folder of its runs, which may not exist yet. Starts the budget's minutes."""
        self.budget.begin()
        folder = self.tasks.folder(name)
        return taskfile.load(folder, solution=solution), folder / lookup.STATE_FOLDER

    async def on_task(self, name: str, work: Callable[..., T], *given: Any) -> T:
        """What needs no worker, in a thread: `work` gets the task and the folder of its runs first."""
        return await asyncio.to_thread(lambda: work(*self.task(name, solution=False), *given))

    def status(self) -> StatusAnswer:
        self.budget.begin()
        return StatusAnswer(tuple(map(task_state, self.tasks.folders)), self.budget.left(), self._works_on)

    async def close(self) -> None:
        """Ends what is running, as a cancellation would, and the worker."""
        await asyncio.gather(*(self._end(job, call) for job, call in list(self._jobs.items())))
        await self._leave()

    # -- what takes long --------------------------------------------------------------------------------------------

    async def run(self, name: str, hypothesis: str, next_step: str, tell: Tell) -> RunAnswer:
        """Runs the solution as it is, confirms it if it would be best, and logs it."""
        if not hypothesis.strip():
            raise UserError("nothing was run: say in `hypothesis` what this change should do and why; the log keeps it")
        task, _state = self.task(name)
        self.budget.check_run()
        call = Call()

        async def work() -> RunAnswer:
            self.budget.check_run()  # other calls may have come first
            session = await self._open(task)
            call.heard = self._heard = Heard(count=len(task.cases))
            call.break_off = session.idle_work.break_off
            session.notes.hypothesis, session.notes.next_step = hypothesis.strip(), next_step.strip()
            outcome = await session.run_once(iteration=True)
            if call.heard.started is not None:
                self.budget.count_run()
            if not call.is_cancelled and not isinstance(outcome, RunCancelled):
                await session.confirm()
            return await self._answer(session, call)

        return await self._in_turn(call, Path(task.folder).name, work, tell)

    async def profile(self, name: str, case: str, against: str | None, tell: Tell) -> ProfileAnswer:
        """What limits a case, by Nsight Compute."""
        task, _state = self.task(name)
        only = case_choice.only(task, case)
        self.budget.check_time()
        call = Call()

        async def work() -> ProfileAnswer:
            session = await self._open(task)
            call.heard = self._heard = Heard(doing=f"profiling {only.id}")
            running = asyncio.ensure_future(session.profile(only.id, against))
            call.break_off = lambda: running.cancelling() or running.cancel()  # once: again, it would end the cleanup
            try:
                found = await running
            except asyncio.CancelledError:
                await self._leave()  # ncu may be in the middle of anything: the next call starts another
                raise
            if isinstance(found, ProfileFailed):
                raise UserError(render.place(found.where, found.message))
            tried = await session.archive.tried()
            lines = profile_text.summary_lines(found.profile, found.diagnosis, found.other, width=100, tried=tried)
            tries = tuple(f"{technique.name}: {technique.reason}" for technique in found.diagnosis.tries)
            about, said = Path(task.folder).name, found.diagnosis
            return ProfileAnswer(
                about, only.id, said.sentence, said.evidence, tries, tuple(lines), round(found.seconds, 2)
            )

        return await self._in_turn(call, Path(task.folder).name, work, tell)

    async def alone(self, name: str, work: Callable[[Heard], Coroutine[Any, Any, T]], tell: Tell) -> T:
        """Work that starts its own worker, in its turn; the open session's makes room. Cancelled with the call."""
        call = Call()

        async def turn() -> T:
            await self._leave()
            call.heard = self._heard = Heard()
            running = asyncio.create_task(work(call.heard))
            call.break_off = lambda: running.cancelling() or running.cancel()  # once: again, it would end the cleanup
            return await running

        return await self._in_turn(call, name, turn, tell)

    # -- one at a time ----------------------------------------------------------------------------------------------

    async def _in_turn(self, call: Call, name: str, work: Callable[[], Awaitable[T]], tell: Tell) -> T:
        async def wait_and_work() -> T:
            async with self._turn:
                call.has_turn, self._works_on = True, name
                try:
                    return await work()
                finally:
                    self._works_on = ""

        job = asyncio.create_task(wait_and_work())
        self._jobs[job] = call
        job.add_done_callback(self._jobs.pop)
        try:
            await self._follow(job, call, tell)
        except BaseException:  # cancelled, or the client that hears of the progress has gone
            ending = asyncio.create_task(self._end(job, call))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            raise
        return job.result()

    async def _follow(self, job: asyncio.Task[Any], call: Call, tell: Tell) -> None:
        """Until the work has ended; says how far it is. The last step of a run is what follows its rows."""
        last = -1
        while not job.done():
            await asyncio.wait([job], timeout=EVERY)
            if call.heard.done > last and call.heard.doing and not job.done():
                last = call.heard.done
                await tell(last, call.heard.count + 1, call.heard.doing)

    async def _end(self, job: asyncio.Task[Any], call: Call) -> None:
        """Breaks a call's work off; one that still waits for its turn never begins."""
        call.is_cancelled = True
        while not job.done():
            if call.has_turn:
                call.break_off()
            else:
                job.cancel()
            await asyncio.wait([job], timeout=SOON)
        with contextlib.suppress(asyncio.CancelledError, Exception):
            job.result()

    async def _open(self, task: Task) -> Session:
        """The task's session, with its worker still warm from the call before; another task's is closed first."""
        if self._session is not None and self._session.task.folder == task.folder:
            return self._session
        await self._leave()
        options = replace(self.options, device=None if task.device == "cpu" else self.options.device)
        self._session = Session(task, lookup.state_dir(Path(task.folder)), options)
        self._session.listen(lambda event: self._heard(event))
        return self._session

    async def _leave(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _answer(self, session: Session, call: Call) -> RunAnswer:
        heard, environment = call.heard, session.environment
        if session.problem is not None:
            raise UserError(f"nothing was run: {session.problem}")
        if heard.failure is not None and heard.failure.status == "bad_task":
            raise UserError(f"nothing was run: {render.place(heard.failure.where, heard.failure.message)}")
        if heard.failure is None and heard.finished is None:
            raise UserError(f"nothing was run: {'; '.join(heard.notices) or 'the run was cancelled'}")
        device = environment.device_name if environment is not None else ""
        made = await session.logbook.in_thread(
            run_answer.answer, session.task, session.logbook.journal, heard, session.archive.profiles(), device
        )
        return replace(made, budget=self.budget.left())
