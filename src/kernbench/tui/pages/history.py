"""Pages about earlier iterations: an entry, its source, the diff of two sources."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.worker import WorkType

from harness.shared.errors import UserError
from kernbench.diagnosis.machine_code import KernelCode
from kernbench.tui.pages import entry_view, machine_view
from kernbench.tui.pages.dialogs import Choose, Page
from kernbench.tui.state.bench import Bench
from kernbench.tui.text import code_text, diff_text
from kernbench.tui.text.diff_text import Sources
from kernbench.tui.text.spans import Span, clean

LOOK_SECONDS = 1.0
"""How often the compared files are read again."""


class EntryActions(Protocol):
    """The actions of an entry's page; `reference` names the entry's source."""

    def show_diff(self, old: str, new: str) -> None: ...

    def show_source(self, reference: str) -> None: ...

    def ask_restore(self, reference: str) -> None: ...

    def ask_drop(self, number: int) -> None: ...

    async def copy_entry(self, number: int, text: str) -> None: ...


class EntryPage(Page):
    """One entry of ITERATIONS.md, with actions on its source."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "diff", "diff", tooltip="diff its source -> working copy", id="entry.diff"),
        Binding("v", "source", "source", tooltip="show its source", id="entry.source"),
        Binding("R", "restore", "restore", tooltip="restore its source", id="entry.restore"),
        Binding("D", "drop", "drop", tooltip="drop it from ITERATIONS.md", id="entry.drop"),
        Binding("y", "copy", "copy", tooltip="copy the entry as Markdown", id="entry.copy"),
    ]

    def __init__(
        self, number: int, text: str, actions: EntryActions, ascii_only: bool = False, reference: str = ""
    ) -> None:
        """`reference` names its source if the number is ambiguous."""
        super().__init__(f"Iteration {number}", [])
        self.number, self.text, self.reference = number, text, reference or str(number)
        self._actions, self._ascii_only = actions, ascii_only

    def compose(self) -> ComposeResult:
        self._lines = self._rendered()
        yield from super().compose()

    def on_resize(self) -> None:
        if (lines := self._rendered()) != self._lines:
            self._lines = lines
            self.show(lines)

    def _rendered(self) -> list[list[Span]]:
        return entry_view.lines(self.text, self.app.size.width - 4, self._ascii_only)

    def action_diff(self) -> None:
        self._actions.show_diff(self.reference, "now")

    def action_source(self) -> None:
        self._actions.show_source(self.reference)

    def action_restore(self) -> None:
        self._actions.ask_restore(self.reference)

    def action_drop(self) -> None:
        self._actions.ask_drop(self.number)

    async def action_copy(self) -> None:
        await self._actions.copy_entry(self.number, self.text)


class DiffPage(Page):
    """The diff of two sources; the user can choose another old one, and the page follows saved files."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "other", "other", tooltip="compare with another iteration", id="diff.other"),
        Binding("v", "view", "view", tooltip="two columns, one column, or machine code", id="diff.view"),
    ]

    def __init__(
        self, old: str, new: str, sources: Callable[[str], Sources | None], choices: Sequence[str], bench: Bench
    ) -> None:
        """`sources` returns None after showing why there are none; `choices` are the sources to compare with."""
        self._old, self._new = old, new
        self._sources, self._choices, self._bench = sources, choices, bench
        self._shown: tuple[Sources, Sources] | None = None
        """The two sources; the old one stays as it was when chosen, even if best changes."""
        self._columns: bool | None = None
        """The user's choice; None until then: two columns if they fit."""
        self._is_machine = False
        """Machine code is shown, not the sources."""
        self._code: tuple[list[KernelCode], list[KernelCode]] | str = ""
        """That of both, or a sentence on why it is not there."""
        super().__init__(_title(old, new), [])

    def on_mount(self) -> None:
        self._load()
        if self._new == "now":
            self.run_worker(self._follow(), exit_on_error=False)

    async def _follow(self) -> None:
        """A file may be missing while an editor replaces it; the next look finds it."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with contextlib.suppress(UserError, OSError):
                now = await asyncio.to_thread(self._bench.engine.archive.sources, self._new)
                if self._shown is not None and now != self._shown[1]:
                    self._shown = self._shown[0], now
                    self._fill()
                    self._compile()
                elif self._is_machine and isinstance(self._code, str):  # it is there once the run is over
                    await self._read_code()

    def _load(self) -> None:
        old, new = self._sources(self._old), self._sources(self._new)
        if old is not None and new is not None:
            self._shown = old, new
            self._fill()
            self._compile()

    def on_resize(self) -> None:
        self._fill()

    def action_view(self) -> None:
        """Two columns if they fit, one column, machine code, and round again."""
        if self._in_columns and not self._is_machine:
            self._columns = False
        elif not self._is_machine:
            self._is_machine = True
            self._compile()
        else:
            self._is_machine, self._columns = False, None
        self._fill()

    def _compile(self) -> None:
        """Read the machine code of both, if it is shown."""
        if self._is_machine:
            self._code = "reading the machine code"
            self._fill()
            self._begin(self._read_code, "code")

    def _begin(self, work: WorkType[None], group: str) -> None:
        """In place of what the group is still doing."""
        self.run_worker(work, exclusive=True, group=group, exit_on_error=False)

    async def _read_code(self) -> None:
        archive, before = self._bench.engine.archive, self._code
        try:
            old = await asyncio.to_thread(archive.machine_code, self._old)
            self._code = old, await asyncio.to_thread(archive.machine_code, self._new)
        except (UserError, OSError) as problem:
            self._code = str(problem)
        if self._code != before:
            self._fill()

    async def _show_code(self) -> None:
        """In a thread: the diff of two large kernels takes a second."""
        code, width, columns = self._code, self._width, self._columns_fit
        lines: Sequence[Sequence[Span]] = [[(code, "dim")]] if isinstance(code, str) else []
        if not isinstance(code, str):
            lines = await asyncio.to_thread(machine_view.lines, *code, width, columns)
        if self._is_machine:
            self.show(lines, f"{_title(self._old, self._new)}: machine code")

    def action_other(self) -> None:
        self.app.push_screen(Choose("Compare with", self._choices, self._old, "shown"), self._take)

    @property
    def _columns_fit(self) -> bool:
        return self.app.size.width >= diff_text.SIDE_BY_SIDE_FROM

    @property
    def _in_columns(self) -> bool:
        return self._columns_fit and self._columns is not False

    @property
    def _width(self) -> int:
        return max(self.app.size.width - 4, 20)

    def _take(self, name: str | None) -> None:
        if name is not None and self._sources(name) is not None:
            self._old = name
            self._load()

    def _fill(self) -> None:
        if self._shown is None:
            return
        if self._is_machine:
            self._begin(self._show_code, "shown")
        else:
            self.show(diff_text.lines(*self._shown, self._width, self._in_columns), _title(self._old, self._new))


def _title(old: str, new: str) -> str:
    return f"{_name(old)} -> {_name(new)}"


def _name(reference: str) -> str:
    return f"iteration {reference}" if reference.isdigit() else {"now": "working copy"}.get(reference, reference)


def source_lines(sources: Sources) -> list[list[Span]]:
    found: list[list[Span]] = []
    for name, text in sources.items():
        found.append([(clean(name), "head")])
        lines = code_text.colored(name, [clean(line) for line in text.splitlines()])
        found += [[(f"{number:>4} ", "dim"), *line] for number, line in enumerate(lines, start=1)]
        found.append([])
    return found[:-1]
