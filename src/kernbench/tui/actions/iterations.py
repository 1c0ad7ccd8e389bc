"""Actions on earlier iterations: read, compare, restore, drop, undo. An action that cannot run shows why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from harness.shared.errors import UserError
from kernbench.events import Summary
from kernbench.tui.pages.dialogs import Confirm, Page
from kernbench.tui.pages.history import DiffPage, EntryPage, source_lines
from kernbench.tui.state.bench import Bench
from kernbench.tui.text.diff_text import Sources


class IterationActions:
    def __init__(self, bench: Bench, copy: Callable[[str, str], Awaitable[None]]) -> None:
        """`copy` takes text and a name for it."""
        self._bench, self._copy = bench, copy
        self._done: list[Callable[[], Awaitable[bool]]] = []
        """What undoes each restore and drop, the newest last; each says whether it did."""

    def show_entry(self) -> None:
        found = self.entry()
        if found is not None:
            self._bench.push_screen(EntryPage(*found, self, self._bench.ascii_only, self._reference()))

    def _reference(self, entry: Summary | None = None) -> str:
        """The name of an entry's source: its number, or its hash if two entries share the number."""
        entry = entry or self._bench.main.selected_entry
        assert entry is not None
        numbers = list(self._bench.engine.logbook.numbers())
        return entry.source[:8] if numbers.count(entry.iteration or 0) > 1 and entry.source else str(entry.iteration)

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

    def mark(self) -> None:
        bench = self._bench
        if bench.main.selected_entry is None:
            bench.say(f"no iterations yet: save {bench.board.solution} to make the first")
            return
        bench.main.mark_entry()
        names = [self._reference(item) for item in bench.main.marked_entries]
        rest = {0: "no iteration is marked", 1: "d compares it with the selected one", 2: "d compares them"}[len(names)]
        bench.say(f"marked {' and '.join(names)}: {rest}" if names else rest)

    def show_compared(self) -> None:
        """In the list of iterations: the two marked ones, older first, or the marked one and the selected one.
        Anywhere else, or without a mark: the best and the working copy."""
        main = self._bench.main
        chosen = [*main.marked_entries] if main.active == "iterations" else []
        if len(chosen) == 1 and main.selected_entry is not None:
            chosen.append(main.selected_entry)
        chosen.sort(key=lambda entry: (entry.iteration or 0, entry.at))
        self.show_diff(*([self._reference(entry) for entry in chosen] or ["best", "now"]))

    def show_diff(self, old: str, new: str) -> None:
        if self.sources(old) is None or self.sources(new) is None:
            return
        numbers = [str(number) for number in reversed(self._bench.engine.logbook.numbers())]
        choices = ["best", "last", *dict.fromkeys(numbers)]
        self._bench.push_screen(DiffPage(old, new, self.sources, choices, self._bench))

    def show_source(self, reference: str) -> None:
        sources = self.sources(reference)
        if sources is not None:
            self._bench.push_screen(Page(f"Source of {reference}", source_lines(sources)))

    def restore_selected(self) -> None:
        if self.entry() is not None:
            self.ask_restore(self._reference())

    def ask_restore(self, reference: str) -> None:
        question = f"Restore the source of iteration {reference}?"
        detail_words = "Saves a snapshot of all files first, then removes those added since. u undoes it."
        self._bench.push_screen(Confirm(question, detail_words), partial(self._restore_if, reference))

    def _restore_if(self, reference: str, yes: bool | None) -> None:
        if not yes:
            self._bench.say("nothing restored")
            return
        before = self._restore(reference)
        if before is not None:
            self._bench.close_pages()
        if before:
            self._done.append(lambda: self._restore_again(before))

    def _restore(self, reference: str) -> str | None:
        """The hash of what was there before, empty if nothing changed; None after saying why it was not restored."""
        bench = self._bench
        try:
            said, before = bench.engine.archive.restore(reference)
        except (UserError, OSError) as problem:
            bench.tell(str(problem), "error")
            return None
        bench.tell(said)
        return before

    async def _restore_again(self, before: str) -> bool:
        return self._restore(before) is not None

    def drop_selected(self) -> None:
        found = self.entry()
        if found is not None:
            self.ask_drop(found[0])

    def ask_drop(self, number: int) -> None:
        self._bench.run_worker(self._ask_drop(number), exit_on_error=False)

    async def _ask_drop(self, number: int) -> None:
        bench = self._bench
        try:
            doubt = await bench.engine.archive.doubt(number)
        except (UserError, OSError) as problem:
            bench.say(str(problem), "warning")
            return
        edited = f"Note: {doubt}. " if doubt else ""
        detail = f"{edited}Its run, source and text are kept, and its number is not reused. u puts it back."
        question = f"Drop entry {number} from ITERATIONS.md?"
        bench.push_screen(Confirm(question, detail), partial(self._drop_if, number))

    def _drop_if(self, number: int, yes: bool | None) -> None:
        if yes:
            self._bench.run_worker(self._drop(number), exit_on_error=False)
        else:
            self._bench.say("nothing dropped")

    async def _drop(self, number: int) -> None:
        bench = self._bench
        if await self._tell(bench.engine.archive.drop(number)):
            bench.close_pages()
            self._done.append(lambda: self._put_back(number))

    async def _put_back(self, number: int) -> bool:
        return await self._tell(self._bench.engine.archive.put_back(number))

    async def _tell(self, work: Awaitable[str]) -> bool:
        """Say what came of a change of the log, and show the list again."""
        bench = self._bench
        try:
            bench.tell(await work)
        except (UserError, OSError) as problem:
            bench.tell(str(problem), "error")
            return False
        bench.main.show_iterations()
        return True

    async def undo(self) -> None:
        """The last restore or drop that is not undone yet."""
        if not self._done:
            self._bench.say("nothing to undo: no restore or drop since the task was opened")
        elif await self._done[-1]():
            self._done.pop()

    def forget(self) -> None:
        """Another task was opened: what was done in this one cannot be undone there."""
        self._done.clear()
