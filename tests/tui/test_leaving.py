"""An internal error ends in one sentence, with the traceback in a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernbench import cli, crash_report
from kernbench.tui.app import Workbench
from kernbench.tui.pages.picker import TaskPicker
from kernbench.tui.panes import trajectory
from tests.tui.scene import TASKS, FakeEngine, make_app, settle


@pytest.fixture(autouse=True)
def tracebacks_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def draws_nothing(*_: object) -> None:
    raise ZeroDivisionError("no height\nat all")


async def fails(monkeypatch: pytest.MonkeyPatch) -> Workbench:
    monkeypatch.setattr(trajectory, "draw", draws_nothing)
    app = make_app(FakeEngine())
    with pytest.raises(ZeroDivisionError):
        async with app.run_test(size=(200, 60)) as pilot:
            await settle(pilot)
    assert app.return_code == 1
    return app


@pytest.mark.anyio
async def test_a_screen_that_fails_says_so_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (await fails(monkeypatch)).mistake
    said = re.search(
        r"internal error: ZeroDivisionError: no height at all \((\S+):\d+\); .* the traceback from (\S+)", text
    )
    assert said is not None, text
    assert said[1] == "kernbench/tui/panes/plot.py"
    assert "ZeroDivisionError: no height" in Path(said[2]).read_text()
    assert "\n" not in text


@pytest.mark.anyio
async def test_who_asks_for_the_traceback_gets_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(crash_report.ASKED, "1")
    assert (await fails(monkeypatch)).mistake == ""
    assert "draws_nothing" in capsys.readouterr().err


@pytest.mark.anyio
async def test_the_picker_says_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskPicker, "on_mount", draws_nothing)
    picker = TaskPicker(TASKS.rows(), None, False)
    with pytest.raises(ZeroDivisionError):
        async with picker.run_test():
            pass
    assert "internal error: ZeroDivisionError" in picker.mistake


@pytest.mark.anyio
async def test_a_paint_that_was_due_is_dropped_once_panes_are_taken_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """On exit Textual takes them down one after the other, and lets timers go on until the screen's turn comes."""
    app = make_app(FakeEngine())
    async with app.run_test(size=(200, 60)) as pilot:
        await settle(pilot)
        assert app.main.ready
        await app.main.heat.remove()
        monkeypatch.setattr(Workbench, "is_running", False)
        app.main.paint_soon = lambda: pytest.fail("painted")  # type: ignore[method-assign]
        app.main._more = True
        app.main._tick()
        monkeypatch.undo()


def test_a_command_that_fails_says_so_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kernbench.task.lookup.list_tasks", draws_nothing)
    with pytest.raises(SystemExit) as left:
        cli.main(["status"])
    said = capsys.readouterr().err
    assert left.value.code == crash_report.EXIT_CODE
    assert said.startswith("kernbench: internal error: ZeroDivisionError: no height at all (kernbench/")
    monkeypatch.setenv(crash_report.ASKED, "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["status"])
