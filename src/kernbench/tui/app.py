"""The workbench: one screen over one engine.

The engine starts after the first paint, sends its events in this event loop, and closes however the app exits. Keys are
bindings of the screen; their actions are here, and a key that cannot work now shows why.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual.app import SuspendNotSupported, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from harness.shared.errors import UserError
from kernbench.events import Event, ProfileReady, RunFinished
from kernbench.machine.telemetry import Reader, Sample, Telemetry
from kernbench.settings import Settings
from kernbench.tui import textual_private, theme
from kernbench.tui.actions import draft_file, export, hangup, job_control, models
from kernbench.tui.actions.copying import Copying
from kernbench.tui.actions.editor import Editor, solution
from kernbench.tui.actions.iterations import IterationActions
from kernbench.tui.actions.notes import Notes
from kernbench.tui.actions.palette import commands
from kernbench.tui.actions.rows import RowActions
from kernbench.tui.actions.sweeping import Sweeping
from kernbench.tui.messages import EventsArrived, Sampled, Tasks
from kernbench.tui.pages import user_keys
from kernbench.tui.pages.dialogs import TO_SHELL, Choose
from kernbench.tui.pages.help import Help, key_rows
from kernbench.tui.panes import gpu
from kernbench.tui.safe_app import SafeApp
from kernbench.tui.screen import MainScreen
from kernbench.tui.state.bench import Severity
from kernbench.tui.state.board import Board
from kernbench.tui.state.engine_protocol import Engine
from kernbench.tui.text.spans import clean

SAID_WITH_A_CHANGE_SECONDS = 0.5


class Workbench(SafeApp[None], inherit_bindings=False):
    """Drops Textual's ctrl+q binding, which would quit while the user types and lose the text."""

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
        self.ascii_only = ascii_only
        self.set_class(ascii_only, "-ascii")
        self.settings = user_keys.renamed(settings or Settings())
        self._tasks = tasks
        self._inbox: deque[Event] = deque()
        self._said_at = 0.0
        self._telemetry = Telemetry(reader, self._sampled) if reader else None
        self.register_theme(theme.KERNBENCH)
        user_keys.check(self.settings, self.available_themes)
        self.theme = self.settings.theme or theme.default(os.environ, self.available_themes)
        self.set_keymap(self.settings.keys)
        self._take_engine(engine)
        self.copying = Copying(self, self.copy_to_clipboard)
        self.past = IterationActions(self, self.copying.copy)
        self.notes = Notes(self)
        self.rows = RowActions(self)
        self.sweeping = Sweeping(self)
        self.editor = Editor(self, self.lend_terminal)
        self.main = MainScreen(self, self.rows, self.past, self.editor, now)
        self.install_screen(Help(key_rows(self.get_key_display, self.settings.keys)), "help")

    def _take_engine(self, engine: Engine) -> None:
        self.engine = engine
        engine.notes.hypothesis = engine.notes.hypothesis or draft_file.read(engine.state)
        gpu_here = gpu.looks_present()
        if engine.archive.is_long:
            self.board = Board(engine.task, engine.environment, gpu_here=gpu_here)
            self.board.reading = True
        else:
            engine.archive.read()
            results, summary = engine.last_results(), engine.last_summary()
            self.board = Board(engine.task, engine.environment, results, summary, gpu_here)
        self.board.solution = solution(Path(engine.task.folder))
        self._inbox.clear()

    def get_default_screen(self) -> Screen[Any]:
        return self.main

    def on_mount(self) -> None:
        # After `fg`, Textual leaves the terminal blank until something changes.
        self.app_resume_signal.subscribe(self, lambda app: app.refresh(layout=True))
        self.screen_change_signal.subscribe(self, lambda screen: self.forget_words())
        self.screen_change_signal.subscribe(self, lambda screen: textual_private.forget_closed_widgets())
        self.theme_changed_signal.subscribe(self, lambda chosen: self._remember_theme(chosen.name))
        if warning := user_keys.doubtful(self.settings):
            self.say(warning, "warning")
        # A lost connection or a kill ends like `q`: the worker closes, and finished rows are on disk.
        for number in (signal.SIGHUP, signal.SIGTERM):
            with contextlib.suppress(RuntimeError, ValueError):
                asyncio.get_running_loop().add_signal_handler(number, self.exit)
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            hangup.watch_terminal(lambda: loop.call_soon_threadsafe(self.exit))
        self._connect()
        if self._telemetry is not None:
            self.call_after_refresh(self._telemetry.start)

    def _connect(self) -> None:
        engine = self.engine
        engine.listen(lambda event: self._hear(engine, event))
        engine.selected = self.board.cases[0].id if self.board.cases else None
        # The first paint must not wait for the worker.
        self.call_after_refresh(self.run_worker, partial(self._start, engine), exit_on_error=False)

    async def on_unmount(self) -> None:
        if self._telemetry is not None:
            self._telemetry.stop()
        for number in (signal.SIGHUP, signal.SIGTERM):
            with contextlib.suppress(RuntimeError, ValueError):
                asyncio.get_running_loop().remove_signal_handler(number)
        await self._leave(self.engine)
        if not self.is_headless and hangup.is_gone():
            hangup.end_now()

    async def _leave(self, engine: Engine) -> None:
        draft_file.keep(engine.state, engine.notes.hypothesis)
        await self.sweeping.end()
        await engine.close()

    async def _start(self, engine: Engine) -> None:
        try:
            await self._read_past(engine)
            if engine is self.engine:  # else another task was opened meanwhile, which starts by itself
                await engine.start()
                self._know_soon()
        except Exception as error:  # the screen stays up no matter how the engine fails
            self.say(f"cannot start the engine: {error}", "error")

    async def _read_past(self, engine: Engine) -> None:
        """Read a long log: the first paint did not wait for it. Then turn on the collector, which `open` turned off."""
        try:
            if self.board.reading:
                await asyncio.to_thread(engine.archive.read)
                if engine is self.engine:
                    self.main.remember()
        finally:
            if not gc.isenabled():
                if not gc.get_freeze_count():
                    gc.freeze()  # all of this stays, and a full collection would hold up a key for 50 ms and more
                gc.enable()

    def _hear(self, engine: Engine, event: Event) -> None:
        if engine is not self.engine:
            return  # from a task that is no longer open
        if not self._inbox:
            self.post_message(EventsArrived())
        self._inbox.append(event)

    def on_events_arrived(self) -> None:
        if not self.main.ready:
            return
        while self._inbox:
            event = self._inbox.popleft()
            self.main.show_event(event)
            self.sweeping.hear(event)
            if isinstance(event, RunFinished):
                draft_file.keep(self.engine.state, self.engine.notes.hypothesis)
                if 0 < self.settings.bell <= (event.summary.seconds or 0):
                    self.bell()
            if isinstance(event, ProfileReady):
                self._know_soon()
        self.main.paint_soon()

    def _know_soon(self) -> None:
        self.run_worker(self._know(self.engine), exit_on_error=False)

    async def _know(self, engine: Engine) -> None:
        """Tell the profile pane what the logs know of techniques; the thread for files reads them."""
        tried = await engine.archive.tried()
        if engine is self.engine and self.main.ready:
            self.main.profile.know(tried)

    def _sampled(self, sample: Sample) -> None:
        self.post_message(Sampled(sample))

    def on_sampled(self, event: Sampled) -> None:
        self.main.show_sample(event.sample)

    @property
    def settled(self) -> bool:
        """Every event of the engine is on the screen."""
        return not self._inbox and self.main.settled

    def forget_words(self) -> None:
        """Another screen opened: drop the messages of the one before, except those posted with the change."""
        if time.monotonic() - self._said_at > SAID_WITH_A_CHANGE_SECONDS:
            self.clear_notifications()

    def say(self, sentence: str, severity: Severity = "information") -> None:
        self._said_at = time.monotonic()
        self.clear_notifications()  # show only the newest: a second line would cover the tabs
        self.notify(clean(sentence), severity=severity, markup=False)

    def tell(self, sentence: str, severity: Severity = "information") -> None:
        """Show a sentence and keep it in the output pane: the user may need its path or command later."""
        self.say(sentence, severity)
        if self.main.ready:
            self.main.output.add(f"-- {sentence}")

    def _remember_theme(self, name: str) -> None:
        if problem := theme.remember(theme.remembered(os.environ), name):
            self.say(problem, "warning")
        elif (own := self.settings.theme) not in (None, name):
            self.say(f"{self.settings.path} sets {own}, which comes back at the next start; remove it to keep {name}")

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        return commands(
            partial(self.run_action, default_namespace=self.main),
            show_row=self.rows.show_row,
            show_entry=self.past.show_entry,
            copy_entry=self.past.copy_selected,
            restore_entry=self.past.restore_selected,
            drop_entry=self.past.drop_selected,
            change_theme=self.action_change_theme,
        )

    def close_pages(self) -> None:
        while len(self.screen_stack) > 1:
            self.pop_screen()

    # -- the run and its notes

    def action_rerun(self) -> None:
        self.engine.rerun()
        self.main.paint()

    def action_pause(self) -> None:
        self.engine.set_paused(not self.engine.paused)
        self.clear_notifications()  # the notice of a pending save is out of date
        self.main.paint()

    def action_hypothesis(self) -> None:
        self.notes.ask_hypothesis()

    def action_next_step(self) -> None:
        self.notes.ask_next_step()

    def action_baseline(self) -> None:
        choices = self.engine.baselines()
        if len(choices) < 2:
            self.say(f"the only baseline is {self.engine.baseline}")
            return
        self.push_screen(Choose("Compare with", choices, self.engine.baseline, "in use"), self._choose_baseline)

    def _choose_baseline(self, name: str | None) -> None:
        if name is not None and name != self.engine.baseline:
            try:
                self.engine.set_baseline(name)
            except UserError as problem:
                self.say(str(problem), "error")
            self.main.paint()

    def action_model(self) -> None:
        models.ask(self)

    async def action_quit(self) -> None:
        said = self.notes.on_leaving()
        self.exit(message=Text("\n".join(said)) if said else None)

    def action_help_quit(self) -> None:
        """ctrl+c with nothing selected: the user may want to quit."""
        self.say("ctrl+c copies text selected with the mouse; q on the main screen quits")

    def action_suspend_process(self) -> None:
        """Textual's default stops only this process."""
        try:
            with self.suspend():
                job_control.stop_job()
        except SuspendNotSupported:
            self.say("this terminal has no shell to suspend to", "warning")

    def action_help(self) -> None:
        self.push_screen("help")

    # -- other tasks

    def action_tasks(self) -> None:
        if self._tasks is None:
            self.say("cannot switch tasks with --state: that folder holds the runs of this task")
            return
        from kernbench.tui.pages.picker import TaskScreen

        rows = self._tasks.rows()
        self.push_screen(TaskScreen(rows, self.engine.task.folder), self._switch_soon)

    def _switch_soon(self, folder: str | None) -> None:
        if folder is not None and folder != self.engine.task.folder:
            self.say(f"opening {Path(folder).name}")
            # The message must be on the screen before the work begins.
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
        self.past.forget()
        await self.main.switch_task(self.board)
        self.clear_notifications()
        self._connect()
        await self._leave(before)

    # -- rows and entries

    def action_traceback(self) -> None:
        self.rows.show_traceback()

    def action_profile(self, full: bool) -> None:
        self.rows.profile(full)

    def action_sweep(self) -> None:
        self.sweeping.press()

    def action_diff(self) -> None:
        self.past.show_compared()

    def action_mark_entry(self) -> None:
        self.past.mark()

    def action_drop_entry(self) -> None:
        self.past.drop_selected()

    async def action_undo(self) -> None:
        await self.past.undo()

    def action_export(self) -> None:
        export.ask(self)

    async def action_copy_selected(self) -> None:
        if self.main.active == "iterations":
            await self.past.copy_selected()
        else:
            await self.copying.copy_row()

    async def action_copy_table(self) -> None:
        await self.copying.copy_table()

    async def action_edit(self) -> None:
        await self.editor.open(self.editor.error_place())

    @contextlib.contextmanager
    def lend_terminal(self) -> Iterator[None]:
        """For a program in the foreground: the engine keeps running, but nothing is painted."""
        with self.batch_update(), self.suspend():
            yield
