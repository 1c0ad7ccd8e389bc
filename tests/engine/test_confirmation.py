"""A run that would be best is `best?` until a new worker has confirmed it."""

from __future__ import annotations

import asyncio
import fcntl
import json
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from harness.shared import findings, taskfile
from harness.shared.lines import encode
from harness.shared.results import CaseResult, Ratio
from kernbench import render
from kernbench.engine.conversation import confirmation
from kernbench.engine.jobs import Options
from kernbench.engine.session import Session
from kernbench.events import Confirmed, Confirming, Notice, RunStarted, Summary
from kernbench.log import best as best_source
from kernbench.log import drop_entry, stored_sources
from kernbench.log.entries import trailer
from kernbench.log.entries.pulled_entries import PulledEntries
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.series import best_of
from tests.harness.child import write_task
from tests.sessions import PATIENT, Watched, reached, run_and_confirm, summaries, write

pytestmark = pytest.mark.anyio
Watch = Callable[..., Watched]


class Asked:
    """Every `confirm` request that a session sends, in order."""

    def __init__(self, it: Watched) -> None:
        self.requests = list[dict[str, Any]]()
        self.runs = list[dict[str, Any]]()
        self._talk, self._confirm = it.session.supervisor.talk, it.session.supervisor.confirm
        it.session.supervisor.talk = self._noted_run  # type: ignore[method-assign]
        it.session.supervisor.confirm = self._noted  # type: ignore[method-assign]

    def _noted_run(self, request: dict[str, Any]) -> AsyncGenerator[Any, None]:
        if request["request"] == "run":
            self.runs.append(request)
        return self._talk(request)

    def _noted(self, request: dict[str, Any]) -> AsyncGenerator[Any, None]:
        self.requests.append(request)
        return self._confirm(request)

    def sources(self, folder: Path) -> list[str]:
        """What each source says of its time."""
        texts = [(Path(request["source"]) / "solution.py").read_text() for request in self.requests]
        return [text.split("TIME_US = ")[1].split("\n")[0] for text in texts]


def said(it: Watched) -> list[str]:
    return [event.text for event in it.of(Notice) if isinstance(event, Notice)]


def best_now(it: Watched) -> Summary | None:
    book = it.session.logbook
    assert book.environment is not None
    return best_of(book.series(it.session.task, book.environment))


async def opened(watched: Watch, folder: Path, text: str, **options: object) -> tuple[Watched, Asked]:
    """A session whose first run is over."""
    write(folder, text)
    it = watched(**options)
    asked = Asked(it)
    await it.session.start()
    await it.ended(1)
    return it, asked


async def test_a_run_that_would_be_best_is_confirmed_in_a_new_worker(watched: Watch, folder: Path) -> None:
    it, asked = await opened(watched, folder, "TIME_US = 50.0")
    (run,) = summaries(it)
    assert (run.best, run.awaits, run.confirmed, run.holds) == (True, True, None, False)
    assert render.outcome(run) == "best?"
    worker = it.session.supervisor.pids[0]
    event = await it.confirmed()
    assert (event.run, event.confirmed, event.judged) == (run.run, True, 192)
    assert event.why == "2.00x [2.00, 2.00] in a new worker; 192 calls judged"
    assert event.geomean == pytest.approx(2.0)
    assert worker not in it.session.supervisor.pids
    (request,), (first,) = asked.requests, asked.runs
    assert request["run"].startswith("confirm-")
    assert (sorted(request["cases"]), request["controls"]) == (["a", "b", "c"], False)
    assert request["seed"] != first["seed"]
    same = set(first) - {"request", "run", "cases", "controls", "seed"}
    assert {name: request[name] for name in same} == {name: first[name] for name in same}
    best = best_now(it)
    assert best is not None
    assert (best.run, best.confirmed, render.outcome(best)) == (run.run, True, "first")
    assert len(it.of(RunStarted)) == 1  # a confirmation is not a run
    about = [(item.run, item.is_running) for item in it.of(Confirming) if isinstance(item, Confirming)]
    assert about == [(run.run, True), (run.run, False)]


async def test_it_is_on_disk_first_and_the_entry_says_it(watched: Watch, folder: Path) -> None:
    it, _asked = await opened(watched, folder, 'TIME_US = 50.0\nCONFIRM_DO = "wait"')
    path, on_disk = it.session.logbook.path, list[str]()
    assert "## 1 · no hypothesis · 2.00x · best?\n" in path.read_text()
    assert '"best":true,"awaits":true' in path.read_text()
    runs = it.session.logbook.journal.path

    def look(event: object) -> None:
        on_disk.extend([runs.read_text(), path.read_text()] if isinstance(event, Confirmed) else [])

    it.session.listen(look)
    await it.confirmed()
    log, entry = on_disk
    (line,) = [json.loads(line) for line in log.splitlines() if line.startswith('{"event":"confirmed"')]
    assert set(line) == {"event", "run", "confirmed", "why", "geomean", "low", "high", "judged", "seconds"}
    assert "## 1 · no hypothesis · 2.00x · first\n" in entry
    assert "\n- confirmed: 2.00x [2.00, 2.00] in a new worker; 192 calls judged\n- next: -\n" in entry
    data = trailer.read(entry)
    assert data is not None
    assert (data["best"], data["confirmed"], data["awaits"]) == (True, True, True)
    assert trailer.rows(entry)["a"].speedup == pytest.approx(2.0)
    reopened = Journal(it.session.state)
    (run,) = reopened.summaries
    assert (run.confirmed, run.holds) == (True, True)
    assert drop_entry.doubt(it.session.task, reopened, run) == ""  # no line was edited by hand


async def test_until_then_nothing_treats_it_as_best(watched: Watch, folder: Path) -> None:
    it, asked = await opened(watched, folder, 'TIME_US = 50.0\nCONFIRM_DO = "wait"', confirm=False)
    task, journal = it.session.task, it.session.logbook.journal
    found = best_source.find(task, journal, PulledEntries(it.session.logbook.path))
    assert (found.summary, found.reason) == (None, "unsettled")
    with pytest.raises(stored_sources.SourceError, match="waits for its confirmation"):
        stored_sources.find(task, journal, "best")
    write(folder, "TIME_US = 40.0")
    await it.ended(2)
    assert asked.runs[1]["best"] is None
    second = summaries(it)[1]
    assert (second.best_geomean, second.vs_best, render.outcome(second)) == (None, None, "best?")
    await it.idle()
    assert asked.requests == []


async def test_numbers_that_disagree_are_both_named_and_the_best_before_stays(watched: Watch, folder: Path) -> None:
    it, _asked = await opened(watched, folder, "TIME_US = 50.0")
    await it.confirmed()
    write(folder, "TIME_US = 25.0\nCONFIRM_US = 50.0")
    event = await it.confirmed(2)
    numbers = "4.00x [4.00, 4.00] in the run, 2.00x [2.00, 2.00] in a new worker; run it again"
    assert (event.confirmed, event.why, event.geomean) == (False, numbers, pytest.approx(2.0))
    best = best_now(it)
    assert best is not None
    assert best.iteration == 1
    refused = it.session.logbook.journal.summaries[1]
    assert (refused.best, refused.holds, refused.counted, render.outcome(refused)) == (True, False, False, "refused")
    text = it.session.logbook.path.read_text()
    assert "## 2 · no hypothesis · 4.00x · refused (best was 2.00x)\n" in text
    assert f"\n- refused: {numbers}\n" in text
    write(folder, "TIME_US = 20.0")
    event = await it.confirmed(3)
    assert event.confirmed
    assert summaries(it)[2].best_geomean == pytest.approx(2.0)


async def test_a_speedup_over_the_best_has_to_agree_too(
    watched: Watch, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, _asked = await opened(watched, folder, "TIME_US = 50.0")
    await it.confirmed()
    meets = list[bool]()
    meet = confirmation.meet
    monkeypatch.setattr(
        confirmation, "meet", lambda *about: (meets.append(True), meet(*about) and len(meets) % 2 == 1)[1]
    )
    write(folder, "TIME_US = 25.0")
    event = await it.confirmed(2)
    over = "2.00x [2.00, 2.00] over the best in the run, 2.00x [2.00, 2.00] in a new worker; run it again"
    assert (event.confirmed, event.why) == (False, over)
    assert len(meets) == 4  # twice


async def test_times_that_disagree_once_are_taken_once_more(
    watched: Watch, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meets, meet = [False], confirmation.meet
    monkeypatch.setattr(confirmation, "meet", lambda *about: meets.pop() if meets else meet(*about))
    it, asked = await opened(watched, folder, "TIME_US = 50.0")
    event = await it.confirmed()
    assert (event.confirmed, event.geomean) == (True, pytest.approx(2.0))
    first, second = asked.requests
    assert first["seed"] != second["seed"]


def test_only_a_slower_opponent_is_forgiven_once() -> None:
    judged = confirmation.Judged("a", 100, None)
    slowed = findings.make("opponent_slowed", side="baseline", now_us="9", alone_us="5")
    other = findings.make("other_stream", late=3, calls=3)
    rows = [CaseResult("a", "ok", findings=found) for found in ((slowed,), (slowed, other), (other,), ())]
    said = [confirmation._problem(row, judged, frozenset()) for row in rows]
    forgiven = [confirmation._problem(row, judged, confirmation.TIMES) for row in rows]
    slow, late = (f"{found.name}: {found.help}" for found in (slowed, other))
    assert "took 9 us next to the source and 5 us before" in slow, "the figures are in the reason"
    assert (said, forgiven) == ([slow, slow, late, ""], ["", late, late, ""])
    assert confirmation._problem(rows[0], None, confirmation.TIMES) == "not judged"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('JUDGE = "wrong"', "a 16x16: output 0 differs at [0]: got 1, expected 2 (in the confirmation)"),
        ('JUDGE = "part"', "b: not judged (in the confirmation)"),
        ('JUDGE = "none"', "a 16x16: not judged (in the confirmation)"),
        ('JUDGE = "lost"', "the judge exited with code 1 (in the confirmation)"),
        (
            'JUDGE = "refuse"',
            "the judge cannot load the task: reference.py failed to load: no module (in the confirmation)",
        ),
        ('CONFIRM_DO = "find"', "changed process: the source changed torch.softmax (in the confirmation)"),
        ('CONFIRM_DO = "wrong"\nON = "c"', "c: out differs at [0]: got 1, expected 2 (in the confirmation)"),
        ('CONFIRM_DO = "syntax"', "solution.py:3: invalid syntax (in the confirmation)"),
        ('CONFIRM_DO = "crash"\nON = "b"', "the worker segfaulted while checking (in the confirmation)"),
    ],
)
async def test_what_goes_wrong_refuses_it(watched: Watch, folder: Path, text: str, why: str) -> None:
    it, asked = await opened(watched, folder, f"TIME_US = 50.0\n{text}")
    event = await it.confirmed()
    assert (event.confirmed, event.why) == (False, why)
    assert len(asked.requests) == (2 if "the worker" in why or "the judge" in why else 1)  # they are replaced once
    assert best_now(it) is None
    found = best_source.find(it.session.task, it.session.logbook.journal, PulledEntries(it.session.logbook.path))
    assert found.reason == "refused"


async def test_without_room_for_a_judge_it_stays_unsettled(
    watched: Watch, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NO_JUDGE", "1")
    it, asked = await opened(watched, folder, "TIME_US = 50.0")
    await it.until(lambda: any("the judge did not start" in text for text in said(it)))
    assert any(text.endswith("so runs stay `best?`; is there room for another process?") for text in said(it))
    assert (asked.requests, it.session.logbook.journal.summaries[0].is_unsettled) == ([], True)


async def test_a_worker_that_is_lost_once_is_replaced(watched: Watch, folder: Path) -> None:
    it, asked = await opened(watched, folder, 'TIME_US = 50.0\nCONFIRM_DO = "crash_once"')
    assert (await it.confirmed()).confirmed
    assert len({request["run"] for request in asked.requests}) == 2
    assert len({request["seed"] for request in asked.requests}) == 2


async def test_a_save_interrupts_it_and_the_newest_comes_first(watched: Watch, folder: Path) -> None:
    (folder / ".wait").touch()
    it, asked = await opened(watched, folder, 'TIME_US = 50.0\nCONFIRM_DO = "wait"')
    await reached(lambda: len(asked.requests) == 1 and it.session.supervisor.busy)
    write(folder, "TIME_US = 40.0")
    await it.ended(2)
    (folder / ".wait").unlink()
    await it.confirmed(2)
    assert asked.sources(folder) == ["50.0", "40.0"]
    newer, older = (event for event in it.of(Confirmed) if isinstance(event, Confirmed))
    first, second = it.session.logbook.journal.summaries
    assert (newer.run, newer.confirmed) == (second.run, True)
    assert (older.run, older.confirmed) == (first.run, False)
    assert older.why == "it was not timed against #2, which is best now; run it again to compare them"


async def test_an_interrupted_one_has_its_turn_if_the_newer_is_refused(watched: Watch, folder: Path) -> None:
    (folder / ".wait").touch()
    it, asked = await opened(watched, folder, 'TIME_US = 50.0\nCONFIRM_DO = "wait"')
    await reached(lambda: len(asked.requests) == 1 and it.session.supervisor.busy)
    write(folder, "TIME_US = 40.0\nCONFIRM_US = 100.0")
    await it.ended(2)
    (folder / ".wait").unlink()
    await it.confirmed(2)
    assert asked.sources(folder) == ["50.0", "40.0", "40.0", "50.0"]  # times that disagree are taken twice
    best = best_now(it)
    assert best is not None
    assert best.iteration == 1


async def test_a_save_does_not_wait_for_the_judge_to_load_the_task(watched: Watch, folder: Path) -> None:
    it, asked = await opened(watched, folder, 'TIME_US = 50.0\nJUDGE = "hang"')
    await reached(lambda: len(asked.requests) == 1)
    began = time.monotonic()
    write(folder, "TIME_US = 200.0")
    await it.ended(2)
    assert time.monotonic() - began < 20.0  # the judge sleeps for 60, and is waited for for 30


async def test_what_a_kernel_writes_while_it_is_confirmed_is_not_a_save(watched: Watch, folder: Path) -> None:
    it, _asked = await opened(watched, folder, 'TIME_US = 50.0\nCONFIRM_DO = "generate"')
    assert (await it.confirmed()).confirmed
    await it.until(lambda: any(text.startswith("the kernel wrote generated.py") for text in said(it)))
    await asyncio.sleep(0.5)
    assert len(it.of(RunStarted)) == 1


async def test_a_source_that_is_run_again_is_in_the_line_once(watched: Watch, folder: Path) -> None:
    (folder / ".wait").touch()
    it, asked = await opened(watched, folder, 'TIME_US = 50.0\nCONFIRM_DO = "wait"')
    await reached(lambda: len(asked.requests) == 1 and it.session.supervisor.busy)
    it.session.rerun()
    await it.ended(2)
    (folder / ".wait").unlink()
    await it.confirmed(2)  # one confirmation settles both runs
    assert len(asked.requests) == 2
    runs = it.session.logbook.journal.summaries
    assert [(run.iteration, run.holds) for run in runs] == [(1, True), (None, True)]
    best = best_now(it)
    assert best is not None
    assert best.iteration == 1
    assert "## 1 · no hypothesis · 2.00x · first\n" in it.session.logbook.path.read_text()


async def test_one_that_saves_kept_waiting_comes_before_the_next(
    watched: Watch, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".wait").touch()
    it, asked = await opened(watched, folder, 'TIME_US = 50.0\nCONFIRM_DO = "wait"')
    await reached(lambda: len(asked.requests) == 1 and it.session.supervisor.busy)
    monkeypatch.setattr(confirmation, "WAITS_AT_MOST", 0.0)
    await it.session.supervisor.prepare_spare()
    await reached(lambda: it.session.supervisor.spares.any_warm)
    write(folder, "TIME_US = 40.0")
    await reached(lambda: len(asked.requests) == 2 and it.session.supervisor.busy)
    assert said(it) == ["confirming #1 before this save: it has waited 0 s"]
    begun = [event for event in it.of(Confirming) if isinstance(event, Confirming) and event.is_running]
    assert [event.before_save for event in begun] == [False, True]
    write(folder, "TIME_US = 30.0")  # a further save does not cancel it
    await asyncio.sleep(0.5)
    assert it.session.supervisor.busy
    assert len(asked.runs) == 1
    (folder / ".wait").unlink()
    assert (await it.confirmed()).confirmed
    await it.until(lambda: len(summaries(it)) == 2)
    second = summaries(it)[1]
    assert (second.geomean, second.best_geomean) == (pytest.approx(100 / 30), pytest.approx(2.0))


async def test_one_that_was_left_is_confirmed_after_the_next_start(watched: Watch, folder: Path) -> None:
    write(folder, "TIME_US = 60.0")
    first = watched()
    await run_and_confirm(first.session, iteration=True)
    for time_us in (50.0, 40.0):
        write(folder, f"TIME_US = {time_us}")
        await first.session.run_once(iteration=True)
    await first.session.close()
    write(folder, 'DO = "syntax"')
    it, asked = await opened(watched, folder, 'DO = "wrong"\nON = "a"')
    event = await it.confirmed()
    assert asked.sources(folder) == ["40.0"]  # only the newest
    assert asked.requests[0]["best"] == asked.runs[0]["best"] is not None
    assert event.confirmed
    best = best_now(it)
    assert best is not None
    assert best.iteration == 3
    older = await it.confirmed(2)
    assert (older.run, older.confirmed) == (it.session.logbook.journal.summaries[1].run, False)
    assert older.why == "it was not timed against #3, which is best now; run it again to compare them"
    assert len(asked.requests) == 1


async def test_without_room_for_a_spare_the_worker_is_started_again(watched: Watch, folder: Path) -> None:
    it, _asked = await opened(watched, folder, "TIME_US = 50.0", spares=False)
    worker = it.session.supervisor.pids
    assert (await it.confirmed()).confirmed
    assert it.session.supervisor.pids != worker


async def test_a_locked_log_keeps_its_words_and_the_line_is_on_disk(watched: Watch, folder: Path) -> None:
    (folder / ".wait").touch()
    it, asked = await opened(watched, folder, 'TIME_US = 50.0\nCONFIRM_DO = "wait"')
    await reached(lambda: bool(asked.requests))
    path = it.session.logbook.path
    with path.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (folder / ".wait").unlink()
        await it.confirmed()
        await it.until(lambda: bool(said(it)))
    assert said(it)[0].startswith("the confirmation is not noted in the entry: ITERATIONS.md is locked by process ")
    assert "· best?\n" in path.read_text()
    journal = Journal(it.session.state)
    assert journal.summaries[0].holds
    assert drop_entry.doubt(it.session.task, journal, journal.summaries[0]) == ""


async def test_a_heading_that_a_person_edited_stays(watched: Watch, folder: Path) -> None:
    (folder / ".wait").touch()
    it, asked = await opened(watched, folder, 'TIME_US = 50.0\nCONFIRM_DO = "wait"')
    await reached(lambda: bool(asked.requests))
    path = it.session.logbook.path
    path.write_text(path.read_text().replace("no hypothesis · 2.00x · best?", "my words"))
    (folder / ".wait").unlink()
    await it.confirmed()
    text = path.read_text()
    assert "## 1 · my words\n" in text
    assert "\n- confirmed: 2.00x " in text
    assert '"confirmed":true' in text


async def test_another_process_sees_it_and_does_not_repeat_it(watched: Watch, folder: Path) -> None:
    here, there = watched(), watched()
    await here.session.run_once(iteration=True)
    there.session.logbook.journal.read_new()
    assert not there.session.logbook.journal.summaries[0].holds
    await here.session.confirm()
    assert await there.session.changed_elsewhere()
    assert there.session.logbook.journal.summaries[0].holds
    assert not await there.session.changed_elsewhere()
    assert there.of(Confirmed) == []


def appended(it: Watched, is_confirmed: bool) -> None:
    """As another process, or a source, writes about the first run."""
    about = Confirmed(it.session.logbook.journal.summaries[0].run, is_confirmed, "9.00x in a new worker")
    with it.session.logbook.journal.path.open("a") as file:
        file.write(f"{encode('confirmed', about)}\n")


async def test_nobody_else_confirms_a_run_that_waits_here(watched: Watch, folder: Path) -> None:
    (folder / ".wait").touch()
    it, asked = await opened(watched, folder, 'TIME_US = 50.0\nCONFIRM_US = 100.0\nCONFIRM_DO = "wait"')
    await reached(lambda: bool(asked.requests))
    journal = it.session.logbook.journal
    appended(it, True)
    assert not await it.session.changed_elsewhere()
    assert (journal.summaries[0].is_unsettled, best_now(it)) == (True, None)
    (text,) = said(it)
    assert text.endswith("of a run that waits here for its own: it is ignored")
    (folder / ".wait").unlink()
    event = await it.confirmed()
    assert (event.confirmed, event.why.endswith("1.00x [1.00, 1.00] in a new worker; run it again")) == (False, True)
    appended(it, True)
    await it.session.changed_elsewhere()
    assert len(said(it)) == 1
    for runs in (journal.summaries, Journal(it.session.state).summaries):
        assert [run.is_refused for run in runs] == [True]


async def test_a_refusal_from_elsewhere_counts(watched: Watch, folder: Path) -> None:
    """As if another workbench had confirmed the same source meanwhile: one cannot refuse what is best to another."""
    (folder / ".wait").touch()
    it, asked = await opened(watched, folder, 'TIME_US = 50.0\nCONFIRM_DO = "wait"')
    await reached(lambda: bool(asked.requests))
    appended(it, False)
    assert await it.session.changed_elsewhere()
    (folder / ".wait").unlink()
    await it.confirmed()
    for runs in (it.session.logbook.journal.summaries, Journal(it.session.state).summaries):
        assert [run.is_refused for run in runs] == [True]


async def test_without_confirmations_those_of_another_process_count(watched: Watch, folder: Path) -> None:
    it, _asked = await opened(watched, folder, "TIME_US = 50.0", confirm=False)
    appended(it, True)
    assert await it.session.changed_elsewhere()
    assert it.session.logbook.journal.summaries[0].holds


async def test_a_source_that_turned_out_wrong_is_refused(watched: Watch, folder: Path) -> None:
    it = watched()
    await it.session.run_once(iteration=True)
    runs = it.session.logbook.journal.path
    lines = [json.loads(line) for line in runs.read_text().splitlines()]
    ended = next(line for line in lines if line["event"] == "finished")
    wrong = {**ended, "run": "later", "right": False, "best": False, "counts": {"wrong": 1}, "iteration": None}
    runs.write_text(runs.read_text() + json.dumps(wrong, separators=(",", ":")) + "\n")
    await it.session.confirm()
    assert (await it.confirmed()).why == "a later run of the same source was wrong"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((1.40, 1.44), (1.00, 1.02), False),
        ((1.40, 1.44), (1.43, 1.50), True),
        ((1.40, 1.44), (1.46, 1.50), True),  # by the margins
        ((1.40, 1.44), (1.48, 1.50), False),
        ((1.40, 1.44), (1.41, 1.42), True),
    ],
)
def test_intervals_meet_within_the_margins(
    one: tuple[float, float], other: tuple[float, float], expected: bool
) -> None:
    first, second = (Ratio(sum(ends) / 2, *ends, "faster") for ends in (one, other))
    assert confirmation.meet(first, second) is confirmation.meet(second, first) is expected


async def test_the_real_worker_and_the_real_judge(tmp_path: Path) -> None:
    folder = write_task(tmp_path / "scale")
    session = Session(taskfile.load(folder), folder / ".kernbench", Options(deadlines=PATIENT, standby=False))
    it = Watched(session)
    try:
        outcome = await run_and_confirm(session, iteration=True)
    finally:
        await session.close()
    assert isinstance(outcome, Summary)
    event = await it.confirmed()
    assert event.judged >= 100
    assert event.geomean is not None
    assert "(in the confirmation)" not in event.why  # a busy machine may still make the speedups disagree
    assert outcome.holds is event.confirmed
