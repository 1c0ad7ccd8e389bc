"""Keys that arrive in one packet, the first of which opens a box: the others are the box's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot

from kernbench.tui.app import Workbench
from kernbench.tui.pages.dialogs import Confirm
from kernbench.tui.pages.text_prompt import Field
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
