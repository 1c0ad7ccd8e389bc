"""The notes of a run: its hypothesis, and the next step of the last entry."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from harness.shared import format as fmt
from kernbench.events import Summary
from kernbench.tui.actions import draft_file
from kernbench.tui.state.bench import Bench
from kernbench.tui.text.status_text import quoted

if TYPE_CHECKING:
    from kernbench.tui.pages.text_prompt import Target  # imported only when the box opens

RECENT_ENTRIES = 200
"""How many iterations offer their texts again."""


class Notes:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._drafts: dict[tuple[str, str], str] = {}
        """Unsaved text, by task folder and box."""

    def ask_hypothesis(self) -> None:
        remarks = self._bench.engine.notes
        entry, count, before, run = remarks.hypothesis_for(), remarks.made(), remarks.hypothesis, self._bench.board.run
        under_way = run.run if run is not None and run.hypothesis else ""

        def take(target: str, text: str) -> None:
            """The box may have been open for a while: keep the target it named, even if that save has run since."""
            named = entry if target == f"entry {entry}" else remarks.entry_after(count, besides=under_way)
            self._bench.run_worker(self._take_hypothesis(named, text, before), exit_on_error=False)

        targets = [self._coming()]
        if entry is not None:
            targets.append((f"entry {entry}", f"What did entry {entry} try?"))
        example = "16-byte loads halve the load instructions"
        earlier = [summary.hypothesis for summary in self._lately()]
        self._ask("hypothesis", targets, before, example, earlier, take)

    def _coming(self) -> Target:
        """Where text typed now goes, if not to an entry: a running save without a hypothesis accepts it too."""
        run = self._bench.board.run
        if run is not None and run.reason == "save" and not run.hypothesis:
            return "the run in progress", "What are you trying in this run?"
        return "the next save", "What are you trying next?"

    def _why_no_entry(self) -> str:
        """Why a hypothesis can only go to the next run."""
        last = next(iter(self._lately()), None)
        if last is None:
            return "no entry yet: this goes with the next save"
        if last.hypothesis:
            return f"entry {last.iteration} already has a hypothesis: this goes with the next save"
        return f"there was a save after entry {last.iteration}: this goes with that save"

    def ask_next_step(self) -> None:
        earlier = [summary.next for summary in self._lately()]
        # The box opens with the last entry's text; older texts are one key away.
        target = ("", "What comes next?")
        now = self._bench.engine.notes.next_now()
        self._ask("next step", [target], now, "eight rows per block", earlier, self._take_next_step)

    def unsaved(self) -> list[str]:
        """Text typed in a box that was closed without saving."""
        return list(self._drafts.values())

    def on_leaving(self) -> list[str]:
        """One sentence about what was logged, and one for each text that is not in an entry yet."""
        remarks = self._bench.engine.notes
        logged = remarks.logged()
        said = [self._logged(logged)] if logged else []
        said += [f"kept for next time: hypothesis {quoted(remarks.hypothesis)}"] if remarks.hypothesis else []
        said += [f"not in an entry yet: next step {quoted(remarks.next_step)}"] if remarks.next_step else []
        return said + [f"typed but not saved: {quoted(draft)}" for draft in self.unsaved()]

    def _logged(self, made: int) -> str:
        engine = self._bench.engine
        path, best = os.path.join(engine.task.folder, "ITERATIONS.md"), engine.logbook.best_now()
        with contextlib.suppress(OSError):  # the current folder may be gone
            path = min(path, os.path.relpath(path), key=len)
        has_entry = best is not None and best.iteration is not None and not best.dropped
        number = f"#{best.iteration} " if best is not None and has_entry else ""
        known = f"; best: {number}{fmt.times(best.geomean)}" if best is not None and best.geomean else ""
        return f"{fmt.plural(made, 'iteration')} logged in {path}{known}"

    def _lately(self) -> list[Summary]:
        """The last iterations, newest first."""
        return list(reversed(self._bench.engine.logbook.iterations()[-RECENT_ENTRIES:]))

    def _ask(
        self,
        box: str,
        targets: Sequence[Target],
        value: str,
        example: str,
        earlier: Iterable[str],
        take: Callable[[str, str], None],
    ) -> None:
        from kernbench.tui.pages.text_prompt import Ask

        key = (self._bench.engine.task.folder, box)
        draft = self._drafts.pop(key, "")
        others = list(dict.fromkeys(text for text in ([value, *earlier] if draft else earlier) if text))
        only_one = self._why_no_entry() if box == "hypothesis" and len(targets) == 1 else ""
        dialog = Ask(targets, draft or value, example, others, only_one)

        def left(text: str | None) -> None:
            if text is not None:
                take(dialog.target, text)
            elif dialog.draft not in ("", value):
                self._drafts[key] = dialog.draft

        self._bench.push_screen(dialog, left)

    async def _take_hypothesis(self, number: int | None, text: str, before: str) -> None:
        bench = self._bench
        engine, remarks = bench.engine, bench.engine.notes
        # In a thread: another process may hold the lock of ITERATIONS.md.
        answer = await asyncio.to_thread(remarks.set_hypothesis, number, text, before)
        if number is not None or remarks.hypothesis != text:  # else the status line shows it
            bench.say(answer)
        draft_file.keep(engine.state, remarks.hypothesis)
        bench.main.show_iterations()
        bench.main.paint()

    def _take_next_step(self, target: str, text: str) -> None:
        self._bench.run_worker(self._set_next_step(text), exit_on_error=False)

    async def _set_next_step(self, text: str) -> None:
        self._bench.say(await asyncio.to_thread(self._bench.engine.notes.set_next, text))
