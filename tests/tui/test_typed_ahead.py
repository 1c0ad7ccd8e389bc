"""Keys that arrive in one packet, the first of which opens a box: the others are the box's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot

from kernbench.tui.app import Workbench
from kernbench.tui.pages.dialogs import AnsweredOnce, Choose, Confirm, Page
from kernbench.tui.pages.picker import TaskPicker
from kernbench.tui.pages.sweep_pages import AskValues
from kernbench.tui.pages.text_prompt import Ask, Field
from tests.tui.scene import FakeEngine, make_app, screen_text, until

pytestmark = pytest.mark.anyio


def burst(app: Workbench, text: str) -> None:
    """All at once, as one packet brings them."""
    for character in text:
        key = "enter" if character == "\r" else _character_to_key(character)
        app.post_message(events.Key(key, character))


async def comes(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    await until(pilot, holds)
    assert holds()


async def opened(pilot: Pilot[None], app: Workbench) -> None:
    await until(pilot, lambda: app.focused is not None)
    await pilot.pause(0.2)


async def test_words_reach_the_hypothesis(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        burst(app, "hmy quick words")
        await comes(pilot, lambda: isinstance(app.focused, Field) and app.focused.text == "my quick words")
        burst(app, " and more")
        await comes(pilot, lambda: isinstance(app.focused, Field) and app.focused.text.endswith("words and more"))


async def test_words_reach_the_filter_and_enter_keeps_it(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        burst(app, "/qwen\r")
        await comes(pilot, lambda: "rows match 'qwen'" in screen_text(app))


async def test_words_after_enter_are_not_the_filters(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        burst(app, "/qwen\rhmy words")
        await comes(pilot, lambda: isinstance(app.focused, Field) and app.focused.text == "my words")
        assert app.main.results.filter_text == "qwen"


async def test_an_answer_reaches_a_question_without_a_field(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        app.push_screen(Confirm("Sure?", ""), answers.append)
        burst(app, "y")
        await comes(pilot, lambda: answers == [True])


answers: list[bool | None] = []


async def test_keys_without_a_box_do_what_they_did(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        burst(app, "i1?")
        await comes(pilot, lambda: "re-run now" in screen_text(app))


@pytest.mark.parametrize(
    "box", [Ask([("entry", "Why?")], "words", ""), AskValues(dict, "words"), Choose("Which?", ["words"])]
)
async def test_a_second_enter_leaves_the_page_below_open(box: AnsweredOnce[str | None], engine: FakeEngine) -> None:
    app, page = make_app(engine), Page("below", [])
    given: list[str | None] = []
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await app.push_screen(page)
        await app.push_screen(box, given.append)
        await opened(pilot, app)
        burst(app, "\r\r")
        await comes(pilot, lambda: given == ["words"])
        await pilot.pause(0.2)
        assert app.screen is page


async def test_the_picker_takes_one_of_two_enters() -> None:
    app = TaskPicker([("rms", "/k/rms", "-", "-", "-")])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        for _ in range(2):
            app.post_message(events.Key("enter", "\r"))
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == "/k/rms"
