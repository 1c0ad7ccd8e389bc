"""`M`, and the rows that models leave below the results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.shared.results import Ratio
from kernbench.events import ModelLine, ModelsChanged
from kernbench.tui.pages.dialogs import Choose
from kernbench.tui.panes import model_rows
from tests.tui.scene import STARTED, FakeEngine, make_app, screen_text, settle, whole_run

pytestmark = pytest.mark.anyio
FLUX = ModelLine("flux", STARTED.source, 13, "faster", True, 39.1, 34.6, Ratio(1.13, 1.127, 1.133, "faster"), 1.121)
WAN = ModelLine("wan", "0" * 64, None, "not wired: a site was never called", False)


def text(line: ModelLine, width: int = 100, ascii_only: bool = False) -> str:
    rows = model_rows.lines(ModelsChanged((line,)), STARTED.source, width, ascii_only)
    return "".join(part for part, _ in rows[1])


def styles(line: ModelLine) -> set[str]:
    return {style for _, style in model_rows.lines(ModelsChanged((line,)), STARTED.source, 100, False)[1]}


async def test_rows_of_models_stand_under_the_results_with_their_source(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        engine.say(*whole_run(), ModelsChanged((FLUX, WAN)))
        await settle(pilot)
        shown = screen_text(app).splitlines()
        rule = next(place for place, line in enumerate(shown) if "── in a model ──" in line)
        assert shown[rule + 1].split("│")[0].strip().startswith("flux  39.10 -> 34.60 ms")
        assert "of #13" in shown[rule + 1]
        assert "of an older source" in shown[rule + 2]
        engine.say(ModelsChanged((FLUX,)))
        await settle(pilot)
        assert "wan " not in screen_text(app).splitlines()[rule + 2]


def test_a_row_names_its_source_at_every_width() -> None:
    assert text(FLUX, 110).endswith("1.130x ±0.3%  ▲ faster  expected 1.121x  of #13")
    assert text(FLUX, 40) == "flux  1.130x ±0.3%  ▲ faster  of #13"
    assert text(FLUX, 110, ascii_only=True).isascii()
    assert text(replace(FLUX, number=None)).endswith("of this source")
    assert text(replace(FLUX, number=None, source="1" * 64)).endswith("of an older source")
    assert styles(replace(FLUX, number=7, source="1" * 64)) == {"dim", "warn"}
    assert text(WAN).startswith("wan  not wired: a site was never called  not kept")
    outside = replace(FLUX, kept=False, why="PSNR 20 dB is under the limit of 50 dB")
    assert "not kept: PSNR 20 dB is under the limit of 50 dB" in text(outside, 140)


async def test_a_model_that_runs_is_in_the_status_line(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(120, 30)) as pilot:
        engine.say(*whole_run(), ModelsChanged((), "model flux: timing, round 4 of 72"))
        await settle(pilot)
        assert "model flux: timing, round 4 of 72" in screen_text(app).splitlines()[0]
        engine.say(ModelsChanged(()))
        await settle(pilot)
        assert "model flux" not in screen_text(app)


async def test_the_key_runs_the_only_model_or_asks_which(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        await pilot.press("M")
        await settle(pilot)
        (note,) = app._notifications
        assert note.message.startswith("no model has a site for norm_scale_shift; ")
        engine.model_choices = ["flux"]
        await pilot.press("M")
        await settle(pilot)
        assert engine.models_run == ["flux"]
        engine.model_choices, engine.last = ["flux", "wan"], "flux"
        await pilot.press("M")
        await settle(pilot)
        assert isinstance(app.screen, Choose)
        await pilot.press("down", "enter")
        await settle(pilot)
        assert engine.models_run == ["flux", "wan"]
        await pilot.press("M", "escape")
        await settle(pilot)
        assert engine.models_run == ["flux", "wan"]
