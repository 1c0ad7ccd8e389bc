"""Only changed cells are sent, and a terminal that gets them shows the same screen as one that gets everything."""

from __future__ import annotations

import random
import re

import pytest
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.widget import Widget

from kernbench.events import WorkerChanged
from kernbench.tui.widgets.changed_cells import PLAIN, Look, SentCells, cells_of
from tests.tui.scene import H200, FakeEngine, make_app, settle, whole_run

TRUE = ColorSystem.TRUECOLOR
WIDTH, HEIGHT = 30, 6
STYLES = [
    None,
    Style.parse("red"),
    Style.parse("bold #5fd787 on #121212"),
    Style.parse("#5fd787 on #121212"),
    Style.parse("reverse"),
    Style.parse("dim on #262626"),
]
WORDS = ["1.31x", "faster ", "", "    ", "数", "é́", "0", "┤╌─"]


class Terminal:
    """Obeys what `encode` writes: places, looks and text."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], tuple[str, Look]] = {}

    def obey(self, text: str) -> None:
        x, y, look = 0, 0, PLAIN
        for escape, sign in re.findall(r"\x1b\[([0-9;]*[Hm])|([^\x1b])", text):
            if escape.endswith("H"):
                y, x = (int(part) - 1 for part in escape[:-1].split(";"))
            elif escape:
                look = self._look(escape[:-1], look)
            elif cell_len(sign):
                self.cells[y, x] = (sign, look)
                for more in range(1, cell_len(sign)):
                    self.cells[y, x + more] = ("", look)
                x += cell_len(sign)
            else:
                before, style = self.cells[y, x - 1]
                self.cells[y, x - 1] = (before + sign, style)
        assert look == PLAIN or text == ""

    def _look(self, codes: str, look: Look) -> Look:
        for code in re.findall(r"[34]8;2;\d+;\d+;\d+|\d+", codes):
            if code == "0":
                look = PLAIN
            elif re.match(r"(38|3\d|9\d)(;|$)", code):
                look = look._replace(fore=code)
            elif re.match(r"(48|4\d|10\d)(;|$)", code):
                look = look._replace(back=code)
            else:
                look = look._replace(attributes=code)
        return look


def random_line(choice: random.Random) -> list[Segment]:
    found: list[Segment] = []
    while (left := WIDTH - sum(cell_len(part.text) for part in found)) > 0:
        word = choice.choice(WORDS)
        found.append(Segment(word if cell_len(word) <= left else " " * left, choice.choice(STYLES)))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_terminal_that_gets_the_changes_shows_the_screen(seed: int) -> None:
    choice, sent, terminal = random.Random(seed), SentCells(), Terminal()
    lines = [random_line(choice) for _ in range(HEIGHT)]
    for paint in range(30):
        for y in choice.sample(range(HEIGHT), 3):
            lines[y] = random_line(choice)
        pieces = [(y, 0, line) for y, line in enumerate(lines)]
        terminal.obey(sent.encode((WIDTH, HEIGHT), pieces, paint == 0, TRUE))
        shown = [[terminal.cells[y, x] for x in range(WIDTH)] for y in range(HEIGHT)]
        assert shown == [cells_of(line, TRUE) for line in lines]


def test_an_emoji_of_several_characters_is_sent_with_its_text() -> None:
    sent, size = SentCells(), (8, 1)
    before, after = ([Segment("\u26a0\ufe0f abc"), Segment("  ")], [Segment("\u26a0\ufe0f abX"), Segment("  ")])
    assert len(cells_of(before, TRUE)) == cell_len("\u26a0\ufe0f abc  ")
    sent.encode(size, [(0, 0, before)], True, TRUE)
    assert sent.encode(size, [(0, 0, after)], False, TRUE) == "\x1b[1;1H\x1b[0m\u26a0\ufe0f abX"


def test_a_digit_costs_a_digit_and_a_whole_paint_everything() -> None:
    sent, size = SentCells(), (120, 1)
    line = [Segment("1.31x ", Style.parse("bold red")), Segment("." * 114, Style.parse("#5fafff"))]
    first = sent.encode(size, [(0, 0, line)], True, TRUE)
    assert sent.encode(size, [(0, 0, line)], False, TRUE) == ""
    other = [Segment("1.32x ", Style.parse("bold red")), *line[1:]]
    assert sent.encode(size, [(0, 0, other)], False, TRUE) == "\x1b[1;4H\x1b[0;1;31m2\x1b[0m"
    assert sent.encode(size, [(0, 0, line)], True, TRUE) == first  # something else has written on the terminal
    assert sent.encode((119, 1), [(0, 0, line)], False, TRUE).count(".") == 114  # a resize


@pytest.mark.anyio
async def test_the_focus_repaints_panes_and_not_the_screen(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over SSH the whole screen is 13 kB."""
    painted: list[str] = []
    app = make_app(engine)
    monkeypatch.setattr(app, "_display", lambda screen, update: painted.append(type(update).__name__))
    async with app.run_test(size=(120, 40)) as pilot:
        engine.say(WorkerChanged("ready", H200), *whole_run())
        await settle(pilot)
        painted.clear()
        await pilot.press("5", "1", "tab")
        await settle(pilot)
        assert "ChopsUpdate" in painted
        assert "LayoutUpdate" not in painted
        await pilot.press("ctrl+l")
        await settle(pilot)
        assert "LayoutUpdate" in painted


@pytest.mark.anyio
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_a_paint_without_a_change_repaints_nothing(
    size: tuple[int, int], engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One comes every few seconds at rest, and a key that meets a repaint waits for it."""
    app, repainted = make_app(engine), list[str | None]()
    async with app.run_test(size=size) as pilot:
        engine.say(WorkerChanged("ready", H200), *whole_run())
        await settle(pilot)
        monkeypatch.setattr(Widget, "refresh", lambda widget, *regions, **how: repainted.append(widget.id))
        app.main.paint()
        assert repainted == []
        app.main.turn_plots()
        assert ("plot" in repainted) == (size[0] > 80)


@pytest.mark.parametrize(("ascii_only", "shown"), [(False, "[2J±"), (True, "[2J~")])
def test_a_line_passes_one_filter_that_does_it_all(ascii_only: bool, shown: str, engine: FakeEngine) -> None:
    app = make_app(engine, ascii_only)
    (only,) = app.get_line_filters()
    assert app.get_line_filters() == [only]  # Textual keeps each line with the filter that it passed
    (segment,) = only.apply([Segment("\x1b[2J±", Style.parse("red"))], Color.parse("#121212"))
    assert segment.text == shown
    assert "#" in str(segment.style)  # Textual's own filter replaced the terminal's red
    app.theme = "textual-light"
    assert len(app.get_line_filters()) == 1
