"""The screen as text, byte for byte. KERNBENCH_UPDATE_GOLDENS=1 writes the files anew: then read them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.shared.run_request import Environment
from kernbench.events import Confirmed, Confirming, Event, WorkerChanged
from tests.tui.scene import (
    BROKEN,
    H200,
    NO_GPU,
    STARTED,
    TASKS,
    FakeEngine,
    busy_minute,
    crashed,
    feel,
    landed,
    make_app,
    progress,
    right,
    screen_text,
    settle,
    unclear,
    undecided,
    until,
    whole_run,
    wrong,
)

DISAGREE = "1.31x [1.31, 1.32] in the run, 1.01x [1.00, 1.02] in a new worker; run it again"
GOLDEN = Path(__file__).parent / "golden"
SCENES: dict[str, list[Event]] = {
    "idle": [],
    "running": [STARTED, progress("build", 0), *landed(right(0, 1), right(1, 1)), progress("time", 2)],
    "finished": whole_run(),
    "build_error": [STARTED, BROKEN],
    "wrong": whole_run(wrong(2)),
    "crashed": whole_run(crashed(0)),
    "stalled": whole_run(stalled=True, best=False),
    "confirming": [*whole_run(awaits=True), Confirming("run13", 13, True)],
    "refused": [*whole_run(awaits=True), Confirmed("run13", False, DISAGREE)],
    "undecided": [STARTED, *landed(*unclear()), undecided()],
}
SIZES = [(80, 24), (120, 40), (200, 60)]
LONG = (120, 40)
"""A size between the others, whose goldens `make test-long` compares."""
at_sizes = pytest.mark.parametrize(
    "size", [pytest.param(it, marks=[pytest.mark.long] if it == LONG else [], id=f"{it[0]}x{it[1]}") for it in SIZES]
)


def compare(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("KERNBENCH_UPDATE_GOLDENS"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.anyio
@at_sizes
@pytest.mark.parametrize("scene", SCENES)
async def test_the_screen_reads_as_agreed(scene: str, size: tuple[int, int], engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=size) as pilot:
        engine.say(WorkerChanged("ready", H200), *SCENES[scene])
        await settle(pilot)
        feel(app, busy_minute())
        await settle(pilot)
        compare(f"{scene}_{size[0]}x{size[1]}", screen_text(app))


@pytest.mark.anyio
@pytest.mark.parametrize("size", [(40, 10), (160, 48)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_smallest_and_the_stacked_screen(size: tuple[int, int], engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=size) as pilot:
        engine.say(WorkerChanged("ready", H200), *SCENES["finished"])
        await settle(pilot)
        feel(app, busy_minute())
        await settle(pilot)
        compare(f"finished_{size[0]}x{size[1]}", screen_text(app))


@pytest.mark.anyio
async def test_ascii_only_uses_nothing_else(engine: FakeEngine) -> None:
    app = make_app(engine, ascii_only=True)
    async with app.run_test(size=(160, 48)) as pilot:
        engine.say(WorkerChanged("ready", H200), *SCENES["finished"])
        await settle(pilot)
        feel(app, busy_minute())
        await settle(pilot)
        text = screen_text(app)
        compare("ascii_160x48", text)
        assert text.isascii()
        await pilot.press("i", "enter")
        await settle(pilot)
        assert " 12 - 16-byte loads" in screen_text(app)
        assert screen_text(app).isascii()
        await pilot.press("escape", "escape", "ctrl+p", "e", "x")
        await until(pilot, lambda: "export the log" in screen_text(app))  # found by and by
        assert "export the log" in screen_text(app)
        assert screen_text(app).isascii()


@pytest.mark.anyio
@at_sizes
async def test_no_gpu(size: tuple[int, int], engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=size) as pilot:
        engine.say(WorkerChanged("ready", Environment(device="cpu", device_name="Neoverse N1, 2 cores")))
        feel(app, [NO_GPU])
        await pilot.press("2")
        await settle(pilot)
        compare(f"no_gpu_{size[0]}x{size[1]}", screen_text(app))


PAGES: dict[str, list[str]] = {
    "row": ["enter"],
    "gpu": ["2"],
    "profile": ["3"],
    "iterations": ["4"],
    "output": ["5"],
    "entry": ["4", "enter"],
    "diff": ["d"],
    "restore": ["4", "end", "enter", "R"],
    "help": ["question_mark"],
    "hypothesis": ["h"],
    "filter": ["slash", "w", "a", "n"],
    "tasks": ["T"],
    "wall": ["m", "s"],
}
OLDEST = ["4", "end", "1"]
BEFORE = {"hypothesis": OLDEST, "filter": OLDEST, "tasks": OLDEST, "wall": [*OLDEST, "enter", "escape", "home"]}
"""Keys that choose what is seen around the page: the oldest iteration, and after a row was looked at the first case."""


@pytest.mark.anyio
@at_sizes
@pytest.mark.parametrize("page", PAGES)
async def test_a_page_reads_as_agreed(page: str, size: tuple[int, int], engine: FakeEngine) -> None:
    app = make_app(engine, tasks=TASKS)
    async with app.run_test(size=size) as pilot:
        engine.say(WorkerChanged("ready", H200), *whole_run())
        await settle(pilot)
        feel(app, busy_minute())
        await pilot.press(*BEFORE.get(page, ()), *PAGES[page])
        await settle(pilot)
        await settle(pilot)  # a scroll bar may come or go
        compare(f"page_{page}_{size[0]}x{size[1]}", screen_text(app))
        while app.screen is not app.main:
            await pilot.press("escape")


@pytest.mark.anyio
@at_sizes
@pytest.mark.parametrize("scene", ["wrong", "crashed"])
async def test_the_page_of_a_row_that_failed(scene: str, size: tuple[int, int], engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=size) as pilot:
        engine.say(WorkerChanged("ready", H200), *whole_run({"wrong": wrong, "crashed": crashed}[scene](0)))
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        compare(f"page_{scene}_row_{size[0]}x{size[1]}", screen_text(app))


@pytest.mark.anyio
@at_sizes
async def test_a_toast_takes_the_place_of_the_hint(size: tuple[int, int], engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=size, notifications=True) as pilot:
        engine.say(WorkerChanged("ready", H200), *whole_run())
        await settle(pilot)
        without = screen_text(app).splitlines()
        app.say("copied m[bf16]: /home/dev/kernels/norm_scale_shift/.kernbench/copied.md")
        await until(pilot, lambda: "copied m[bf16]" in screen_text(app))
        await settle(pilot)
        shown = screen_text(app).splitlines()
        assert [line for line, before in zip(shown, without, strict=True) if line != before] == [shown[-2]]
        compare(f"toast_{size[0]}x{size[1]}", screen_text(app))


def test_every_golden_is_compared() -> None:
    by_size = [*SCENES, *(f"page_{page}" for page in PAGES), "page_wrong_row", "page_crashed_row", "no_gpu", "toast"]
    names = {f"{name}_{width}x{height}" for name in by_size for width, height in SIZES}
    names |= {"finished_40x10", "finished_160x48", "ascii_160x48"}
    assert {path.stem for path in GOLDEN.iterdir()} == names
