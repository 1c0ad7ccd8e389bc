"""The workbench: one screen over one engine.

The engine is started after the first paint, speaks in this event loop, and is closed when the app leaves, however it
leaves. Keys are bindings of the screen; what they do is here, and a key that cannot work now says why.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App, SuspendNotSupported, SystemCommand
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen

from harness.records import Where
from kernbench.events import Event
from kernbench.tui import detail, editor
from kernbench.tui.board import Board
from kernbench.tui.dialogs import Ask, Choose, Page
from kernbench.tui.engine import Engine
from kernbench.tui.help import key_lines, main_bindings
from kernbench.tui.screen import MainScreen
from kernbench.tui.spans import clean
from kernbench.tui.theme import KERNBENCH


class Heard(Message):
    """The engine said something: it waits in the inbox."""


class Workbench(App[None]):
    CSS_PATH = "kernbench.tcss"
    TITLE = "kernbench"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+z", "suspend_process", "to the shell", show=False)]

    def __init__(
        self, engine: Engine, ascii_only: bool = False, now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    ) -> None:
        super().__init__()
        self.engine = engine
        self.now = now
        self.ascii_only = ascii_only
        self.board = Board(engine.task, engine.environment, engine.last_results(), engine.last_summary())
        self.board.solution = editor.solution(Path(engine.task.folder))
        self.main = MainScreen(self.board, ascii_only)
        self._inbox: deque[Event] = deque()
        self.register_theme(KERNBENCH)
        self.theme = KERNBENCH.name

    def get_default_screen(self) -> Screen[Any]:
        return self.main

    def on_mount(self) -> None:
        self.engine.listen(self._hear)
        # Textual leaves the terminal blank after `fg` until something changes.
        self.app_resume_signal.subscribe(self, lambda app: app.refresh(layout=True))
        self.engine.selected = self.board.cases[0].id if self.board.cases else None
        # The first paint must not wait for the worker.
        self.call_after_refresh(self.run_worker, self._start, exit_on_error=False)

    async def on_unmount(self) -> None:
        await self.engine.close()

    async def _start(self) -> None:
        try:
            await self.engine.start()
        except Exception as error:  # whatever the engine does, the screen stays up
            self.say(f"the engine could not start: {error}", "error")

    def _hear(self, event: Event) -> None:
        if not self._inbox:
            self.post_message(Heard())
        self._inbox.append(event)

    def on_heard(self) -> None:
        while self._inbox:
            self.main.take(self._inbox.popleft())
        self.main.paint_soon()

    @property
    def settled(self) -> bool:
        """All that the engine said is on the screen."""
        return not self._inbox and self.main.settled

    def say(self, sentence: str, severity: Any = "information") -> None:
        self.notify(clean(sentence), severity=severity, markup=False)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        for binding in main_bindings():
            yield SystemCommand(binding.description, binding.tooltip, partial(self._run_on_main, binding.action))
        yield SystemCommand("row", "everything known of the selected row", self.show_row)
        yield SystemCommand("entry", "the selected entry of ITERATIONS.md", self.show_iteration)
        yield SystemCommand("theme", "choose colours; ansi themes keep the terminal's own", self.action_change_theme)

    async def _run_on_main(self, action: str) -> None:
        await self.run_action(action, self.main)

    # -- keys

    def action_rerun(self) -> None:
        self.engine.rerun()
        self.main.paint()

    def action_pause(self) -> None:
        self.engine.set_paused(not self.engine.paused)
        self.main.paint()

    def action_hypothesis(self) -> None:
        ask = Ask("What does the next save try?", self.engine.hypothesis, "16-byte loads halve the load instructions")
        self.push_screen(ask, partial(self._answer, self.engine.set_hypothesis))

    def action_next_step(self) -> None:
        ask = Ask("What comes next?", self.engine.next_step, "eight rows per block")
        self.push_screen(ask, partial(self._answer, self.engine.set_next))

    def _answer(self, change: Callable[[str], str], text: str | None) -> None:
        if text is not None:
            self.say(change(text))
            self.main.paint()

    def action_baseline(self) -> None:
        choices = self.engine.baselines()
        if len(choices) < 2:
            self.say(f"there is no other baseline than {self.engine.baseline}")
            return
        self.push_screen(Choose("Compare with", choices, self.engine.baseline), self._choose_baseline)

    def _choose_baseline(self, name: str | None) -> None:
        if name is not None and name != self.engine.baseline:
            self.engine.set_baseline(name)
            self.main.paint()

    def action_help(self) -> None:
        self.push_screen(Page("Keys", key_lines(self.get_key_display)))

    def show_row(self) -> None:
        row = self.main.results.selected
        if row is None:
            self.say("the task has no rows")
            return
        self.push_screen(Page(clean(row.case.label), detail.lines(row, self.ascii_only), about=row.case.id))

    def show_iteration(self) -> None:
        summary = self.main.iterations.selected
        if summary is None or summary.iteration is None:
            self.say(f"no iterations yet: save {self.board.solution} to make the first")
            return
        try:
            text = self.engine.iteration_text(summary.iteration)
        except (OSError, LookupError) as error:
            self.say(f"iteration {summary.iteration} cannot be read: {error}", "error")
            return
        lines = [[(clean(line), "")] for line in text.splitlines()]
        self.push_screen(Page(f"Iteration {summary.iteration}", lines))

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
        where = self.error_place()
        words = self._editor_words(where)
        if words is None:
            return
        try:
            # The engine goes on behind the editor, so nothing may be painted over it.
            with self.batch_update(), self.suspend():
                await _until_left(words)
        except SuspendNotSupported:
            self.say(f"this terminal cannot be lent to an editor: open {where} yourself", "warning")
        except OSError as error:
            self.say(f"{words[0]} did not start ({error.strerror}): set EDITOR", "error")

    def _editor_words(self, where: Where) -> list[str] | None:
        name = editor.chosen(os.environ)
        try:
            return editor.command(name, Path(self.board.task.folder, where.file), where.line)
        except ValueError as error:
            self.say(f"EDITOR is {name!r}, which is no command ({error})", "error")
            return None


async def _until_left(words: list[str]) -> None:
    """Run a program in the foreground; ctrl+c there is its own affair."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        process = await asyncio.create_subprocess_exec(*words)
        await process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
