"""What can be done with earlier iterations: read, compare, bring back. What is not here says why."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from harness.shared.errors import UserError
from kernbench.tui.pages.dialogs import Confirm, Page
from kernbench.tui.pages.history import DiffPage, EntryPage, source_lines
from kernbench.tui.text.diff_text import Sources

if TYPE_CHECKING:
    from kernbench.tui.app import Workbench


class Past:
    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    def show_entry(self) -> None:
        found = self.entry()
        if found is not None:
            self._bench.push_screen(EntryPage(*found, self._bench.ascii_only, self._reference(found[0])))

    def _reference(self, number: int) -> str:
        """What names the source of the selected entry: its hash, where two entries have one number."""
        summary, numbers = self._bench.main.iterations.selected, self._bench.engine.logbook.numbers()
        return summary.source[:8] if summary and list(numbers).count(number) > 1 and summary.source else str(number)

    def entry(self) -> tuple[int, str] | None:
        """Number and text of the selected entry; None after saying why there is none."""
        summary = self._bench.main.iterations.selected
        if summary is None or summary.iteration is None:
            self._bench.say(f"no iterations yet: save {self._bench.board.solution} to make the first")
            return None
        try:
            return summary.iteration, self._bench.engine.logbook.text(summary.iteration, summary.source, summary.at)
        except (OSError, LookupError) as error:
            self._bench.say(f"iteration {summary.iteration} cannot be read: {error}", "error")
            return None

    def sources(self, reference: str) -> Sources | None:
        try:
            return self._bench.engine.archive.sources(reference)
        except (UserError, OSError) as problem:
            self._bench.say(str(problem), "warning")
            return None

    def show_diff(self, old: str, new: str) -> None:
        if self.sources(old) is None:
            return
        numbers = [str(number) for number in reversed(self._bench.engine.logbook.numbers())]
        self._bench.push_screen(DiffPage(old, new, self.sources, ["best", "last", *dict.fromkeys(numbers)]))

    def show_source(self, reference: str) -> None:
        sources = self.sources(reference)
        if sources is not None:
            self._bench.push_screen(Page(f"Source of {reference}", source_lines(sources)))

    def restore_selected(self) -> None:
        found = self.entry()
        if found is not None:
            self.ask_restore(self._reference(found[0]))

    def ask_restore(self, reference: str) -> None:
        question = f"Bring the source of iteration {reference} back?"
        detail_words = "What is there now is kept as a snapshot; the task's own files stay."
        self._bench.push_screen(Confirm(question, detail_words), partial(self._restore, reference))

    def _restore(self, reference: str, yes: bool | None) -> None:
        if not yes:
            self._bench.say("nothing was restored")
            return
        try:
            self._bench.tell(self._bench.engine.archive.restore(reference))
        except (UserError, OSError) as problem:
            self._bench.tell(str(problem), "error")
            return
        while len(self._bench.screen_stack) > 1:
            self._bench.pop_screen()
