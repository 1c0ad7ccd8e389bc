"""`S`: a sweep over constants of the solution, with its progress in the status line. A save or `S` ends it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from harness.shared.errors import UserError
from kernbench import crash_report
from kernbench.events import Event, RunStarted
from kernbench.tui.state.bench import Bench

if TYPE_CHECKING:
    from kernbench.sweep.live_sweep import LiveSweep  # imported only when a sweep is asked for


class Sweeping:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._running: asyncio.Task[None] | None = None
        self._ended: LiveSweep | None = None
        """Its table has not been shown yet."""
        self._by_save = False
        self._is_shown = True
        """Whether what the sweep came to is wanted: not when the task is being closed."""
        self._last_values = ""

    def press(self) -> None:
        """Ends the sweep that runs, shows the table of the one that ended, or asks for a new one."""
        if self._running is not None:
            _cancel(self._running)
        elif self._ended is not None:
            self._show(self._ended)
        elif self._may_begin():
            self._ask()

    def _may_begin(self) -> bool:
        """Says why not: one thing at a time is timed."""
        board, said = self._bench.board, ""
        if board.environment is None or board.run is not None:
            said = "a run is in progress: sweep when it has ended" if board.run else "the worker is starting"
        elif self._bench.engine.supervisor.is_gpu_lent:
            said = "a profile is being taken: sweep when it has ended"
        elif board.models.running:
            said = "a model's step is running: sweep when it has ended"
        if said:
            self._bench.say(said)
        return not said

    def hear(self, event: Event) -> None:
        """A run of the workbench comes first."""
        if isinstance(event, RunStarted) and self._running is not None:
            self._by_save = True
            _cancel(self._running)

    async def end(self) -> None:
        """Ends the sweep and waits until its worker is gone: the task is being closed."""
        running, self._ended = self._running, None
        if running is not None:
            self._is_shown = False
            _cancel(running)
            await asyncio.wait([running])

    def _ask(self) -> None:
        """At once, so that keys typed ahead reach the dialog; it looks for the constants itself."""
        from kernbench.sweep.live_sweep import constants_of
        from kernbench.tui.pages.sweep_pages import AskValues

        engine = self._bench.engine

        def look() -> dict[str, tuple[str, str]]:
            return {name: (place.text, str(place)) for name, place in constants_of(engine.task, engine.state).items()}

        self._bench.push_screen(AskValues(look, self._last_values), self._start)

    def _start(self, text: str | None) -> None:
        if not text:
            return
        self._last_values = text
        if not self._may_begin():  # since the dialog was opened, a save may have come
            return
        self._by_save, self._is_shown = False, True
        self._running = asyncio.get_running_loop().create_task(self._run(text))

    async def _run(self, text: str) -> None:
        from kernbench.sweep.live_sweep import LiveSweep

        bench, engine = self._bench, self._bench.engine
        sweep: LiveSweep | None = None
        try:
            self._progress("starting")
            sweep = await asyncio.to_thread(LiveSweep, engine.task, engine.state, engine.options, text)
            await sweep.run(engine.supervisor, self._progress)
        except asyncio.CancelledError:
            pass  # by a save or a key: the table has what was measured
        except (UserError, OSError) as problem:
            sweep = None
            bench.tell(f"no sweep: {problem}", "error")
        except Exception as problem:
            sweep = None
            bench.tell(crash_report.sentence(problem), "error")
        finally:
            self._running = None
            self._progress("")
        if sweep is not None and self._is_shown:
            self._over(sweep)

    def _over(self, sweep: LiveSweep) -> None:
        with contextlib.suppress(OSError):
            sweep.save_report()
        bench = self._bench
        if self._by_save or not bench.main.is_current:
            self._ended = sweep
            said = "a new run ended the sweep" if self._by_save else f"the sweep is over: {sweep.report.sentence}"
            bench.tell(f"{said}; S shows its table")
            return
        self._show(sweep)

    def _show(self, sweep: LiveSweep) -> None:
        from kernbench.tui.pages.sweep_pages import SweepPage

        self._ended = None
        page = SweepPage(sweep.lines(self._bench.ascii_only), sweep.may_write)

        def closed(_answer: None) -> None:
            if page.is_wanted:
                self._bench.run_worker(self._write(sweep), exit_on_error=False)

        self._bench.push_screen(page, closed)

    async def _write(self, sweep: LiveSweep) -> None:
        try:
            self._bench.tell(await asyncio.to_thread(sweep.write))
        except (UserError, OSError) as problem:
            self._bench.tell(f"nothing was written: {problem}", "error")

    def _progress(self, said: str) -> None:
        self._bench.board.sweep = said
        if self._bench.main.ready:
            self._bench.main.paint_soon()


def _cancel(running: asyncio.Task[None]) -> None:
    """Once: a second time would interrupt the end of its worker, which would be left behind."""
    if not running.cancelling():
        running.cancel()
