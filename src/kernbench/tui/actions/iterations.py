"""Actions on earlier iterations: read, compare, restore. An action that cannot run shows why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from harness.shared.errors import UserError
from kernbench.tui.pages.dialogs import Confirm, Page
from kernbench.tui.pages.history import DiffPage, EntryPage, source_lines
from kernbench.tui.state.bench import Bench
from kernbench.tui.text.diff_text import Sources


class IterationActions:
    def __init__(self, bench: Bench, copy: Callable[[str, str], Awaitable[None]]) -> None:
        """`copy` takes text and a name for it."""
        self._bench, self._copy = bench, copy

    def show_entry(self) -> None:
        found = self.entry()
        if found is not None:
            self._bench.push_screen(EntryPage(*found, self, self._bench.ascii_only, self._reference(found[0])))

    def _reference(self, number: int) -> str:
        """The name of the selected entry's source: its number, or its hash if two entries share the number."""
        summary, numbers = self._bench.main.selected_entry, self._bench.engine.logbook.numbers()
        return summary.source[:8] if summary and list(numbers).count(number) > 1 and summary.source else str(number)

    def entry(self) -> tuple[int, str] | None:
        """Number and text of the selected entry, or None after showing why there is none."""
        bench, summary = self._bench, self._bench.main.selected_entry
        if summary is None or summary.iteration is None:
            bench.say(f"no iterations yet: save {bench.board.solution} to make the first")
            return None
        try:
            return summary.iteration, bench.engine.logbook.text(summary.iteration, summary.source, summary.at)
        except (OSError, LookupError) as error:
            bench.say(f"cannot read iteration {summary.iteration}: {error}", "error")
            return None

    async def copy_selected(self) -> None:
        found = self.entry()
        if found is not None:
            await self.copy_entry(*found)

    async def copy_entry(self, number: int, text: str) -> None:
        await self._copy(text, f"entry {number}")

    def sources(self, reference: str) -> Sources | None:
        """None after showing why there are none."""
        try:
            return self._bench.engine.archive.sources(reference)
        except (UserError, OSError) as problem:
            self._bench.say(str(problem), "warning")
            return None

    def show_diff(self, old: str, new: str) -> None:
        if self.sources(old) is None:
            return
        numbers = [str(number) for number in reversed(self._bench.engine.logbook.numbers())]
        choices = ["best", "last", *dict.fromkeys(numbers)]
        self._bench.push_screen(DiffPage(old, new, self.sources, choices, self._bench))

    def show_source(self, reference: str) -> None:
        sources = self.sources(reference)
        if sources is not None:
            self._bench.push_screen(Page(f"Source of {reference}", source_lines(sources)))

    def restore_selected(self) -> None:
        found = self.entry()
        if found is not None:
            self.ask_restore(self._reference(found[0]))

    def ask_restore(self, reference: str) -> None:
        question = f"Restore the source of iteration {reference}?"
        detail_words = "Saves a snapshot of all files first, then removes those added since."
        self._bench.push_screen(Confirm(question, detail_words), partial(self._restore, reference))

    def _restore(self, reference: str, yes: bool | None) -> None:
        bench = self._bench
        if not yes:
            bench.say("nothing restored")
            return
        try:
            bench.tell(bench.engine.archive.restore(reference))
        except (UserError, OSError) as problem:
            bench.tell(str(problem), "error")
            return
        bench.close_pages()
