"""The words that go with a run: its hypothesis, and the next step of the last entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernbench.tui.app import Workbench


class Notes:
    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    def ask_hypothesis(self) -> None:
        engine = self._bench.engine
        entry = engine.hypothesis_for()
        self._ask(
            "What does the next save try?" if entry is None else f"What did entry {entry} try?",
            engine.hypothesis,
            "16-byte loads halve the load instructions",
            [summary.hypothesis for summary in reversed(engine.iterations())],
            self._take_hypothesis,
        )

    def ask_next_step(self) -> None:
        engine = self._bench.engine
        earlier = [summary.next for summary in reversed(engine.iterations())]
        # What the last entry says now is there to be changed; what older ones say is a key away.
        self._ask("What comes next?", engine.next_now(), "eight rows per block", earlier, self._take_next_step)

    def _ask(
        self, title: str, value: str, example: str, earlier: Iterable[str], take: Callable[[str | None], None]
    ) -> None:
        from kernbench.tui.ask import Ask  # the editor widget is worth its import only now

        self._bench.push_screen(Ask(title, value, example, list(dict.fromkeys(text for text in earlier if text))), take)

    def _take_hypothesis(self, text: str | None) -> None:
        if text is None:
            return
        bench = self._bench
        answer = bench.engine.set_hypothesis(text)
        if bench.engine.hypothesis != text:  # else the status line shows it
            bench.say(answer)
        bench.main.iterations.show(bench.engine.iterations())
        bench.main.paint()

    def _take_next_step(self, text: str | None) -> None:
        if text is not None:
            self._bench.say(self._bench.engine.set_next(text))
