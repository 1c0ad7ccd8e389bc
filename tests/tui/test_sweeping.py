"""`S`: a sweep from the screen, over a real session and the fake harness; a save wins, and only `w` writes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from harness.shared import taskfile
from kernbench.engine.jobs import Options
from kernbench.engine.session import Session
from kernbench.events import ModelsChanged, RunFinished
from kernbench.sweep.live_sweep import LiveSweep
from kernbench.tui.app import Workbench
from kernbench.tui.pages.sweep_pages import AskValues, SweepPage
from tests import FAKE
from tests.sessions import PATIENT, write
from tests.tui.scene import H200, OWN_COLOURS, FakeEngine, make_app, screen_text, until

pytestmark = pytest.mark.anyio


class Opened:
    def __init__(self, app: Workbench, pilot: Pilot[None], folder: Path) -> None:
        self.app, self.pilot, self.folder = app, pilot, folder
        self.finished: list[RunFinished] = []
        self.stages: list[str] = []

    async def until(self, holds: object) -> None:
        await until(self.pilot, holds)  # type: ignore[arg-type]

    async def sweep(self, values: str) -> None:
        """Opens the dialog and starts a sweep."""
        await self.pilot.press("S")
        await self.until(lambda: isinstance(self.app.screen, AskValues))
        await self.pilot.press(*values, "enter")

    async def hang(self) -> None:
        """Starts a sweep whose variant hangs, without a deadline that would end it."""
        self.stages.clear()
        await self.sweep('DO="hang"')
        await self.until(lambda: any(stage.startswith("the source as it is, ") for stage in self.stages))

    @property
    def solution(self) -> str:
        return (self.folder / "solution.py").read_text()


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Opened]:
    """The workbench, once its first run has ended."""
    options = Options(harness=FAKE, spares=False, floors=False, confirm=False, standby=False, deadlines=PATIENT)
    session = Session(taskfile.load(folder), folder / ".kernbench", options)
    app = Workbench(session, settings=OWN_COLOURS)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        it = Opened(app, pilot, folder)
        session.listen(lambda event: it.finished.append(event) if isinstance(event, RunFinished) else None)
        before = app.sweeping._progress
        app.sweeping._progress = lambda said: (it.stages.append(said), before(said))[1]  # type: ignore[method-assign]
        await it.until(lambda: it.finished and app.board.run is None)
        assert it.finished
        yield it


async def test_the_dialog_lists_constants_and_the_table_offers_the_winner(folder: Path) -> None:
    async with opened(folder) as it:
        await it.pilot.press("S")
        await it.until(lambda: "TIME_US = 50.0  solution.py:2" in screen_text(it.app))
        assert "TIME_US = 50.0  solution.py:2" in screen_text(it.app)
        await it.pilot.press(*"TIME_US=40.0,20.0", "enter")
        await it.until(lambda: "is the fastest" in screen_text(it.app))
        shown = screen_text(it.app)
        assert "TIME_US=20.0 is the fastest: 2.500x" in shown
        assert it.stages[0] == "starting"
        assert "final, 1/2, TIME_US=40.0" in it.stages
        assert it.stages[-1] == it.app.board.sweep == ""
        assert "sweep of TIME_US: TIME_US=20.0 is the fastest of 3" in (it.folder / "ITERATIONS.md").read_text()
        await it.pilot.press("escape")
        await it.until(lambda: it.app.main.is_current)
        assert "TIME_US = 50.0" in it.solution  # closing the table writes nothing
        await it.pilot.press("S")
        await it.until(lambda: isinstance(it.app.screen, AskValues))
        await it.pilot.press("enter")  # the same values again
        await it.until(lambda: isinstance(it.app.screen, SweepPage))
        await it.pilot.press("w")
        await it.until(lambda: "TIME_US = 20.0" in it.solution)
        assert "TIME_US = 20.0" in it.solution
        await it.until(lambda: len(it.finished) == 2)
        assert not it.app.engine.supervisor.is_gpu_lent
    assert list((it.folder / ".kernbench" / "sweeps").glob("*/report.md"))


async def test_a_save_ends_the_sweep_and_runs(folder: Path) -> None:
    write(folder, "TIME_US = 50.0\nDO = 0")
    async with opened(folder) as it:
        await it.hang()
        assert it.app.engine.supervisor.is_gpu_lent
        assert "sweep: the source as it is" in screen_text(it.app)
        write(folder, "TIME_US = 30.0\nDO = 0")
        saved = time.monotonic()
        await it.until(lambda: not it.app.board.sweep)
        print(f"ended {time.monotonic() - saved:.3f} s after the save")
        assert it.app.sweeping._running is None
        await it.until(lambda: len(it.finished) == 2)
        assert it.finished[-1].summary.geomean == pytest.approx(100 / 30, rel=0.01)
        assert it.app.main.is_current  # the save's rows are what the user wants to see
        await it.pilot.press("S")
        await it.until(lambda: "stopped before its end: 1 of 2 variants" in screen_text(it.app))
        assert "stopped before its end: 1 of 2 variants" in screen_text(it.app)
        await it.pilot.press("w")  # there is no winner to write
        assert isinstance(it.app.screen, SweepPage)


async def test_pressed_again_it_ends_and_shows_what_it_has(folder: Path) -> None:
    write(folder, "TIME_US = 50.0\nDO = 0")
    async with opened(folder) as it:
        for values, said in (("NOPE=1,2", "no sweep: nothing sets NOPE"), ("TIME_US", "no sweep: --set TIME_US")):
            await it.sweep(values)
            await it.until(lambda said=said: any(said in note.message for note in it.app._notifications))
            assert any(said in note.message for note in it.app._notifications)
            it.app.sweeping._last_values = ""
        await it.hang()
        await it.pilot.press("S")
        await it.until(lambda: "stopped before its end" in screen_text(it.app))
        assert "stopped before its end" in screen_text(it.app)
        assert not it.app.engine.supervisor.is_gpu_lent
        await it.pilot.press("escape")
        it.app.sweeping._last_values = ""
        await it.hang()
    assert it.app.sweeping._running is None  # leaving ends it; an autouse fixture looks for processes


async def test_no_sweep_while_something_else_is_timed(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("S")
        assert [note.message for note in app._notifications] == ["the worker is starting"]


async def test_a_sweep_and_a_models_step_exclude_each_other(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, said = make_app(engine), list[str]()
    monkeypatch.setattr(app, "say", lambda sentence, severity="": said.append(sentence))
    engine.model_choices = ["flux"]
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app.board.environment, app.board.run = H200, None
        app.board.models = ModelsChanged((), "model flux: eager")
        await pilot.press("S")
        app.board.models = ModelsChanged(())
        app.board.sweep = "round 1"
        await pilot.press("M")
        app.board.sweep, engine.is_gpu_lent = "", True
        app.sweeping._start("TILE=1,2")  # a profile has begun while the dialog was open
        assert said == [
            "a model's step is running: sweep when it has ended",
            "a sweep is running: S ends it",
            "a profile is being taken: sweep when it has ended",
        ]
        assert (engine.models_run, app.sweeping._running) == ([], None)


async def test_ending_a_sweep_twice_does_not_interrupt_its_end(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    async def run(self: LiveSweep, *_given: object) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            closed.append("begun")
            await asyncio.sleep(0.05)
            closed.append("ended")

    monkeypatch.setattr(LiveSweep, "__init__", lambda self, *given: None)
    monkeypatch.setattr(LiveSweep, "run", run)
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        app.board.environment, app.board.run = H200, None
        app.sweeping._start("TILE=1,2")
        await until(pilot, lambda: app.board.sweep)
        await pilot.pause(0.1)
        app.sweeping.press()
        await until(pilot, lambda: closed)
        app.sweeping.press()
        await app.sweeping.end()
        assert closed == ["begun", "ended"]
