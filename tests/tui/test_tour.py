"""The tour: a step at a time, which goes on by itself when it was done, and never in the way of a key."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot

from kernbench.demo import tour_steps
from kernbench.events import ProfileFailed, PulledEntry
from kernbench.settings import Settings
from kernbench.tui import tour
from kernbench.tui.app import Workbench
from kernbench.tui.tour.guided_workbench import GuidedWorkbench
from tests.tui.scene import NOW, FakeEngine, screen_text, summary, until, whole_run

pytestmark = pytest.mark.anyio
EDIT = tour_steps.Edit(14, '"old"', '"new"')


def guided(engine: FakeEngine, on_gpu: bool = True, **given: object) -> GuidedWorkbench:
    steps = tour_steps.steps(Path("kernels/a{b}/solution.py"), EDIT, on_gpu)
    return GuidedWorkbench(engine, now=lambda: NOW, steps=steps, **given)


async def says(pilot: Pilot[None], app: GuidedWorkbench, *words: str) -> None:
    def holds() -> bool:
        text = " ".join(screen_text(app).replace("│", " ").split())
        return all(word in text for word in words)

    await until(pilot, holds)
    assert holds(), screen_text(app)


async def gone(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    await until(pilot, holds)
    assert holds()


async def test_it_goes_on_when_a_step_was_done(engine: FakeEngine) -> None:
    app = guided(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await says(pilot, app, "tour 1/6", "is checking solution.py")
        engine.say(*whole_run())
        await says(
            pilot, app, "tour 2/6", "Press e, or open kernels/a{b}/solution.py in", 'change "old" to "new" and save'
        )
        await pilot.press("i", "1")
        await says(pilot, app, "tour 2/6")  # a key of a later step
        engine.say(*whole_run())
        await says(pilot, app, "tour 3/6", "press enter on one")
        await pilot.press("enter")
        await pilot.pause(0.3)
        await pilot.press("escape")
        await says(pilot, app, "tour 4/6", "press n: Nsight Compute")
        engine.say(ProfileFailed(app.board.cases[0].id, "no ncu"))
        await says(pilot, app, "tour 5/6", "Press i: every save")
        await pilot.press("i")
        await says(pilot, app, "tour 6/6", "esc closes this")
        await pilot.press("escape", "escape")
        await gone(pilot, lambda: "tour" not in screen_text(app))


async def test_on_a_cpu_it_asks_for_a_hypothesis_instead_of_a_profile(engine: FakeEngine) -> None:
    app = guided(engine, on_gpu=False, settings=Settings(keys={"hypothesis": "f6,f7"}))
    async with app.run_test(size=(80, 24)) as pilot:
        await says(pilot, app, "tour 1/6")
        engine.say(*whole_run(), *whole_run())
        await says(pilot, app, "tour 3/6")
        await pilot.press("enter")
        await pilot.pause(0.3)
        await pilot.press("escape")
        await says(pilot, app, "tour 4/6", "Press f6 and note")
        await pilot.press("f6")
        await pilot.pause(0.3)
        await pilot.press("escape")
        await says(pilot, app, "tour 5/6")


async def test_esc_ends_it_only_where_esc_has_nothing_else_to_do(engine: FakeEngine) -> None:
    app = guided(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await says(pilot, app, "tour 1/6")
        await pilot.press("slash", "q", "escape", "plus", "escape", "i", "escape")
        await says(pilot, app, "tour 1/6")
        await pilot.press("escape")
        await gone(pilot, lambda: "tour" not in screen_text(app))
        engine.say(*whole_run())
        await pilot.press("escape", "i")
        await pilot.pause(0.3)
        assert "tour" not in screen_text(app)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60)])
async def test_it_covers_neither_tabs_nor_hint_nor_keys(engine: FakeEngine, width: int, height: int) -> None:
    app = guided(engine, ascii_only=True)
    async with app.run_test(size=(width, height)) as pilot:
        await says(pilot, app, "+- tour 1/6 -")
        below = screen_text(app).splitlines()[app.tour.region.bottom :] if app.tour else []
        assert len(below) == (3 if width < 110 else 2)
        assert below[-1].startswith("enter row")
        assert width >= 110 or "Results" in below[0]


async def test_only_steps_bring_the_tour() -> None:
    assert tour.workbench(()) is Workbench
    steps = [tour_steps.Step("save it")]
    made = tour.workbench(steps)
    assert isinstance(made, partial)
    assert (made.func, made.keywords) == (GuidedWorkbench, {"steps": steps})


async def test_a_number_of_another_machine_is_shown_as_one_or_as_timed_here(engine: FakeEngine) -> None:
    """0.97x there and 0.35x here must not read as a regression."""
    app = guided(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await says(pilot, app, "tour 1/6")
        here = summary(None, geomean=0.35, low=0.34, high=0.36)
        elsewhere = PulledEntry(**{**_fields(summary(1)), "geomean": 0.97, "outcome": "first"})
        again = PulledEntry(**{**_fields(summary(2)), "geomean": 0.97, "outcome": "first", "again": here})
        app.main.iterations.show([elsewhere, again])
        (number_here, style_here), *_ = app.main.iterations.line(0, 60)[3:]
        (number_there, style_there), *_ = app.main.iterations.line(1, 60)[3:]
        assert (number_here.strip(), number_there.strip()) == ("0.35x", "0.97x")
        assert style_here != "dim" == style_there


def _fields(item: object) -> dict[str, object]:
    return {name: getattr(item, name) for name in type(item).__slots__}  # type: ignore[attr-defined]
