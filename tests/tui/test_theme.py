"""Text is readable in every theme: the contrast of each of our styles with all that is behind text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from textual.app import App

from kernbench.settings import Settings
from kernbench.tui import theme
from kernbench.tui.text.spans import STYLES
from kernbench.tui.widgets.tab_line import TabLine
from tests.tui.scene import FakeEngine, make_app, settle

COLOURED = [name for name in App().available_themes if "ansi" not in name]
SHEET = Path(theme.__file__).with_name("kernbench.tcss").read_text()


def ratio(one: str, other: str) -> float:
    """WCAG's, from `#rrggbb`."""

    def luminance(color: str) -> float:
        parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    light, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("name", ["kernbench", *COLOURED])
def test_every_style_is_readable(name: str, engine: FakeEngine) -> None:
    app = make_app(engine, settings=Settings(theme=name))
    variables = app.get_css_variables()
    used = {found for style in STYLES.values() for found in re.findall(r"\$([\w-]+)", style)}
    used |= set(re.findall(r"color: \$([\w-]+);", SHEET)) - {"line"}  # a scrollbar's
    poor = {
        (text, behind): round(found, 2)
        for text in used | {"foreground"}
        for behind in ("background", "surface", "panel")
        if (found := ratio(variables[text], variables[behind])) < 4.5
    }
    assert poor == {}


def test_our_own_colours_stay_in_the_palette_of_256(engine: FakeEngine) -> None:
    variables = make_app(engine).get_css_variables()
    used = {found for style in STYLES.values() for found in re.findall(r"\$([\w-]+)", style)}
    levels = {"00", "5f", "87", "af", "d7", "ff"}
    for color in (variables[name].lower() for name in used):
        parts = {color[at : at + 2] for at in (1, 3, 5)}
        gray = len(parts) == 1 and (int(color[1:3], 16) - 8) % 10 == 0
        assert parts <= levels or gray, color


def test_sixteen_colours_have_no_blue_on_black(engine: FakeEngine) -> None:
    assert make_app(engine, settings=Settings(theme="ansi-dark")).get_css_variables()["text-primary"] != "ansi_blue"
    assert theme.default({"NO_COLOR": "1"}, ()) == "ansi-dark"


@pytest.mark.anyio
async def test_the_selected_tab_stands_out_without_colours(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        [reverse] = [segment.text for segment in app.main.query_one("#tabs", TabLine).render_line(0) if
                     segment.style and segment.style.reverse]  # fmt: skip
        assert reverse == "[Results]"
