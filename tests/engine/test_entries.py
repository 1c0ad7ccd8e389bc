"""What a session writes into the log: entries, and the words a person gives them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.shared import taskfile
from kernbench.engine.jobs import Options
from kernbench.engine.session import Session
from kernbench.events import (
    BuildFailed,
    RunStarted,
    Summary,
)
from tests import FAKE
from tests.sessions import Watched, summaries, write

pytestmark = pytest.mark.anyio


async def test_opening_again_times_without_a_new_entry(watched: Callable[..., Watched], folder: Path) -> None:
    first = watched()
    await first.session.run_once(iteration=True)
    before = first.session.logbook.path.read_bytes()
    again = watched()
    await again.session.start()
    await again.ended(1)
    assert summaries(again)[0].iteration is None
    assert summaries(again)[0].repeats == 1
    assert first.session.logbook.path.read_bytes() == before


def say(it: Watched, text: str) -> str:
    remarks = it.session.notes
    return remarks.set_hypothesis(remarks.hypothesis_for(), text)


async def test_words_go_to_the_entry_they_belong_to(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    say(it, "16-byte loads\nhalve the instructions")
    await it.session.run_once(iteration=True)
    text = it.session.logbook.path.read_text()
    assert "## 1 · 16-byte loads halve the instructions · 2.00x" in text
    assert "- hypothesis: 16-byte loads\n  halve the instructions\n" in text
    assert it.session.notes.set_next("eight rows") == "entry 1 was updated"
    assert "- next: eight rows\n" in it.session.logbook.path.read_text()
    write(folder, "TIME_US = 51.0")
    await it.session.run_once(iteration=True)
    assert say(it, "said afterwards") == "entry 2 was updated"
    assert "## 2 · said afterwards ·" in it.session.logbook.path.read_text()
    assert "the next run" in say(it, "for later")
    again = Session(taskfile.load(folder), folder / ".kernbench", Options(harness=FAKE))
    assert [item.hypothesis for item in again.logbook.iterations()][1] == "said afterwards"
    assert again.logbook.iterations()[0].next == "eight rows"


async def test_the_next_step_goes_to_the_last_entry_after_reopening(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    await it.session.run_once(iteration=True)
    path = it.session.logbook.path

    def reopened(state: str) -> Session:
        return Session(taskfile.load(folder), folder / state, Options(harness=FAKE))

    assert reopened("elsewhere").notes.next_now() == ""
    assert reopened(".kernbench").notes.set_next("eight rows") == "entry 1 was updated"
    assert reopened(".kernbench").notes.next_now() == "eight rows"
    assert reopened("elsewhere").notes.next_now() == "eight rows"  # is there to be edited, and so is not lost
    assert reopened(".kernbench").logbook.iterations()[0].next == "eight rows"
    assert reopened("elsewhere").notes.set_next("ten rows") == "entry 1 was updated"  # the log came without its runs
    assert "- next: ten rows\n" in path.read_text()
    assert reopened(".kernbench").notes.next_now() == "ten rows"
    assert reopened(".kernbench").notes.set_next("twelve rows") == "entry 1 was updated"
    path.write_text(path.read_text().replace("- next: twelve rows\n", "- next: mine\n- next: and this\n"))
    assert "edited by hand" in reopened("elsewhere").notes.set_next("fourteen rows")
    assert "fourteen rows" not in path.read_text()


async def test_a_hypothesis_given_while_the_run_is_on_belongs_to_it(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    write(folder, 'TIME_US = 40.0\nDO = "slow"')
    await it.until(lambda: it.session.running is not None and len(it.of(RunStarted)) == 2)
    say(it, "typed meanwhile")
    await it.ended(2)
    await it.idle()
    assert it.session.notes.hypothesis == ""
    assert it.session.logbook.iterations()[-1].hypothesis == "typed meanwhile"
    assert "- hypothesis: typed meanwhile\n" in it.session.logbook.path.read_text()


async def test_a_hypothesis_stays_until_a_right_result_has_it(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    say(it, "16-byte loads")
    for source, waits in (
        ('DO = "wrong"', "16-byte loads"),
        ('DO = "wrong"\nTIME_US = 52.0', "16-byte loads"),
        ("TIME_US = 51.0", ""),
        ('DO = "wrong"\nTIME_US = 49.0', ""),
    ):
        write(folder, source)
        await it.session.run_once(iteration=True)
        assert it.session.notes.hypothesis == waits
    entries = it.session.logbook.iterations()
    assert [item.right for item in entries] == [False, False, True, False]
    assert [item.hypothesis for item in entries] == ["16-byte loads"] * 3 + [""]


async def test_words_given_while_a_wrong_source_runs_stay_for_its_fix(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    write(folder, 'DO = "wrong"')
    await it.until(lambda: len(it.of(RunStarted)) == 2)
    say(it, "typed meanwhile")
    await it.ended(2)
    await it.idle()
    assert it.session.logbook.iterations()[-1].hypothesis == "typed meanwhile"
    assert it.session.notes.hypothesis == "typed meanwhile"


async def test_a_log_that_is_away_for_a_moment_costs_no_run(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    journal, path = it.session.logbook.journal, it.session.logbook.path
    finish = journal.finish

    def away(*words: Any) -> None:
        finish(*words)
        path.rename(path.with_suffix(".away"))

    monkeypatch.setattr(journal, "finish", away)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: len(summaries(it)) == 2)
    assert not it.of(BuildFailed)
    path.with_suffix(".away").rename(path)
    assert [item.iteration for item in it.session.logbook.iterations()] == [1, 2]


async def test_the_command_of_an_entry_names_the_folder(watched: Callable[..., Watched], folder: Path) -> None:
    (folder / "task.toml").write_text((folder / "task.toml").read_text().replace('name = "toy"', 'name = "real name"'))
    run = await watched().session.run_once(iteration=True)
    assert isinstance(run, Summary)
    assert run.command == f"kernbench run {folder.name}"
