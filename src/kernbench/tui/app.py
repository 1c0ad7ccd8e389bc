"""The workbench: one screen over one engine.

The engine is started after the first paint, speaks in this event loop, and is closed when the app leaves, however it
leaves. Keys are bindings of the screen; what they do is here, and a key that cannot work now says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual.app import SuspendNotSupported, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from harness.shared.errors import UserError, Where
from kernbench.events import Event, RunFinished
from kernbench.machine import clipboard
from kernbench.machine.telemetry import Reader, Sample, Telemetry
from kernbench.settings import Settings
from kernbench.tui import theme
from kernbench.tui.actions import draft_file, editor, export, hangup, job_control
from kernbench.tui.actions.iterations import Past
from kernbench.tui.actions.notes import Notes
from kernbench.tui.actions.palette import commands
from kernbench.tui.kernbench_app import OurApp
from kernbench.tui.messages import Heard, Sampled, Tasks
from kernbench.tui.pages import user_keys
from kernbench.tui.pages.dialogs import TO_SHELL, Choose, RowPage, TracebackPage
from kernbench.tui.pages.help import Help, key_rows
from kernbench.tui.pages.picker import TaskScreen
from kernbench.tui.panes import gpu
from kernbench.tui.screen import MainScreen
from kernbench.tui.state.board import Board
from kernbench.tui.state.engine_protocol import Engine
from kernbench.tui.text import clipboard_text, failure_text, row_detail
from kernbench.tui.text.spans import clean
from kernbench.tui.text.status_text import quoted

SAID_WITH_A_CHANGE_SECONDS = 0.5


class Workbench(OurApp[None], inherit_bindings=False):
    """Without Textual's own ctrl+q, which would leave from a box too, and lose what is typed there."""

    CSS_PATH = "kernbench.tcss"
    TITLE = "kernbench"
    NOTIFICATION_TIMEOUT = 4.0
    BINDINGS: ClassVar[list[BindingType]] = [
        TO_SHELL,
        Binding("ctrl+c", "help_quit", show=False, system=True),
    ]

    def __init__(
        self,
        engine: Engine,
        ascii_only: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        reader: Reader | None = None,
        settings: Settings | None = None,
        tasks: Tasks | None = None,
    ) -> None:
        super().__init__(ascii_only, ansi_color=theme.own_colours_only(os.environ))
        self.now = now
        self.ascii_only = ascii_only
        self.set_class(ascii_only, "-ascii")
        self.settings = settings or Settings()
        self._tasks = tasks
        self._inbox: deque[Event] = deque()
        self._said_at = 0.0
        self._telemetry = Telemetry(reader, self._sampled) if reader else None
        self.register_theme(theme.KERNBENCH)
        user_keys.check(self.settings, self.available_themes)
        self.theme = self.settings.theme or theme.default(os.environ)
        self.set_keymap(self.settings.keys)
        self._take_engine(engine)
        self.past = Past(self)
        self.notes = Notes(self)
        self.main = MainScreen(self.board, ascii_only)

    def _take_engine(self, engine: Engine) -> None:
        self.engine = engine
        engine.remarks.hypothesis = engine.remarks.hypothesis or draft_file.read(engine.state)
        gpu_here = gpu.looks_present()
        if engine.archive.is_long:
            self.board = Board(engine.task, engine.environment, gpu_here=gpu_here)
            self.board.reading = True
        else:
            engine.archive.read()
            results, summary = engine.last_results(), engine.last_summary()
            self.board = Board(engine.task, engine.environment, results, summary, gpu_here)
        self.board.solution = editor.solution(Path(engine.task.folder))
        self._inbox.clear()

    def get_default_screen(self) -> Screen[Any]:
        return self.main

    def on_mount(self) -> None:
        # Textual leaves the terminal blank after `fg` until something changes.
        self.app_resume_signal.subscribe(self, lambda app: app.refresh(layout=True))
        self.screen_change_signal.subscribe(self, lambda screen: self.forget_words())
        if warning := user_keys.doubtful(self.settings):
            self.say(warning, "warning")
        # A lost connection or a kill ends like `q`: the worker is closed, what landed is on disk.
        for number in (signal.SIGHUP, signal.SIGTERM):
            with contextlib.suppress(RuntimeError, ValueError):
                asyncio.get_running_loop().add_signal_handler(number, self.exit)
        if not self.is_headless:
            self.set_interval(2, self._leave_a_dead_terminal)
        self._connect()
        if self._telemetry is not None:
            self.call_after_refresh(self._telemetry.start)

    def _leave_a_dead_terminal(self) -> None:
        """Where no SIGHUP comes (nohup), Textual would read the end of the input for ever."""
        if hangup.is_dead(sys.__stdin__.fileno() if sys.__stdin__ else -1):
            self.exit()

    def _connect(self) -> None:
        engine = self.engine
        engine.listen(lambda event: self._hear(engine, event))
        engine.selected = self.board.cases[0].id if self.board.cases else None
        # The first paint must not wait for the worker.
        self.call_after_refresh(self.run_worker, self._start, exit_on_error=False)

    async def on_unmount(self) -> None:
        if self._telemetry is not None:
            self._telemetry.stop()
        for number in (signal.SIGHUP, signal.SIGTERM):
            with contextlib.suppress(RuntimeError, ValueError):
                asyncio.get_running_loop().remove_signal_handler(number)
        await self._leave(self.engine)

    async def _leave(self, engine: Engine) -> None:
        draft_file.keep(engine.state, engine.remarks.hypothesis)
        await engine.close()

    async def _start(self) -> None:
        try:
            if self.board.reading:
                await asyncio.to_thread(self.engine.archive.read)
                self.main.remember()
            await self.engine.start()
        except Exception as error:  # whatever the engine does, the screen stays up
            self.say(f"the engine could not start: {error}", "error")

    def _hear(self, engine: Engine, event: Event) -> None:
        if engine is not self.engine:
            return  # the last words of a task that was left
        if not self._inbox:
            self.post_message(Heard())
        self._inbox.append(event)

    def on_heard(self) -> None:
        if not self.main.ready:
            return
        while self._inbox:
            event = self._inbox.popleft()
            self.main.take(event)
            if isinstance(event, RunFinished):
                draft_file.keep(self.engine.state, self.engine.remarks.hypothesis)
                if 0 < self.settings.bell <= (event.summary.seconds or 0):
                    self.bell()
        self.main.paint_soon()

    def _sampled(self, sample: Sample) -> None:
        self.post_message(Sampled(sample))

    def on_sampled(self, event: Sampled) -> None:
        self.main.feel(event.sample)

    @property
    def settled(self) -> bool:
        """All that the engine said is on the screen."""
        return not self._inbox and self.main.settled

    def forget_words(self) -> None:
        """Another screen came up: what was said on the one before is over, but for what was said with the change."""
        if time.monotonic() - self._said_at > SAID_WITH_A_CHANGE_SECONDS:
            self.clear_notifications()

    def say(self, sentence: str, severity: Any = "information") -> None:
        self._said_at = time.monotonic()
        self.clear_notifications()  # the newest alone: a second line would cover the tabs
        self.notify(clean(sentence), severity=severity, markup=False)

    def tell(self, sentence: str, severity: Any = "information") -> None:
        """Said, and kept in the log: a path or a command is wanted when the line has gone."""
        self.say(sentence, severity)
        if self.main.ready:
            self.main.log_pane.add(f"-- {sentence}")

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        return commands(self)

    # -- the run and its words

    def action_rerun(self) -> None:
        self.engine.rerun()
        self.main.paint()

    def action_pause(self) -> None:
        self.engine.set_paused(not self.engine.paused)
        self.clear_notifications()  # that a save waits is no longer so
        self.main.paint()

    def action_hypothesis(self) -> None:
        self.notes.ask_hypothesis()

    def action_next_step(self) -> None:
        self.notes.ask_next_step()

    def action_baseline(self) -> None:
        choices = self.engine.baselines()
        if len(choices) < 2:
            self.say(f"there is no other baseline than {self.engine.baseline}")
            return
        self.push_screen(Choose("Compare with", choices, self.engine.baseline, "in use"), self._choose_baseline)

    def _choose_baseline(self, name: str | None) -> None:
        if name is not None and name != self.engine.baseline:
            try:
                self.engine.set_baseline(name)
            except UserError as problem:
                self.say(str(problem), "error")
            self.main.paint()

    async def action_quit(self) -> None:
        remarks = self.engine.remarks
        said = [f"kept for the next start: the hypothesis {quoted(remarks.hypothesis)}"] if remarks.hypothesis else []
        said += [f"in no entry yet: the next step {quoted(remarks.next_step)}"] if remarks.next_step else []
        said += [f"typed and not saved: {quoted(draft)}" for draft in self.notes.unsaved()]
        self.exit(message=Text("\n".join(said)) if said else None)

    def action_help_quit(self) -> None:
        """Nothing was selected that ctrl+c could copy: it may have been meant to leave."""
        self.say("ctrl+c copies what is selected with the mouse; q on the results leaves")

    def action_suspend_process(self) -> None:
        """Textual's own stops this process alone."""
        try:
            with self.suspend():
                job_control.stop_job()
        except SuspendNotSupported:
            self.say("this terminal has no shell to go to", "warning")

    def action_help(self) -> None:
        self.push_screen(Help(key_rows(self.get_key_display, self.settings.keys)))

    # -- other tasks

    def action_tasks(self) -> None:
        if self._tasks is None:
            self.say("there is no other task to switch to while the runs are kept in one place (--state)")
            return
        rows = self._tasks.rows()
        self.push_screen(TaskScreen(rows, self.engine.task.folder), self._switch_soon)

    def _switch_soon(self, folder: str | None) -> None:
        if folder is not None and folder != self.engine.task.folder:
            self.say(f"opening {Path(folder).name}")
            # The words must be on the screen before the work begins.
            self.call_after_refresh(self.run_worker, partial(self._switch, folder), exit_on_error=False)

    async def _switch(self, folder: str) -> None:
        assert self._tasks is not None
        try:
            engine = self._tasks.open(folder)
        except UserError as problem:
            self.say(str(problem), "error")
            return
        before = self.engine
        self._take_engine(engine)
        await self.main.turn_to(self.board)
        self.clear_notifications()
        self._connect()
        await self._leave(before)

    # -- rows and entries

    def show_row(self) -> None:
        row = self.main.results.selected
        if row is None:
            self.say("no row is selected: the filter matches none" if self.board.cases else "the task has no rows")
            return
        lines = row_detail.lines(row, self.board.task, self.ascii_only)
        self.push_screen(RowPage(clean(row.case.label), lines, about=row.case.id))

    def action_traceback(self) -> None:
        found = failure_text.traceback(self.board, self.main.results.selected)
        if found is None:
            failed = self.board.failure is not None or self.board.failed_rows()
            self.say("no traceback: nothing was raised" if failed else "no traceback: nothing failed")
            return
        self.push_screen(TracebackPage(*found))

    def action_diff(self) -> None:
        self.past.show_diff("best", "now")

    def action_profile(self, full: bool) -> None:
        row, environment = self.main.results.selected, self.board.environment
        if row is None or environment is None:
            self.say("no row to profile" if row is None else "the worker is still starting")
        elif not environment.device.startswith("cuda"):
            self.say("Nsight Compute profiles GPUs, and this run is on the CPU")
        else:
            self.main.bring("profile")
            self.run_worker(self.engine.profile(row.case.id, None, full), exit_on_error=False)

    def action_export(self) -> None:
        export.ask(self)

    # -- copying

    async def action_copy_selected(self) -> None:
        if self.main.active == "iterations":
            await self.copy_entry()
            return
        row = self.main.results.selected
        if row is None:
            self.say("no row to copy")
            return
        await self.copy(clipboard_text.row(row), row.case.label)

    async def action_copy_table(self) -> None:
        rows = [self.board.row(case) for case in self.main.results.cases]
        if not rows:
            self.say("no row to copy")
            return
        await self.copy(clipboard_text.table(rows, self.board.summary), "the table")

    async def copy_entry(self) -> None:
        found = self.past.entry()
        if found is not None:
            await self.copy(found[1], f"entry {found[0]}")

    async def copy(self, text: str, what: str) -> None:
        if clipboard.fits_terminal(text):
            self.copy_to_clipboard(text)
        where = await asyncio.to_thread(clipboard.keep, text, self.engine.state, os.environ)
        self.tell(f"copied {what}: {where}")

    # -- the editor

    def error_place(self) -> Where:
        """What `e` opens: the failed build, the selected row's error, the first failed row's, or the solution."""
        failure = self.board.failure
        if failure is not None and failure.where is not None:
            return failure.where
        selected = self.main.results.selected
        for row in ([selected] if selected else []) + self.board.failed_rows():
            if row.result is not None and row.result.failed and row.result.where is not None:
                return row.result.where
        return Where(self.board.solution)

    async def action_edit(self) -> None:
        await self.open_editor(self.error_place())

    async def open_editor(self, where: Where) -> None:
        words = self._editor_words(where)
        if words is None:
            return
        try:
            # The engine goes on behind the editor, so nothing may be painted over it.
            with self.batch_update(), self.suspend():
                await editor.until_left(words)
        except SuspendNotSupported:
            self.tell(f"this terminal cannot be lent to an editor: open {where} yourself", "warning")
        except OSError as error:
            self.say(f"{words[0]} did not start ({error.strerror}): set EDITOR", "error")

    def _editor_words(self, where: Where) -> list[str] | None:
        name = editor.chosen(os.environ)
        try:
            return editor.command(name, Path(self.board.task.folder, where.file), where.line)
        except ValueError as error:
            self.say(f"EDITOR is {name!r}, which is no command ({error})", "error")
            return None
