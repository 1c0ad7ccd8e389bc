"""The list of iterations: two compared, an entry dropped, a restore undone, ages that tick."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from textual.geometry import Region

from harness.shared.errors import UserError
from kernbench.diagnosis import machine_code
from kernbench.diagnosis.machine_code import SASS_KINDS as KINDS
from kernbench.diagnosis.machine_code import KernelCode
from kernbench.tui.app import Workbench
from kernbench.tui.pages.history import DiffPage
from kernbench.tui.panes import iterations
from tests.tui.scene import NOW, FakeEngine, make_app, screen_text, settle, summary, until

pytestmark = pytest.mark.anyio


def said(app: Workbench) -> str:
    return [note.message for note in app._notifications][-1]


async def test_any_two_iterations_are_compared(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("4", "c")
        assert said(app) == "marked 12: d compares it with the selected one"
        await pilot.press("down", "down", "down", "c")
        assert said(app) == "marked 12 and 9: d compares them"
        assert " 12+" in screen_text(app)
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, DiffPage))
        assert "iteration 9 -> iteration 12" in screen_text(app)  # the older one first
        await pilot.press("escape", "up", "c")
        assert [item.iteration for item in app.main.iterations.marked] == [9, 10]
        await pilot.press("c", "d")
        await until(pilot, lambda: "iteration 9 -> iteration 10" in screen_text(app))
        await pilot.press("escape", "down", "c")
        assert said(app) == "no iteration is marked"
        await pilot.press("d")
        await until(pilot, lambda: "best -> working copy" in screen_text(app))


async def test_a_mark_counts_only_in_the_list(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("4", "c", "1", "d")
        await until(pilot, lambda: "best -> working copy" in screen_text(app))


NOTHING = "nothing to undo: no restore or drop since the task was opened"


async def test_undo_goes_back_one_step_at_a_time(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("u")
        assert said(app) == NOTHING
        await pilot.press("4", "down", "down", "D", "y")
        await until(pilot, lambda: said(app) == "dropped entry 10")
        await pilot.press("home", "enter", "R", "y", "u")
        assert engine.restored == ["12", "before 12"]
        await pilot.press("u")
        await until(pilot, lambda: said(app) == "entry 10 is back in ITERATIONS.md")
        await pilot.press("u")
        assert said(app) == NOTHING


async def test_an_undo_that_failed_can_be_tried_again(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("4", "enter", "R", "y")
        with monkeypatch.context() as busy:
            busy.setattr(engine, "restore", _was_just_saved)
            await pilot.press("u")
        await pilot.press("u")
        assert engine.restored == ["12", "before 12"]


def _was_just_saved(reference: str) -> tuple[str, str]:
    raise UserError("solution.py was just saved; nothing was restored")


async def test_another_task_has_nothing_to_undo(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("4", "enter", "R", "y")
        app.past.forget()  # as a switch does
        await pilot.press("u")
        assert engine.restored == ["12"]
        assert said(app) == NOTHING


async def test_a_dropped_entry_is_put_back(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("4", "down", "down", "D")
        await until(pilot, lambda: "Drop entry 10" in screen_text(app))
        assert "lines added or changed by hand" in screen_text(app)
        await pilot.press("n")
        assert said(app) == "nothing dropped"
        await pilot.press("enter", "D", "y")
        await until(pilot, lambda: said(app) == "dropped entry 10")
        assert engine.numbers() == [9, 11, 12]
        assert app.screen is app.main
        await pilot.press("u")
        await until(pilot, lambda: said(app) == "entry 10 is back in ITERATIONS.md")
        await settle(pilot)
        assert engine.numbers() == [9, 10, 11, 12]
        assert app.main.iterations.count() == 4


async def test_only_ages_that_changed_are_painted(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app(engine)
    async with app.run_test(size=(220, 60)) as pilot:
        await settle(pilot)
        pane, painted = app.main.iterations, list[Region]()
        assert " 27 min" in screen_text(app)
        refresh = pane.refresh

        def note(*regions: Region, **how: Any) -> Any:
            painted.extend(regions)
            return refresh(*regions, **how)

        def minute() -> None:
            for _ in range(iterations.MINUTE):
                pane.tick()

        monkeypatch.setattr(pane, "refresh", note)
        minute()
        assert painted == []
        monkeypatch.setattr(pane, "_now", lambda: NOW + timedelta(minutes=1))
        minute()
        assert len(painted) == 2  # 27 and 50 minutes; the others are hours and days old
        assert {region.width for region in painted} == {7}
        await settle(pilot)
        assert " 28 min" in screen_text(app)
        painted.clear()
        minute()
        assert painted == []
        engine.history.append(summary(13, at=(NOW + timedelta(seconds=40)).isoformat()))
        app.main.show_iterations()
        await settle(pilot)
        assert " 20 s " in screen_text(app)
        painted.clear()
        monkeypatch.setattr(pane, "_now", lambda: NOW + timedelta(seconds=70))
        pane.tick()
        assert len(painted) == 1  # in its first minute an age does not wait


def code(registers: int) -> KernelCode:
    ptx = machine_code.Listing(("mov.u32 %r1, 0;", f"add.s32 %r1, %r1, {registers};"), 2, dict.fromkeys(KINDS, 0))
    return KernelCode("kernel", "BLOCK=8", registers, 0, 0, ptx, machine_code.Listing())


async def test_machine_code_is_the_third_view_of_a_diff(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernbench.tui.pages.history.LOOK_SECONDS", 0.02)
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("d", "v", "v")
        await until(pilot, lambda: "no machine code of best: it is kept" in screen_text(app))
        engine.code = {"best": [code(32)]}
        await until(pilot, lambda: "no machine code of now" in screen_text(app))  # it looks again by itself
        engine.code["now"] = [code(40)]
        await until(pilot, lambda: "registers                 32     40  +8" in screen_text(app))
        shown = screen_text(app)
        assert "best -> working copy: machine code" in shown
        assert "2 add.s32 %r1, %r1, 32;" in shown
        assert "|    2 add.s32 %r1, %r1, 40;" in shown
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "+ add.s32 %r1, %r1, 40;" in screen_text(app))
        await pilot.press("v")
        await until(pilot, lambda: "- BLOCK = 4" in screen_text(app))
