"""`y` and `Y`: copy text to the terminal's clipboard and to a file, which works on every terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from kernbench.machine import clipboard
from kernbench.machine.plain_text import plain
from kernbench.tui.state.bench import Bench
from kernbench.tui.text import clipboard_text


class Copying:
    def __init__(self, bench: Bench, to_terminal: Callable[[str], None]) -> None:
        """`to_terminal` asks the terminal to put text on its clipboard."""
        self._bench, self._to_terminal = bench, to_terminal

    async def copy_row(self) -> None:
        row = self._bench.main.selected_row
        if row is None:
            self._bench.say("no row to copy")
            return
        await self.copy(clipboard_text.row(row), row.case.label)

    async def copy_table(self) -> None:
        rows = self._bench.main.shown_rows
        if not rows:
            self._bench.say("no row to copy")
            return
        await self.copy(clipboard_text.table(rows, self._bench.board.summary), "the table")

    async def copy(self, text: str, what: str) -> None:
        """Copy text and show where it went; `what` names it. Drops control characters, which a shell would obey."""
        text = plain(text)
        if clipboard.fits_terminal(text):
            self._to_terminal(text)
        said = await asyncio.to_thread(clipboard.keep, text, what, self._bench.engine.state, os.environ)
        self._bench.tell(said)
