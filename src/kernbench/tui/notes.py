"""The words that go with a run: its hypothesis, and the next step of the last entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kernbench.tui import pending

if TYPE_CHECKING:
    from kernbench.events import Summary
    from kernbench.tui.app import Workbench
    from kernbench.tui.ask import Target

LATELY = 200
"""Iterations whose words are offered again."""


class Notes:
    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    def ask_hypothesis(self) -> None:
        remarks = self._bench.engine.remarks
        entry = remarks.hypothesis_for()
        targets = [self._coming()]
        if entry is not None:
            targets.append((f"entry {entry}", f"What did entry {entry} try?"))
        self._ask(
            targets,
            remarks.hypothesis,
            "16-byte loads halve the load instructions",
            [summary.hypothesis for summary in self._lately()],
            partial(self._take_hypothesis, entry),
        )

    def _coming(self) -> Target:
        """What words given now go to, if not to an entry: a save that runs without any takes them too."""
        run = self._bench.board.run
        if run is not None and run.reason == "save" and not run.hypothesis:
            return "the run in progress", "What does the run in progress try?"
        return "the next save", "What does the next save try?"

    def ask_next_step(self) -> None:
        earlier = [summary.next for summary in self._lately()]
        # What the last entry says now is there to be changed; what older ones say is a key away.
        target = ("", "What comes next?")
        now = self._bench.engine.remarks.next_now()
        self._ask([target], now, "eight rows per block", earlier, self._take_next_step)

    def _lately(self) -> list[Summary]:
        """Newest first, as far back as somebody may want to page."""
        return list(reversed(self._bench.engine.logbook.iterations()[-LATELY:]))

    def _ask(
        self,
        targets: Sequence[Target],
        value: str,
        example: str,
        earlier: Iterable[str],
        take: Callable[[str, str], None],
    ) -> None:
        from kernbench.tui.ask import Ask  # the editor widget is worth its import only now

        dialog = Ask(targets, value, example, list(dict.fromkeys(text for text in earlier if text)))
        self._bench.push_screen(dialog, lambda text: None if text is None else take(dialog.target, text))

    def _take_hypothesis(self, entry: int | None, target: str, text: str) -> None:
        bench = self._bench
        engine, remarks = bench.engine, bench.engine.remarks
        if entry is not None and target != f"entry {entry}":
            remarks.hypothesis = text  # `set_hypothesis` would write to the entry
        else:
            answer = remarks.set_hypothesis(text)
            if entry is not None or remarks.hypothesis != text:  # else the status line shows it
                bench.say(answer)
        pending.keep(engine.state, remarks.hypothesis)
        bench.main.iterations.show(engine.logbook.iterations())
        bench.main.paint()

    def _take_next_step(self, target: str, text: str) -> None:
        self._bench.say(self._bench.engine.remarks.set_next(text))
