"""The settings: what is wrong with them is one sentence, before anything opens."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from textual.command import CommandPalette
from textual.widgets import OptionList

from kernbench import settings
from kernbench.settings import Settings, SettingsError
from kernbench.tui import theme
from kernbench.tui.app import Workbench
from kernbench.tui.pages import user_keys
from kernbench.tui.pages.help import list_bindings, main_bindings
from kernbench.tui.pages.picker import TaskPicker
from tests.tui.scene import FakeEngine, make_app, screen_text, settle, until, whole_run


def write(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text)
    return path


def test_without_a_file_everything_is_as_shipped(tmp_path: Path) -> None:
    found = settings.load(tmp_path / "config.toml")
    assert (found.theme, found.bell, found.keys) == (None, 0.0, {})


def test_a_whole_file(tmp_path: Path) -> None:
    path = write(tmp_path, 'theme = "ansi-dark"\nbell = 10\n[keys]\nrerun = "f5, R"\n')
    assert settings.load(path) == Settings(path, "ansi-dark", 10.0, {"rerun": "f5,R"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("theme = ", ": not valid TOML"),
        ("theme = 3", "theme is 3"),
        ("bell = true", "bell is True"),
        ("bell = -1", "bell is -1"),
        ("keys = 1", "keys is 1"),
        ("[keys]\nrerun = 5", "keys.rerun is 5"),
        ('[keys]\nrerun = "a,"', "keys.rerun is 'a,'"),
        ("bell = nan", "bell is nan"),
        ("bell = 1e999", "bell is inf"),
        ("bell = 1" + "0" * 400, "bell: an integer of more than 64 bits"),
        ("bell = 1" + "0" * 5000, "line 1: a number has too many digits"),
        ("theme = " + "[" * 3000 + "]" * 3000, "nested too deep"),
    ],
)
def test_a_mistake_is_named(text: str, said: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        settings.load(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour = 1", "unknown setting 'colour'; expected theme, bell or [keys]"),
        (f'"{"x" * 100_000}" = 1', "unknown setting 'xxx"),
        ('"a\\nb" = 1', r"unknown setting 'a\nb'"),
    ],
)
def test_a_setting_of_another_version_is_a_warning(text: str, said: str, tmp_path: Path) -> None:
    found = settings.load(write(tmp_path, f"bell = 3\n{text}"))
    assert found.bell == 3
    warning = user_keys.doubtful(found)
    assert said in warning
    assert len(warning) < 1000
    assert "\n" not in warning


def test_a_fifo_in_the_place_of_the_settings_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.toml")
    with pytest.raises(SettingsError, match=r"config.toml: a fifo, not a regular file"):
        settings.load(tmp_path / "config.toml")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Settings(theme="neon"), "unknown theme 'neon'; choose from ansi-dark, kernbench$"),
        (Settings(keys={"rerun": "f5,blah+zz"}), "keys.rerun: 'blah.zz' is not a key; use one such as f5, ctrl.r or R"),
        (Settings(keys={"rerun": "F5"}), "keys.rerun: 'F5' is not a key"),
        (Settings(keys={"rerun": "q"}), "keys.rerun uses the same key as quit"),
        (Settings(keys={"rerun": "?"}), "keys.rerun uses the same key as help"),
        (Settings(keys={"rerun": "f5,G"}), "keys.rerun uses the same key as last"),
        (Settings(keys={"open": "r"}), "keys.open uses the same key as rerun"),
    ],
)
def test_what_the_screen_does_not_have(given: Settings, said: str) -> None:
    with pytest.raises(SettingsError, match=said.replace("?", r"\?")):
        user_keys.check(given, {"kernbench", "ansi-dark"})


def test_an_action_that_does_not_exist_is_a_warning() -> None:
    """An upgrade that renames one must not lock anybody out."""
    given = Settings(keys={"rerum": "f5", "wall": "f6"})
    user_keys.check(given, {"kernbench"})
    said = user_keys.doubtful(given)
    assert said.startswith("config.toml: unknown action 'rerum' in [keys]; did you mean rerun, filter or export? The")
    assert "did you mean rerun? The help page (?)" in user_keys.doubtful(Settings(keys={"zq9": "f5"}))


@pytest.mark.parametrize("key", ["f5", "~", "ctrl+y", "alt+f5", "shift+f7", "percent_sign", "underscore", "insert"])
def test_keys_that_a_terminal_sends(key: str) -> None:
    user_keys.check(Settings(keys={"wall": key}), {"kernbench"})


def test_the_own_keys_are_keys() -> None:
    for binding in [*main_bindings(), *list_bindings()]:
        if binding.id:
            user_keys.check(Settings(keys={binding.id: binding.key}), {"kernbench"})


def test_two_keys_may_be_exchanged() -> None:
    user_keys.check(Settings(keys={"rerun": "z", "pause": "r"}), {"kernbench"})


def test_a_key_that_means_something_else_on_a_page_is_told() -> None:
    said = "R is bound to rerun, but in an entry it means restore (rebind keys.entry.restore)"
    assert user_keys.doubtful(Settings(keys={"rerun": "f5,R"})) == said
    assert user_keys.doubtful(Settings(keys={"rerun": "f5,R", "entry.restore": "B"})) == ""
    assert user_keys.doubtful(Settings(keys={"rerun": "f5,ctrl+r"})) == ""  # the settings' own example


@pytest.mark.anyio
async def test_a_key_of_ones_own_stays_in_the_key_line(engine: FakeEngine) -> None:
    app = make_app(engine, settings=Settings(theme="kernbench", keys={"rerun": "f5,R"}))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert screen_text(app).splitlines()[-1].startswith("enter row  f5 run  space pause")


@pytest.mark.anyio
async def test_what_was_said_ends_with_its_screen(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app(engine)
    monkeypatch.setattr("kernbench.tui.app.SAID_WITH_A_CHANGE_SECONDS", 60.0)  # however slow the machine is
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        app.say("copied")
        await pilot.press("enter")
        await pilot.pause()
        assert len(app._notifications) == 1  # said with the change
        monkeypatch.setattr("kernbench.tui.app.SAID_WITH_A_CHANGE_SECONDS", 0.0)
        await pilot.press("escape")
        await pilot.pause()
        assert len(app._notifications) == 0


def test_every_command_of_the_palette_has_a_name_of_its_own(engine: FakeEngine) -> None:
    app = make_app(engine)
    names = [command.title for command in app.get_system_commands(app.main)]
    assert len(names) == len(set(names))


def test_where_the_file_lies() -> None:
    assert settings.place({"XDG_CONFIG_HOME": "/x"}) == Path("/x/kernbench/config.toml")
    assert settings.place({"HOME": "/home/dev"}) == Path("/home/dev/.config/kernbench/config.toml")


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"TERM": "xterm"}, "ansi-dark"),
        ({"TERM": "linux"}, "ansi-dark"),
        ({"TERM": "xterm-256color"}, "kernbench"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "ansi-dark"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "kernbench"),
    ],
)
def test_sixteen_colours_are_the_terminals_own(environ: dict[str, str], name: str) -> None:
    assert theme.default({**environ, "HOME": "/nowhere"}, {"nord"}) == name


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return tmp_path / "state"


async def choose(app: Workbench, name: str) -> list[str]:
    """As in the palette; returns what is said about it."""
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        app.search_themes()
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await pilot.press(*name)
        await until(pilot, lambda: app.screen.query_one(OptionList).option_count == 1)
        await pilot.press("enter")
        await until(pilot, lambda: app.theme == name)
        await settle(pilot)
        return [note.message for note in app._notifications]


@pytest.mark.anyio
async def test_a_theme_chosen_on_the_screen_comes_back(engine: FakeEngine, state: Path) -> None:
    app = make_app(engine, settings=Settings())
    assert app.theme == "kernbench"
    assert await choose(app, "nord") == []
    assert make_app(FakeEngine(), settings=Settings()).theme == "nord"
    assert TaskPicker([]).theme == "nord"
    (state / "kernbench" / "theme").write_text("of another version\n")
    assert make_app(FakeEngine(), settings=Settings()).theme == "kernbench"
    (state / "kernbench" / "theme").write_bytes(b"\xff")
    assert make_app(FakeEngine(), settings=Settings()).theme == "kernbench"


@pytest.mark.anyio
async def test_nothing_is_remembered_that_nobody_chose(engine: FakeEngine, state: Path) -> None:
    async with make_app(engine, settings=Settings()).run_test() as pilot:
        await settle(pilot)
    assert not state.exists()


@pytest.mark.anyio
async def test_the_theme_in_the_settings_comes_before_the_one_chosen(
    engine: FakeEngine, state: Path, tmp_path: Path
) -> None:
    path = write(tmp_path, 'theme = "textual-light"  # mine\n')
    said = await choose(make_app(engine, settings=settings.load(path)), "nord")
    assert said == [f"{path} sets textual-light, which comes back at the next start; remove it to keep nord"]
    assert make_app(FakeEngine(), settings=settings.load(path)).theme == "textual-light"
    assert path.read_text() == 'theme = "textual-light"  # mine\n'


@pytest.mark.anyio
async def test_a_theme_that_cannot_be_remembered_says_so(engine: FakeEngine, state: Path) -> None:
    state.write_text("a file in the way")
    app = make_app(engine, settings=Settings())
    said = await choose(app, "nord")
    assert said == [f"the theme is not remembered: {state}/kernbench/theme cannot be written: Not a directory"]


@pytest.mark.anyio
async def test_no_color_means_none(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_app(engine, settings=Settings())
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(*whole_run())
        await settle(pilot)
        assert app.theme == "ansi-dark"
        assert [type(item).__name__ for item in app._filters if "Color" in type(item).__name__] == ["NoColor"]


@pytest.mark.anyio
async def test_keys_of_ones_own_work_and_are_named(engine: FakeEngine) -> None:
    app = make_app(engine, settings=Settings(theme="kernbench", keys={"rerun": "f5,R", "pause": "z"}))
    async with app.run_test(size=(120, 60)) as pilot:
        await pilot.press("r", "f5", "R", "z")
        assert (engine.reruns, engine.paused) == (2, True)
        await pilot.press("question_mark", *"rerun")
        await pilot.pause()
        assert "f5, R        re-run now" in screen_text(app)


@pytest.mark.anyio
async def test_the_old_name_of_the_output_pane_still_works(engine: FakeEngine, tmp_path: Path) -> None:
    found = settings.load(write(tmp_path, 'theme = "kernbench"\n[keys]\n"pane.log" = "f7"\n'))
    app = make_app(engine, settings=found)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("5")
        await pilot.pause()
        assert app.focused is app.main.results  # the user gave it another key
        await pilot.press("f7")
        await pilot.pause()
        assert app.focused is app.main.output
        await pilot.press("question_mark", *"pane.output")
        await pilot.pause()
        assert re.search(r"f7 +show the output +pane\.output", screen_text(app))


def test_the_new_name_of_an_action_comes_before_its_old_one() -> None:
    given = Settings(keys={"pane.output": "f8", "pane.log": "f7"})
    assert user_keys.renamed(given).keys == {"pane.output": "f8"}
    with pytest.raises(SettingsError, match=r"keys.pane.output uses the same key as quit"):
        user_keys.check(user_keys.renamed(Settings(keys={"pane.log": "q"})), {"kernbench"})


@pytest.mark.anyio
@pytest.mark.parametrize(("bell", "rings"), [(0.0, 0), (0.5, 1), (5.0, 0)])
async def test_the_bell_rings_for_long_runs_only(bell: float, rings: int, engine: FakeEngine) -> None:
    app = make_app(engine, settings=Settings(theme="kernbench", bell=bell))
    rung: list[int] = []
    app.bell = lambda: rung.append(1)  # type: ignore[method-assign]
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(*whole_run())
        await settle(pilot)
        assert len(rung) == rings


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["ansi-dark", "ansi-light", "textual-light", "nord"])
async def test_every_theme_shows_the_same_words(name: str, engine: FakeEngine) -> None:
    app = make_app(engine, settings=Settings(theme=name))
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(*whole_run())
        await settle(pilot)
        assert "> wan 75600x5120" in screen_text(app)
