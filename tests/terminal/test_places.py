"""Where things are on the screen: the same columns after every save, the focus in sight, an answer at every size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.terminal.toy_workbench import Opens, save

pytestmark = [pytest.mark.tmux, pytest.mark.timeout(120)]
SAVES = 20
SIZES = ((80, 24), (100, 30), (120, 40), (160, 48), (220, 60))
SOURCES = ("TIME_US = {}.0", 'TIME_US = {}.0\nDO = "wrong"\nON = "c_64x64"')


def columns(screen: str) -> list[tuple[str, int]]:
    """The words of the table's heading, each with its place."""
    head = next(line for line in screen.splitlines() if re.match(r" *case +", line))
    return [(word.group(), word.start()) for word in re.finditer(r"\S+(?: \S+)*", head[:78])]


@pytest.mark.long
@pytest.mark.parametrize("width", [80, 160])
def test_no_column_moves_over_twenty_saves(width: int, folder: Path, open_terminal: Opens) -> None:
    terminal = open_terminal(folder, width, 48)
    first = columns(terminal.until(r"passed[\s\S]*#1 "))
    assert len(first) > 4
    for number in range(2, SAVES + 2):
        save(folder, SOURCES[number % 3 == 0].format(20 + number * 7 % 50))
        assert columns(terminal.until(rf"#{number} ")) == first, f"after save {number}"


def test_every_size_answers_first_and_shows_the_focus(folder: Path, open_terminal: Opens) -> None:
    terminal = open_terminal(folder, *SIZES[0])
    terminal.until(r"new best.* 2\.00x|is best  2\.00x")
    save(folder, "TIME_US = 25.0")
    terminal.until(r"#2 is confirmed as best")
    for width, height in SIZES:
        terminal.resize(width, height)
        top, *middle, keys = terminal.until(rf"\A.*\n(?:.*\n){{{height - 2}}}.*q quit *$").splitlines()
        assert re.match(r" ✓ .*vs best 2\.00x .*faster.*4\.00x .*over eager", top), top
        assert sum(bool(re.match(r"[> ] [abc][ _]", line)) for line in middle) >= 3  # every row
        assert "? help" in keys
    for name in ("GPU", "Profile", "Iterations", "Output"):
        terminal.press("Tab")
        assert re.findall(r"━(\w+)━", terminal.until(f"━{name}━")) == [name]
