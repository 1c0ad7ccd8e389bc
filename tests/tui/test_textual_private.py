"""Each private name of Textual taken away in turn: the screens work without it."""

from __future__ import annotations

import asyncio
import gc
import string
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from textual import keys
from textual.app import App

from kernbench.settings import Settings, SettingsError
from kernbench.tui import textual_private
from kernbench.tui.pages import user_keys
from kernbench.tui.panes import trajectory
from tests.tui.scene import FakeEngine, make_app, screen_text, settle, until, whole_run


@pytest.fixture(autouse=True)
def tracebacks_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_the_installed_textual_has_them_all() -> None:
    assert textual_private.fallbacks() == []


def test_asking_for_the_module_does_not_import_textual() -> None:
    code = "import sys, kernbench.tui.textual_private; print([name for name in sys.modules if name == 'textual'])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_keys_are_named_alike_without_textuals_own_function(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {character: keys._character_to_key(character) for character in string.printable[:95] + "±ßλ"}
    monkeypatch.delattr(keys, "_character_to_key")
    assert textual_private.fallbacks() == ["textual.keys._character_to_key"]
    assert {character: textual_private.key_of(character) for character in wanted} == wanted
    with pytest.raises(SettingsError, match=r"keys.rerun uses the same key as help"):
        user_keys.check(Settings(keys={"rerun": "?"}), {"kernbench"})


@pytest.mark.anyio
async def test_a_closed_page_leaves_no_painted_lines(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        engine.say(*whole_run())
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        painted = weakref.ref(app.screen.query_one("#page-text")._styles_cache)
        await pilot.press("escape")
        await settle(pilot)
        gc.collect()
        assert painted() is None


def test_without_textuals_cache_there_is_nothing_to_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("textual.widget.StylesCache")
    textual_private.forget_closed_widgets()


@pytest.fixture
def no_fatal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Textual that calls its page of the traceback by another name."""
    monkeypatch.setattr(App, "_show_traceback", App._fatal_error, raising=False)
    monkeypatch.delattr(App, "_fatal_error")

    def handle(app: App[None], error: Exception) -> None:
        app._return_code = 1
        if app._exception is None:
            app._exception = error
            app._exception_event.set()
        app._show_traceback()  # type: ignore[attr-defined]

    monkeypatch.setattr(App, "_handle_exception", handle)


@pytest.mark.anyio
async def test_without_textuals_types_of_paints_all_is_sent(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(textual_private, "_updates", lambda: None)
    names = ("CompositorUpdate", "LayoutUpdate", "ChopsUpdate")
    assert textual_private.fallbacks() == [f"textual._compositor.{name}" for name in names]
    await is_usable(engine)


class Forgetful:
    """In the place of `App._exception`: keeps nothing, and says that there is no such name."""

    def __set__(self, app: App[None], error: Exception | None) -> None:
        pass

    def __get__(self, app: App[None], owner: type) -> None:
        raise AttributeError("_exception")


async def is_usable(engine: FakeEngine) -> None:
    """A run, a page over the results, and the way out."""
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        engine.say(*whole_run())
        await settle(pilot)
        assert "> wan 75600x5120" in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is not app.main)
        await pilot.press("escape", "q")
    assert app.return_code == 0
    assert engine.closed


async def leaves_with_a_sentence(engine: FakeEngine) -> None:
    """The app ends by itself; run_test would end it, and needs private names of its own."""
    app = make_app(engine)
    running = asyncio.create_task(app.run_async(headless=True, size=(200, 60)))
    ended, _ = await asyncio.wait(
        {running}, timeout=20
    )  # an app that is cancelled ends in peace: wait_for sees no timeout
    running.cancel()
    assert ended
    assert (app.return_code, engine.closed) == (1, True)
    assert "internal error: ZeroDivisionError: no height (" in app.mistake


@pytest.fixture
def plot_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("no height")

    monkeypatch.setattr(trajectory, "draw", fails)


@pytest.mark.anyio
@pytest.mark.usefixtures("no_fatal_error")
async def test_the_workbench_runs_without_the_hook(engine: FakeEngine) -> None:
    assert textual_private.fallbacks() == ["textual.app.App._fatal_error"]
    await is_usable(engine)


@pytest.mark.anyio
@pytest.mark.usefixtures("no_fatal_error", "plot_fails")
async def test_without_the_hook_a_mistake_ends_in_textuals_own_page(capsys: pytest.CaptureFixture[str]) -> None:
    app = make_app(FakeEngine())
    with pytest.raises(ZeroDivisionError):
        async with app.run_test(size=(200, 60)) as pilot:
            await settle(pilot)
    assert (app.return_code, app.mistake) == (1, "")
    assert "ZeroDivisionError: no height" in capsys.readouterr().err


@pytest.mark.anyio
async def test_the_workbench_leaves_by_its_public_way_after_a_mistake(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, plot_fails: None
) -> None:
    monkeypatch.delattr("textual.message_pump.MessagePump._close_messages_no_wait")
    assert textual_private.fallbacks() == ["textual.app.App._close_messages_no_wait"]
    await leaves_with_a_sentence(engine)


@pytest.mark.anyio
async def test_a_mistake_is_named_where_textual_does_not_keep_it(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, plot_fails: None
) -> None:
    def handle(app: App[None], error: Exception) -> None:
        app._return_code = 1
        app._fatal_error()

    monkeypatch.setattr(App, "_handle_exception", handle)
    monkeypatch.setattr(App, "_exception", Forgetful(), raising=False)
    assert textual_private.fallbacks() == ["textual.app.App._exception"]
    await leaves_with_a_sentence(engine)
