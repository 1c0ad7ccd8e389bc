"""The panes and pages beyond the table: filter, order, wall time, words, copies, diffs, other tasks."""

from __future__ import annotations

import dataclasses
import os
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from harness.shared.errors import Where
from harness.shared.run_request import Environment
from kernbench.diagnosis.counters import Kernel, Profile
from kernbench.diagnosis.rules import diagnose
from kernbench.events import (
    BuildFailed,
    CaseLanded,
    LogLine,
    ProfileFailed,
    ProfileReady,
    ProfileStarted,
    Progress,
    RunCancelled,
    RunFinished,
    WorkerChanged,
)
from kernbench.log import stored_sources
from kernbench.log.logbook import Logbook
from kernbench.machine import clipboard
from kernbench.tui.app import Workbench
from kernbench.tui.pages.history import DiffPage
from kernbench.tui.panes.iterations import Iterations
from kernbench.tui.panes.output import place_in
from kernbench.tui.panes.profile import lines
from kernbench.tui.state.board import Board
from kernbench.tui.text import clipboard_text, diff_text, headline, sort_filter
from kernbench.tui.text import status_text as words
from kernbench.tui.text.result_columns import bar
from kernbench.tui.text.row_detail import histogram
from tests.log.logs import make_log
from tests.tui.scene import (
    BROKEN,
    H200,
    HOST,
    NOW,
    STARTED,
    TASKS,
    FakeEngine,
    Sample,
    checked_only,
    feel,
    h200,
    history,
    landed,
    make_app,
    make_task,
    progress,
    right,
    screen_text,
    settle,
    summary,
    until,
    whole_run,
    wrong,
)

READY = WorkerChanged("ready", H200)


def plain(found: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in found]


@pytest.mark.anyio
async def test_the_filter_follows_every_letter(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, *whole_run())
        await settle(pilot)
        await pilot.press("slash", *"slower")
        await pilot.pause()
        assert [case.label for case in app.main.results.cases] == ["mova 101x1536"]
        await pilot.press("enter")
        await pilot.pause()
        assert app.focused is app.main.results
        assert "1 of 6 rows match 'slower'; esc: show all" in screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert "nss_s101_d1536" in screen_text(app)
        await pilot.press("escape", "escape")
        await pilot.pause()
        assert len(app.main.results.cases) == 6
        await pilot.press("slash", *"qqq", "enter", "enter")
        await pilot.pause()
        assert any("the filter matches none" in note.message for note in app._notifications)
        await pilot.press("Y")
        await pilot.pause()
        assert [note.message for note in app._notifications][-1] == "no row to copy"
        await pilot.press("slash", "escape")
        await pilot.pause()
        assert app.main.results.filter_text == ""
        assert app.main.results.selected.case.label == "mova 101x1536"


@pytest.mark.anyio
async def test_rows_keep_their_places_while_a_run_lands(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, *whole_run())
        await settle(pilot)
        await pilot.press("s")
        before = [case.label for case in app.main.results.cases]
        assert before[0] == "mova 101x1536"
        better = dataclasses.replace(right(4), speedup=2.0, low=1.9, high=2.1, verdict="faster")
        engine.say(STARTED, *landed(better))
        await settle(pilot)
        assert [case.label for case in app.main.results.cases] == before
        engine.say(*whole_run()[-1:])
        await settle(pilot)
        assert [case.label for case in app.main.results.cases][-2:] == ["mova 101x1536", "smoke 3x64"]


@pytest.mark.anyio
async def test_wall_time_at_a_key(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        engine.say(READY, *whole_run())
        await settle(pilot)
        await pilot.press("m")
        await pilot.pause()
        assert "549.8    404.4   1.360x" in screen_text(app)
        await pilot.press("m")
        walled = [dataclasses.replace(right(index), wall=None, clock="wall") for index in range(5)]
        engine.say(STARTED, *landed(*walled))
        await settle(pilot)
        await pilot.press("m")
        await pilot.pause()
        assert [note.message for note in app._notifications] == ["these are already wall times"]


@pytest.mark.anyio
async def test_several_lines_and_what_was_written_before(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("h", *"one", "ctrl+j", *"two", "enter")
        await pilot.pause()
        assert engine.hypothesis == "one\ntwo"
        assert "hypothesis: one two" in screen_text(app)
        await pilot.press("h", "up", "up", "enter")
        assert engine.hypothesis == "16-byte loads"
        await pilot.press("h", "up", "down", "!", "enter")
        assert engine.hypothesis == "16-byte loads!"


@pytest.mark.anyio
async def test_copies_are_always_in_a_file(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        engine.say(READY, *whole_run())
        await settle(pilot)
        copied = engine.state / clipboard.LAST_COPY
        await pilot.press("y")
        await until(pilot, lambda: copied.exists() and copied.read_text() == app.clipboard)
        assert copied.read_text() == app.clipboard
        assert "| wan 75600x5120 | 518.6 | 371.4 | 1.396x ±0.4% | ▲ faster |" in app.clipboard
        await pilot.press("Y")
        await until(pilot, lambda: copied.read_text().count("\n") == 10)
        assert copied.read_text().count("\n") == 10
        await pilot.press("i", "y")
        await until(pilot, lambda: any("entry" in note.message for note in app._notifications))
        assert copied.read_text().startswith("## 12 ·")
        assert [note.message.partition(" to ")[0] for note in app._notifications] == ["copied entry 12"]


def test_a_copy_reaches_tmux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "tmux"
    fake.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\ncat > {tmp_path}/buffer\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    said = clipboard.keep("m[bf16] ±", "the table", tmp_path / "state", {"TMUX": "x"})
    assert said == "copied the table to the terminal's clipboard, the tmux buffer and state/last-copy.md"
    assert (tmp_path / "buffer").read_text() == "m[bf16] ±"
    assert (tmp_path / "words").read_text() == "load-buffer -w -\n"
    said = clipboard.keep("x" * 100_000, "the table", tmp_path / "state", {})
    assert said == "copied the table to state/last-copy.md"


def test_a_copy_that_cannot_be_kept_says_so(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    said = clipboard.keep("x", "the row", tmp_path / "state", {})
    assert said.startswith("copied the row to the terminal's clipboard; cannot write ")
    said = clipboard.keep("x" * 100_000, "the table", tmp_path / "state", {})
    assert said.startswith(f"could not copy the table: cannot write {tmp_path}/state")


@pytest.mark.anyio
async def test_an_entry_its_source_its_diff_and_back(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("4", "down", "enter", "d")
        await pilot.pause()
        assert "iteration 11 -> working copy" in screen_text(app)
        assert "- BLOCK = 11" in screen_text(app)
        await pilot.press("o", "home", "enter")
        await pilot.pause()
        assert "- BLOCK = 4" in screen_text(app)
        await pilot.press("v")
        await until(pilot, lambda: "no machine code of best" in screen_text(app))
        await pilot.press("v")
        await pilot.pause()
        assert "- BLOCK = 4" in screen_text(app)  # two columns would cut what changed
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert "|    3 BLOCK = 8" in screen_text(app)
        await pilot.press("v")
        await pilot.pause()
        assert "- BLOCK = 4" in screen_text(app)
        await pilot.resize_terminal(80, 24)
        await pilot.press("escape", "v")
        await pilot.pause()
        assert "   5 def kernel(x, m[bf16]):" in screen_text(app)
        await pilot.press("escape", "R", "enter")
        assert engine.restored == []
        assert [note.message for note in app._notifications][-1] == "nothing restored"
        await pilot.press("R", "y")
        await pilot.pause()
        assert engine.restored == ["11"]
        assert app.screen is app.main
        await pilot.press("5")
        await until(pilot, lambda: "-- restored 11: solution.py" in screen_text(app))
        assert "-- restored 11: solution.py" in screen_text(app)  # when the line below has gone


@pytest.mark.anyio
async def test_a_diff_follows_the_files(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernbench.tui.pages.history.LOOK_SECONDS", 0.02)
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("d")
        await until(pilot, lambda: "+ BLOCK = 8" in screen_text(app))
        engine.source_now = "BLOCK = 16"
        await until(pilot, lambda: "+ BLOCK = 16" in screen_text(app))
        assert "- BLOCK = 4" in screen_text(app)
        assert "+ BLOCK = 16" in screen_text(app)


@pytest.mark.anyio
async def test_a_source_that_is_not_here_says_so(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        app.past.show_diff("7", "now")
        await pilot.pause()
        assert [note.message for note in app._notifications] == ["the source of 7 is not on this machine"]
        assert not isinstance(app.screen, DiffPage)


@pytest.mark.anyio
async def test_another_task_without_leaving(engine: FakeEngine) -> None:
    app = make_app(engine, tasks=TASKS)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("T", "down", "enter")
        await until(pilot, lambda: app.engine is not engine and app.engine.started)
        assert engine.closed
        assert app.engine is not engine
        assert app.engine.started
        engine.say(*whole_run())  # last words of the task that was left
        await settle(pilot)
        assert "no result yet" in screen_text(app)
        await pilot.press("r")
        assert app.engine.reruns == 1


@pytest.mark.anyio
async def test_without_other_tasks_the_key_says_why(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("T")
        await pilot.pause()
        assert "--state" in next(iter(app._notifications)).message


@pytest.mark.anyio
async def test_help_is_searched_by_typing(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark", *"markdown")
        await pilot.pause()
        text = screen_text(app)
        assert "copy the table as Markdown" in text
        assert "the hypothesis" not in text
        await pilot.press(*"xyz")
        await pilot.pause()
        assert "no match; ctrl+p" in screen_text(app)
        await pilot.press("escape", "escape")
        await pilot.pause()
        assert app.screen is app.main


@pytest.mark.anyio
@pytest.mark.parametrize("size", [(60, 15), (80, 24), (160, 48)])
async def test_help_leads_to_the_guide_and_back(engine: FakeEngine, size: tuple[int, int]) -> None:
    app = make_app(engine)
    async with app.run_test(size=size) as pilot:
        await pilot.press("question_mark")
        await settle(pilot)
        assert "ctrl+g: the guide" in screen_text(app)
        await pilot.press("ctrl+g")
        await settle(pilot)
        assert "first " in screen_text(app)
        await pilot.press("enter")
        await settle(pilot)
        assert "Guide: first" in screen_text(app)
        assert "You need a Python with torch" in screen_text(app)
        await pilot.press("question_mark", "escape")
        await settle(pilot)
        assert "Guide: first" in screen_text(app)
        await pilot.press("escape")
        await settle(pilot)
        assert "(read last)" in screen_text(app)
        await pilot.press("escape")
        await settle(pilot)
        assert app.screen is app.main


@pytest.mark.anyio
async def test_what_fails_before_a_worker_is_asked_for_starts_none(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert "starting the worker" in screen_text(app)
        engine.say(BuildFailed("", "", f"nothing was run (Permission denied): cannot write to {'/far' * 20}"))
        await settle(pilot)
        assert "Permission denied" in screen_text(app)
        assert "starting the worker" not in screen_text(app)
        engine.say(WorkerChanged("starting"))
        await settle(pilot)
        assert "starting the worker" in screen_text(app)


@pytest.mark.anyio
async def test_a_stranger_on_the_gpu_is_said_everywhere(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        engine.say(READY, *whole_run())
        await settle(pilot)
        both = tuple(dataclasses.replace(h200().processes[0], pid=pid, ours=pid == 4242) for pid in (4242, 99))
        feel(app, [Sample(HOST, (h200(processes=both),))])
        await settle(pilot)
        assert "the GPU is shared with 1 process: times may be off (2: details)" in screen_text(app)
        assert "GPU !" in screen_text(app)


@pytest.mark.anyio
async def test_a_place_in_the_log_opens_the_editor(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        engine.say(READY, LogLine("warning in solution.py:12: unused"))
        await pilot.press("5")
        await settle(pilot)
        await pilot.click("#output", offset=(10, 0))
        await pilot.pause()
        assert any("solution.py:12" in note.message for note in app._notifications)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("solution.cu(41): error: identifier", Where("solution.cu", 41)),
        ('  File "/a b/solution.py", line 7, in kernel', Where("/a b/solution.py", 7)),
        ("see ../x/helper.cpp:9:3", Where("../x/helper.cpp", 9)),
        ("at 12:30 nothing.txt:4", None),
    ],
)
def test_places_in_text(text: str, where: Where | None) -> None:
    assert place_in(text) == where


def test_what_a_filter_looks_at(engine: FakeEngine) -> None:
    app = make_app(engine)
    rows = app.board.rows()
    assert [row.case.label for row in sort_filter.arrange(rows, "task", "qwen -m[bf16]")] == ["qwen 4096x3072"]
    assert len(sort_filter.arrange(rows, "task", "nondeterministic")) == 1
    assert sort_filter.arrange(rows, "time", "")[0].case.label == "wan 75600x5120"
    assert sort_filter.arrange(rows, "roof", "")[0].case.label == "mova 101x1536"
    assert sort_filter.arrange(rows, "name", "")[0].case.label == "mova 101x1536"


def test_a_filter_takes_globs_as_run_does(engine: FakeEngine) -> None:
    rows = make_app(engine).board.rows()

    def found(text: str) -> list[str]:
        return [row.case.label for row in sort_filter.arrange(rows, "task", text)]

    assert found("7????x*") == ["wan 75600x5120", "wan 74088x5120"]
    assert found("*x5120") == ["wan 75600x5120", "wan 74088x5120"]
    assert found("NSS_s4[07]*") == ["qwen 4096x3072", "qwen m[bf16] 47"]  # an id
    assert found("wan -74*x5120") == ["wan 75600x5120"]
    assert found("m[bf16]") == ["qwen m[bf16] 47"]  # its own letters, though they are a pattern too
    assert found("9*x1") == []


@pytest.mark.anyio
async def test_an_order_by_what_no_row_has_is_not_offered(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        dark = [dataclasses.replace(right(index), roofline=None) for index in range(5)]
        engine.say(READY, STARTED, *landed(*dark))
        await settle(pilot)
        seen = []
        for _ in range(5):
            await pilot.press("s")
            seen.append(app.main.results.sort)
        assert seen == ["speedup", "time", "name", "task", "speedup"]


@pytest.mark.anyio
async def test_the_order_is_named_at_every_key(engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        engine.say(READY, *whole_run())
        await settle(pilot)
        for words_of_order in (
            "sorted: lowest speedup first",
            "sorted: longest time first",
            "sorted: lowest % roof first",
            "sorted: by name",
            "sorted: task order",
        ):
            await pilot.press("s")
            shown = partial(_says, app, words_of_order)
            await until(pilot, shown)
            assert shown(), words_of_order


def _says(app: Workbench, words: str) -> bool:
    return screen_text(app).splitlines()[-2].strip() == words


def test_bars_grow_from_the_middle() -> None:
    assert bar(None, 2.0) == ""
    assert bar(1.0, 2.0) == "       │"
    assert bar(2.0, 2.0) == "       │███████"
    assert bar(0.5, 2.0) == "███████│"
    assert bar(1.4, 2.0) == "       │███▌"
    assert bar(100.0, 2.0) == "       │███████"


def test_a_histogram_has_a_cell_for_every_sample() -> None:
    assert histogram((5.0,), 5, True) == "  #  "
    assert histogram((1.0, 1.0, 1.0, 9.0), 4, True) == "#  -"


def test_a_difference_in_one_and_two_columns() -> None:
    old = {"a.py": "x\n[red]y\n", "gone.py": "1\n", "same.py": "s\n"}
    new = {"a.py": "x\n[red]z\n", "new.py": "2\n", "same.py": "s\n"}
    text = plain(diff_text.lines(old, new, 60, columns=False))
    assert text[:5] == ["a.py", "@@ line 1 @@", "  x", "- [red]y", "+ [red]z"]
    assert {"gone.py (deleted)", "new.py (new)"} <= set(text)
    assert "   2 [red]y                  |    2 [red]z" in plain(diff_text.lines(old, new, 60, columns=True))
    assert plain(diff_text.lines(new, new, 60, columns=False)) == ["no difference"]


def test_no_end_of_a_changed_line_is_cut() -> None:
    old, new = {"a.py": "x = " + "a + " * 10 + "1\n"}, {"a.py": "x = " + "a + " * 10 + "2\n"}
    one = plain(diff_text.lines(old, new, 30, columns=False))
    assert one[2:] == ["- x = a + a + a + a + a + a +", "  a + a + a + a + 1", "+ x = a + a + a + a + a + a +",
                       "  a + a + a + a + 2"]  # fmt: skip
    two = plain(diff_text.lines(old, new, 63, columns=True))
    assert [line.rstrip()[-1] for line in two[2:]] == ["a", "2"]
    assert two[-1].split(" | ")[0].rstrip().endswith("+ 1")


def test_the_iterations_mark_the_best_of_today(tmp_path: Path) -> None:
    task = make_log(tmp_path / "t", 40, cases=2)
    book = Logbook(tmp_path / "t", tmp_path / "t" / ".kernbench", task)
    pane = Iterations(lambda: NOW, ascii_only=False)
    pane._iterations = listed = book.iterations()
    assert plain([pane.header(80)])[0].endswith("  * best now")
    assert plain([pane.header(51)])[0].endswith("  * best")  # the pane of 160 columns
    best = stored_sources.summary_of(task, book.journal, "best").iteration
    drawn = plain([pane.line(index, 80) for index in range(len(listed))])
    assert [int(line.split()[0]) for line in drawn if "* " in line] == [best]
    stalled = [line for line, item in zip(drawn, reversed(listed), strict=True) if item.stalled]
    assert stalled
    assert all("stalled | " in line for line in stalled)


def test_an_outcome_fits_its_column() -> None:
    pane = Iterations(lambda: NOW, ascii_only=False)
    pane._iterations = [summary(3, right=False, geomean=None, counts={"build_error": 10})]
    assert " - build err 16-byte loads" in plain([pane.line(0, 80)])[0]


def test_a_profile_has_an_age_and_a_source(engine: FakeEngine) -> None:
    row = make_app(engine).board.rows()[0]
    kernel = Kernel(name="m[bf16]", duration_us=371.0)
    profile = Profile(kernels=(kernel,), case=row.case.id, source="ab12cd34ef", at="2026-11-14T21:27:00+00:00")
    ready = ProfileReady(row.case.id, profile, diagnose(profile))
    assert plain(lines(row, ready, "ab12cd34ef", NOW, 60))[0] == "3 min old, source ab12cd34"
    stale = plain(lines(row, ready, "other", NOW, 60))
    assert stale[0] == "stale: 3 min old, source ab12cd34; another source has run"
    assert any("371" in line for line in stale)
    failed = ProfileFailed(row.case.id, "ncu may not read the counters")
    assert plain(lines(row, failed, "", NOW, 60)) == ["ncu may not read the counters"]
    started = ProfileStarted(row.case.id, warm=False)
    assert plain(lines(row, started, "", NOW, 60)) == ["profiling wan 75600x5120 (starting ncu)"]
    assert plain(lines(row, None, "", NOW, 60))[0] == "wan 75600x5120: not profiled yet"
    assert plain(lines(None, None, "", NOW, 60)) == ["the task has no rows"]


@pytest.mark.anyio
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 48)])
async def test_n_asks_for_a_profile_and_shows_it(size: tuple[int, int], engine: FakeEngine) -> None:
    app = make_app(engine)
    async with app.run_test(size=size, notifications=True) as pilot:
        await pilot.press("n")
        assert [note.message for note in app._notifications] == ["the worker is still starting"]
        engine.say(WorkerChanged("ready", Environment(device="cpu")))
        await settle(pilot)
        await pilot.press("n")
        assert engine.profiled == []
        assert ["is on the CPU" in note.message for note in app._notifications] == [True]
        engine.say(READY, *whole_run())
        await settle(pilot)
        await pilot.press("n")
        case = app.board.cases[0].id
        assert engine.profiled == [(case, False)]
        engine.say(ProfileStarted(case), ProfileFailed(case, "ncu is not installed: apt install m[bf16]"))
        await settle(pilot)
        pane = app.main.profile
        assert pane.size.area
        assert "install m[bf16]" in " ".join(plain([pane.line(index, 40) for index in range(pane.count())]))
        assert "ncu is not installed" in screen_text(app)


@pytest.mark.anyio
async def test_a_profile_says_what_the_logs_know_of_what_it_advises(engine: FakeEngine) -> None:
    app = make_app(engine)
    case = app.board.cases[0].id
    profile = Profile(kernels=(Kernel("m", duration_us=100.0, sm_pct=35.0, dram_pct=88.0),), case=case)
    found = diagnose(profile)
    engine.known = {found.tries[0].name: ("tried in norm_infer #5: 3.157 -> 3.005 us, improved",)}
    async with app.run_test(size=(160, 48)) as pilot:
        engine.say(ProfileReady(case, profile, found))
        await settle(pilot)
        pane = app.main.profile
        shown = plain([pane.line(index, 80) for index in range(pane.count())])
        at = next(place for place, line in enumerate(shown) if line.startswith(f"try {found.tries[0].name}"))
        assert "    tried in norm_infer #5: 3.157 -> 3.005" in "\n".join(shown[at + 1 : at + 4])


@pytest.mark.anyio
async def test_export_asks_for_a_format_and_before_it_overwrites(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(engine.state.parent)
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("w")
        await until(pilot, lambda: "Export as" in screen_text(app))
        assert "(" not in next(line for line in screen_text(app).splitlines() if "md: Markdown" in line)
        await pilot.press("enter")
        await until(pilot, lambda: engine.exported and app._notifications)
        assert [note.message for note in app._notifications] == [f"wrote {engine.state.name}/log.md"]
        assert engine.exported == [("md", False)]
        await pilot.press("w", "enter", "n", "w", "enter", "y")
        await until(pilot, lambda: len(engine.exported) == 2)
        assert engine.exported == [("md", False), ("md", True)]
        await pilot.press("w", "down", "down", "down", "enter")
        await until(pilot, lambda: any("nothing exported:" in note.message for note in app._notifications))
        assert [note.message for note in app._notifications][-1] == "nothing exported: Jinja2 is not installed"


def test_what_is_left_of_a_run(engine: FakeEngine) -> None:
    app = make_app(engine)
    board = app.board
    slow = [dataclasses.replace(item, seconds=30.0, counts={"ok": 10}) for item in history()]
    board.usual_seconds = words.usual_seconds(slow, 10)
    assert board.usual_seconds == 30.0
    assert words.usual_seconds(slow, 11) is None
    board.apply(STARTED)
    board.apply(progress("time", 2))
    assert words.state(board, engine, NOW)[0] == "timing 3/10 qwen 4096x3072, about 28 s left"
    assert words.state(board, engine, NOW + timedelta(minutes=1))[0] == "timing 3/10 qwen 4096x3072, 62 s so far"
    board.usual_seconds = 1.0
    assert words.state(board, engine, NOW)[0] == "timing 3/10 qwen 4096x3072"


def test_a_row_that_hangs_is_named_before_the_figures_of_the_save_before(engine: FakeEngine) -> None:
    board = make_app(engine).board
    for event in (READY, STARTED, progress("check", 4)):
        board.apply(event)
    board.progress_at = NOW

    def line(seconds: float, width: int = 78) -> str:
        return plain([headline.line_one(board, engine, width, False, NOW + timedelta(seconds=seconds))])[0]

    assert "mova" not in line(0)
    assert "checking 5/10 mova 101x1536 for 7 s" in line(7.5)
    assert "prev: ✓" in line(7.5)
    assert "1.31x" in line(7.5)


def test_a_compiler_at_work_is_named_with_the_seconds_of_its_step(engine: FakeEngine) -> None:
    board = make_app(engine).board
    loading = Progress(STARTED.run, "load", None, 0, 10)
    for event in (READY, STARTED, loading):
        board.apply(event)
    board.progress_at = NOW
    compiling = dataclasses.replace(loading, compiler="g++")
    assert board.continues(compiling)
    assert not board.continues(dataclasses.replace(compiling, step="check"))
    board.apply(compiling)
    assert words.state(board, engine, NOW)[0] == "compiling (g++)"
    assert words.state(board, engine, NOW + timedelta(seconds=42)) == ("compiling (g++), 42 s", "compiling, 42 s")


def test_markdown_of_a_row_that_failed(engine: FakeEngine) -> None:
    app = make_app(engine)
    for event in [STARTED, *landed(wrong(0))]:
        app.board.apply(event)
    text = clipboard_text.row(app.board.rows()[0])
    assert "| wan 75600x5120 | - | - | - | WRONG | 5.0e-01 |" in text


@pytest.mark.anyio
async def test_a_long_past_does_not_hold_the_first_paint(engine: FakeEngine) -> None:
    engine.is_long = True
    app = make_app(engine)
    assert engine.remembered == 0
    assert app.board.reading
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: engine.started and "518.6" in screen_text(app))
        assert (engine.remembered, engine.started) == (1, True)
        text = screen_text(app)
        assert "1.31x" in text
        assert "16-byte loads" in text
        assert "518.6" in text


def test_a_ratio_to_another_baseline_is_no_change_of_the_source() -> None:
    board = Board(make_task(), H200)
    for event in whole_run():
        board.apply(event)
    board.apply(dataclasses.replace(STARTED, run="run14", baseline="eager"))
    assert all(row.before is None for row in board.rows())
    board.apply(RunFinished(summary(14, run="run14", baseline="eager")))
    board.apply(dataclasses.replace(STARTED, run="run15", baseline="eager"))
    board.apply(CaseLanded("run15", right(0)))
    assert board.rows()[0].before is not None


def test_a_save_that_is_no_python_changes_nothing_about_the_rows_of_the_save_before() -> None:
    """Neither what they are held against, nor how many of the grid were right."""
    board = Board(make_task(), H200)
    checks = [case.id for case in board.task.cases if case.kind == "check"]
    first, second = (CaseLanded("run", checked_only(name)) for name in checks[:2])
    for drawn, index in ((first, 0), (second, 1)):
        started = dataclasses.replace(STARTED, cases=(right(index).id, drawn.result.id))
        for event in (started, CaseLanded("run", right(index)), drawn, RunFinished(summary())):
            board.apply(event)
    rows, grid = board.rows(), board.grid()
    for _ in range(2):
        board.apply(STARTED)
        board.apply(BROKEN)
        assert [row.before for row in board.rows()] == [row.before for row in rows]
        assert board.grid() == dataclasses.replace(grid, fresh=False)
    assert (grid.total, grid.landed, grid.right) == (1, 1, 1)


def test_a_failure_of_an_older_draw_vanishes_when_a_newer_run_ends() -> None:
    board = Board(make_task(), H200)
    old, new = [case.id for case in board.task.cases if case.kind == "check"][:2]
    runs = ((old, "wrong", RunFinished(summary())), (new, "ok", RunCancelled("run", "a newer save")))
    for drawn, status, ending in runs:
        for event in (STARTED, CaseLanded("run", checked_only(drawn, status)), ending):
            board.apply(event)
        assert old in [row.case.id for row in board.rows()]  # also where a newer run was broken off
    for event in (STARTED, CaseLanded("run", checked_only(new)), RunFinished(summary())):
        board.apply(event)
    assert old not in [row.case.id for row in board.rows()]


def test_a_row_is_held_against_the_finished_run_before_its_own() -> None:
    """Also where the run that it landed in was broken off, and others had not landed yet."""
    board = Board(make_task(), H200)
    older, newer, newest = (dataclasses.replace(right(0), solution_us=us) for us in (3.0, 2.0, 1.0))
    for event in (STARTED, CaseLanded("run", older), CaseLanded("run", right(1)), RunFinished(summary())):
        board.apply(event)
    for event in (STARTED, CaseLanded("run", newer), RunCancelled("run", "a newer save"), STARTED):
        board.apply(event)
    assert [(row.result, row.before) for row in board.rows()[:2]] == [(newer, older), (right(1), None)]
    board.apply(CaseLanded("run", newest))
    board.apply(CaseLanded("run", newest))
    assert (board.rows()[0].result, board.rows()[0].before) == (newest, older)
