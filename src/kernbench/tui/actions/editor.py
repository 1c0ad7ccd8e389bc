"""`e`: open the user's editor at the line that failed, and wait until it exits."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from textual.app import SuspendNotSupported

from harness.shared.errors import Where
from kernbench.tui.state.bench import Bench

_PLUS = frozenset({"vi", "vim", "nvim", "view", "nano", "emacs", "emacsclient", "micro", "kak", "joe", "ne", "mg"})
_COLON = frozenset({"hx", "helix", "subl", "zed"})
_GOTO = frozenset({"code", "code-insiders", "codium", "cursor"})


def solution(folder: Path) -> str:
    """The file the user edits: the kernel's source if solution.py only loads it."""
    kernels = (name for name in ("solution.cu", "solution.cpp") if (folder / name).is_file())
    return next(kernels, "solution.py")


def chosen(environ: Mapping[str, str]) -> str:
    return environ.get("EDITOR") or environ.get("VISUAL") or "vi"


def command(editor: str, path: Path, line: int | None) -> list[str]:
    """The command line; an unknown editor opens the file without the line number."""
    words = shlex.split(editor)
    name = Path(words[0]).name if words else "vi"
    words = words or ["vi"]
    if line is None:
        return [*words, str(path)]
    if name in _PLUS:
        return [*words, f"+{line}", str(path)]
    if name in _COLON:
        return [*words, f"{path}:{line}"]
    if name in _GOTO:
        return [*words, "-g", f"{path}:{line}"]
    return [*words, str(path)]


async def until_left(words: list[str]) -> None:
    """Run a program in the foreground; ctrl+c goes to it alone."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        process = await asyncio.create_subprocess_exec(*words)
        await process.wait()
    finally:
        signal.signal(signal.SIGINT, before)


class Editor:
    def __init__(self, bench: Bench, lend_terminal: Callable[[], AbstractContextManager[None]]) -> None:
        """`lend_terminal` stops painting while another program uses the terminal."""
        self._bench, self._lend_terminal = bench, lend_terminal

    def error_place(self) -> Where:
        """What `e` opens: the failed build, the selected row's error, the first failed row's, or the solution."""
        board, selected = self._bench.board, self._bench.main.selected_row
        if board.failure is not None and board.failure.where is not None:
            return board.failure.where
        for row in ([selected] if selected else []) + board.failed_rows():
            if row.result is not None and row.result.failed and row.result.where is not None:
                return row.result.where
        return Where(board.solution)

    async def open(self, where: Where) -> None:
        words = self._words(where)
        if words is None:
            return
        try:
            with self._lend_terminal():
                await until_left(words)
        except SuspendNotSupported:
            self._bench.tell(f"cannot hand this terminal to an editor: open {where} yourself", "warning")
        except OSError as error:
            self._bench.say(f"cannot start {words[0]} ({error.strerror}): set EDITOR", "error")

    def _words(self, where: Where) -> list[str] | None:
        """The command, or None after showing why there is none."""
        name = chosen(os.environ)
        try:
            return command(name, Path(self._bench.board.task.folder, where.file), where.line)
        except ValueError as error:
            self._bench.say(f"EDITOR={name!r} is not a valid command ({error})", "error")
            return None
