"""Wrong rows are tried again in a clean worker while nothing else is to be done."""

from __future__ import annotations

import fcntl
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from harness.shared import taskfile
from harness.shared.results import CaseResult
from kernbench.engine import idle_work
from kernbench.engine.jobs import Options
from kernbench.engine.session import Session
from kernbench.events import CaseLanded, Notice, RunFinished, RunStarted, Summary
from kernbench.log import drop_entry
from kernbench.log.entries import trailer
from kernbench.log.runs.journal import Journal
from kernbench.worker.spares import MOST
from tests import FAKE
from tests.harness.child import write_task
from tests.sessions import PATIENT, Watched, reached, summaries, write

pytestmark = pytest.mark.anyio
UNSTEADY = 'DO = "unsteady"\nON = "b"'
CHANGED = {"name": "changed process", "help": "", "red": True, "code": "process_changed"}
DETAIL = "unsteady: wrong in one of two runs; out differs at [0]: got 1, expected 2"


class Asked:
    """Every request for rows that a session sends, in order; those of a second try are `again`."""

    def __init__(self, it: Watched) -> None:
        self.supervisor, self.requests = it.session.supervisor, list[dict[str, Any]]()
        self._talk = self.supervisor.talk
        self.supervisor.talk = self._noted  # type: ignore[method-assign]

    def _noted(self, request: dict[str, Any]) -> AsyncGenerator[Any, None]:
        if request["request"] == "run":
            self.requests.append(request)
        return self._talk(request)

    @property
    def again(self) -> list[dict[str, Any]]:
        return [request for request in self.requests if request["run"].startswith("again-")]

    async def tried(self, count: int = 1) -> None:
        """Until so many second tries are over, and the spare that each took is replaced."""
        await reached(lambda: len(self.again) >= count)
        spares = self.supervisor.spares
        await reached(lambda: not self.supervisor.busy and len(spares.pids) == MOST and spares.all_are("warm"))


def said(it: Watched) -> list[str]:
    return [event.text for event in it.of(Notice) if isinstance(event, Notice)]


def landed(it: Watched, case: str) -> list[CaseResult]:
    return [event.result for event in it.of(CaseLanded) if isinstance(event, CaseLanded) and event.result.id == case]


async def opened(watched: Callable[..., Watched], folder: Path, text: str, **options: object) -> tuple[Watched, Asked]:
    """A session whose first run is over."""
    write(folder, text)
    it = watched(**options)
    asked = Asked(it)
    await it.session.start()
    await it.ended(1)
    return it, asked


async def test_it_waits_for_a_calm_moment(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The save after a wrong one finds the worker that has the exact results already."""
    monkeypatch.setattr(idle_work, "CALM_S", 600.0)
    it, asked = await opened(watched, folder, UNSTEADY)
    spares = asked.supervisor.spares
    await reached(lambda: len(spares.pids) == 1 and spares.all_are("ready"))
    pids = asked.supervisor.pids
    write(folder, f"{UNSTEADY}\nMORE = 1")
    await it.ended(2)
    assert not asked.again
    assert asked.supervisor.pids == pids


async def test_a_row_that_is_right_the_second_time_is_unsteady_and_wrong(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it, asked = await opened(watched, folder, UNSTEADY)
    await asked.tried()
    (run,) = summaries(it)
    (notice,) = said(it)
    expected = "b was right when tried again in a new worker: unsteady, so it counts as wrong"
    assert notice == f"{expected}; look for a race or uninitialized memory"
    first, second = landed(it, "b")
    assert (first.detail, first.findings) == ("out differs at [0]: got 1, expected 2", ())
    assert (second.status, second.detail, [item.code for item in second.findings]) == ("wrong", DETAIL, ["unsteady"])
    assert it.events.index(CaseLanded(run.run, second)) > it.events.index(RunFinished(run))
    reopened = Journal(it.session.state)
    assert reopened.cases_of(run.run)["b"] == reopened.last_cases["b"] == second
    assert {row["id"]: row["detail"] for row in dict(reopened.runs())[run.run]}["b"] == DETAIL
    assert len(reopened.summaries) == 1  # the second try is not a run
    assert not reopened.summaries[0].right
    text = it.session.logbook.path.read_text()
    assert "\n- tried again: b was right in a new worker; unsteady: wrong in one of two runs\n- next: -\n" in text
    assert trailer.rows(text)["b"].status == "wrong"
    assert drop_entry.doubt(it.session.task, reopened, run) == ""  # no line was edited by hand


async def test_it_runs_the_same_rows_with_the_same_seed_in_a_new_worker(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it, asked = await opened(watched, folder, UNSTEADY)
    worker = it.session.supervisor.pids[0]
    await asked.tried()
    first, second = asked.requests
    changed = {name for name in first if first[name] != second[name]}
    assert changed == {"run", "cases", "controls"}
    assert (second["cases"], second["controls"]) == (["b"], False)
    assert worker not in it.session.supervisor.pids
    assert len(it.of(RunStarted)) == 1


async def test_a_row_that_is_wrong_again_is_not_mentioned(watched: Callable[..., Watched], folder: Path) -> None:
    it, asked = await opened(watched, folder, 'DO = "wrong"\nON = "b"')
    await reached(lambda: it.session.logbook.path.exists())
    before = it.session.logbook.path.read_bytes()
    await asked.tried()
    assert (said(it), len(landed(it, "b"))) == ([], 1)
    assert it.session.logbook.path.read_bytes() == before
    assert '"corrected"' not in it.session.logbook.journal.path.read_text()


async def test_at_most_four_rows_are_tried_again(watched: Callable[..., Watched], folder: Path) -> None:
    it, asked = await opened(watched, folder, 'DO = "unsteady"')
    await asked.tried()
    cases = [case.id for case in it.session.task.cases]
    assert len(cases) > 4
    assert asked.again[0]["cases"] == cases[:4]
    assert [len(landed(it, case)) for case in cases] == [2] * 4 + [1] * (len(cases) - 4)
    (notice,) = said(it)
    assert notice.startswith("a 16x16, b, c and ")
    assert "were right when tried again in a new worker: unsteady, so they count as wrong" in notice


async def test_a_save_during_the_second_try_is_answered_and_nothing_comes_of_the_try(
    watched: Callable[..., Watched], folder: Path
) -> None:
    (folder / ".wait").touch()
    it, asked = await opened(watched, folder, 'DO = "unsteady"')
    await reached(lambda: bool(asked.again) and it.session.supervisor.busy)
    write(folder, "TIME_US = 40.0")
    await it.until(lambda: len(summaries(it)) == 2)
    assert summaries(it)[1].right
    assert said(it) == []
    await reached(lambda: it.session.supervisor.spares.any_warm)
    await it.idle()
    assert len(asked.again) == 1
    assert '"corrected"' not in it.session.logbook.journal.path.read_text()


async def test_each_run_is_tried_once_and_a_key_is_no_save(watched: Callable[..., Watched], folder: Path) -> None:
    it, asked = await opened(watched, folder, 'DO = "wrong"\nON = "b"')
    await asked.tried()
    floors = it.session.logbook.journal._floors
    for count in (1, 2):
        await reached(lambda count=count: [len(known) for known in floors.values()] == [count] * 2)  # type: ignore[misc]
        it.session.set_paused(count == 1)  # the next idle time
    it.session.rerun()
    await it.ended(2)
    await reached(lambda: [len(known) for known in floors.values()] == [3] * 2)
    assert len(asked.again) == 1
    write(folder, 'TIME_US = 30.0\nDO = "wrong"\nON = "b"')
    await it.ended(3)
    await asked.tried(2)
    assert asked.again[0]["seed"] != asked.again[1]["seed"]


@pytest.mark.parametrize(
    ("options", "lies"),
    [
        ({"spares": False}, {}),
        ({}, {"load": [{"event": "finding", "finding": CHANGED}]}),
        ({}, {"load": [{"event": "wrote", "files": ["made.py"], "task_files": [], "unseen": False}]}),
    ],
    ids=["no spare", "changed process", "files written"],
)
async def test_without_a_spare_or_the_same_conditions_nothing_is_tried(
    watched: Callable[..., Watched], folder: Path, options: dict[str, object], lies: dict[str, object]
) -> None:
    (folder / "lies.json").write_text(json.dumps(lies))
    it, asked = await opened(watched, folder, UNSTEADY, **options)
    await reached(lambda: len(it.session.logbook.journal.floors) == 2)  # what comes after a second try is done
    assert asked.again == []


async def test_a_log_in_use_elsewhere_is_not_waited_for(watched: Callable[..., Watched], folder: Path) -> None:
    (folder / ".wait").touch()
    it, asked = await opened(watched, folder, UNSTEADY)
    await reached(lambda: bool(asked.again))
    path = it.session.logbook.path
    with path.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (folder / ".wait").unlink()
        await it.until(lambda: bool(said(it)))
    (notice,) = said(it)
    assert " (not noted in the entry: ITERATIONS.md is locked by process " in notice
    assert "tried again" not in path.read_text()
    assert landed(it, "b")[-1].detail == Journal(it.session.state).last_cases["b"].detail == DETAIL


async def test_an_entry_that_people_edited_keeps_their_words(watched: Callable[..., Watched], folder: Path) -> None:
    (folder / ".wait").touch()
    it, asked = await opened(watched, folder, UNSTEADY)
    await reached(lambda: bool(asked.again))
    path = it.session.logbook.path
    edited = path.read_text().replace("- next: -\n", "* next: look at the barrier\n\nMy own remark.\n") + "\nThe end.\n"
    path.write_text(edited)
    (folder / ".wait").unlink()
    await it.until(lambda: bool(said(it)))
    lines = path.read_text().splitlines()
    (added,) = [line for line in lines if line.startswith("- tried again: b was right")]
    assert lines[lines.index(added) - 1].startswith("- result: ")
    assert [line for line in lines if line != added] == edited.splitlines()
    again = Session(it.session.task, it.session.state, Options(harness=FAKE))
    assert [(run.next, run.right) for run in again.logbook.iterations()] == [("look at the barrier", False)]


RACES = """
import os

import torch

FIRST = "{marker}"
if not os.path.exists(FIRST):
    with open(FIRST, "w") as file:
        file.write(str(os.getpid()))
with open(FIRST) as file:
    IS_FIRST = file.read() == str(os.getpid())

def scale(x, factor):
    return x * factor + (1.0 if IS_FIRST and x.shape[0] == 64 else 0.0)
"""


async def test_the_real_worker_is_asked_again(tmp_path: Path) -> None:
    folder = write_task(tmp_path / "scale", solution_py=RACES.replace("{marker}", str(tmp_path / "first")))
    options = Options(deadlines=PATIENT, standby=False, floors=False)
    session = Session(taskfile.load(folder), folder / ".kernbench", options)
    it = Watched(session)
    try:
        await session.start()
        await it.until(lambda: any("tried again" in text for text in said(it)), seconds=300)
    finally:
        await session.close()
    (run,) = summaries(it)
    assert isinstance(run, Summary)
    assert (run.right, run.counts["wrong"], landed(it, "small")[-1].status) == (False, 1, "ok")
    row = Journal(session.state).cases_of(run.run)["large"]
    assert row == landed(it, "large")[-1]
    assert (row.detail or "").startswith("unsteady: wrong in one of two runs; ")
    assert [finding.code for finding in row.findings][-1] == "unsteady"
