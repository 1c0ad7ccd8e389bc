"""A save that cannot be kept, a full disk, a folder that is gone: it is said, and the next save is served."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.shared import taskfile
from kernbench.engine.jobs import Options
from kernbench.engine.runner import RunOrder
from kernbench.engine.save_queue import Decision, FolderChanges
from kernbench.engine.session import Session
from kernbench.events import (
    BuildFailed,
    Notice,
    RunFinished,
    RunStarted,
    TaskLoaded,
)
from kernbench.log.runs.runs_file import JournalError, RunsFile
from kernbench.task import snapshot
from kernbench.tui.state.board import Board
from tests import FAKE
from tests.sessions import Watched, reached, summaries, write

pytestmark = pytest.mark.anyio


async def test_a_state_folder_that_was_removed_is_made_again_and_hidden(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    shutil.rmtree(it.session.state)
    write(folder, "TIME_US = 40.0")
    await it.ended(2)
    assert (it.session.state / ".gitignore").read_text() == "*\n"


async def test_a_save_that_cannot_be_kept_says_so_until_the_next(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    take, full = snapshot.take, OSError(28, "No space left on device", "/state/sources")

    def refuse(folder: Path, state: Path, task_files: object) -> snapshot.Source:
        raise full

    monkeypatch.setattr(snapshot, "take", refuse)
    write(folder, "TIME_US = 40.0")
    await it.until(lambda: bool(it.of(BuildFailed)))
    failure = it.of(BuildFailed)[0]
    said = "nothing was run: /state/sources: No space left on device; fix that and try again"
    assert failure.message == said  # type: ignore[attr-defined]
    monkeypatch.setattr(snapshot, "take", take)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: len(summaries(it)) == 2)
    assert summaries(it)[-1].geomean == pytest.approx(5.0)


async def test_the_source_of_the_last_run_is_taken_back_after_a_save_that_could_not_be_kept(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its figures stand already; what is on the screen must no longer say that nothing was run."""
    it = watched()
    await it.session.start()
    await it.ended(1)
    take, before = snapshot.take, (folder / "solution.py").read_text()

    def refuse(folder: Path, state: Path, task_files: object) -> snapshot.Source:
        raise OSError(28, "No space left on device", "/state/sources")

    monkeypatch.setattr(snapshot, "take", refuse)
    write(folder, "TIME_US = 40.0")
    await it.until(lambda: bool(it.of(BuildFailed)))
    monkeypatch.setattr(snapshot, "take", take)
    (folder / "solution.py").write_text(before)
    await it.until(lambda: bool(it.of(TaskLoaded)))
    assert len(summaries(it)) == 1


async def test_a_listener_that_fails_costs_no_run_and_is_told_of_at_the_end(
    watched: Callable[..., Watched], folder: Path
) -> None:
    def full(event: object) -> None:
        heard.append(event)
        raise OSError(28, "No space left on device")

    heard: list[object] = []
    it = watched()
    it.session.listen(full)
    with pytest.raises(OSError, match="No space left"):
        await it.session.run_once(iteration=True)
    assert len(heard) == 1
    assert [run.iteration for run in it.session.logbook.journal.summaries] == [1]
    assert [event.summary.iteration for event in it.of(RunFinished)] == [1]  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="No space left"):
        await it.session.closed()


@pytest.mark.parametrize("event", ["start", "case", "finished"])
async def test_a_run_that_the_disk_broke_off_ends_on_the_screen_and_the_next_save_counts(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    it = watched()
    board = Board(it.session.task)
    it.session.listen(board.apply)
    await it.session.start()
    await it.ended(1)
    append = RunsFile.append

    def full(file: RunsFile, line: str) -> int:
        if f'"event":"{event}"' in line:
            raise JournalError("runs.jsonl cannot be written: No space left on device; the run is not recorded")
        return append(file, line)

    monkeypatch.setattr(RunsFile, "append", full)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: bool(it.of(BuildFailed)))
    assert board.run is None
    assert board.failure is not None
    assert board.failure.message.endswith("the run is not recorded; fix that and try again")
    monkeypatch.setattr(RunsFile, "append", append)
    (folder / "solution.py").touch()  # the very same text
    await it.until(lambda: len(summaries(it)) == 2)
    assert summaries(it)[-1].geomean == pytest.approx(5.0)


async def test_a_mistake_of_ours_costs_one_save(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    it = watched()
    await it.session.start()
    await it.ended(1)
    order = Session._order

    def fails(*_: object) -> RunOrder:
        raise ZeroDivisionError("no such number")

    monkeypatch.setattr(Session, "_order", fails)
    write(folder, "TIME_US = 40.0")
    await it.until(lambda: bool(it.of(BuildFailed)))
    assert "internal error: ZeroDivisionError: no such number" in it.of(BuildFailed)[0].message  # type: ignore[attr-defined]
    monkeypatch.setattr(Session, "_order", order)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: len(summaries(it)) == 2)


async def test_a_folder_that_was_moved_away_is_not_made_again(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    folder.rename(folder.with_name("moved"))
    await it.until(lambda: bool(it.of(BuildFailed)))
    assert not folder.exists()
    folder.with_name("moved").rename(folder)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: len(summaries(it)) == 2)


async def test_nothing_is_timed_against_a_damaged_best(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.confirmed()
    best = it.session.state / "sources" / summaries(it)[0].source
    (best / "solution.py").write_text("TIME_US = 1000.0\n")
    write(folder, "TIME_US = 40.0")
    await it.ended(2)
    assert summaries(it)[1].vs_best is None
    assert not summaries(it)[1].best
    (said,) = (event.text for event in it.of(Notice) if "damaged" in event.text)  # type: ignore[attr-defined]
    assert said.startswith("nothing is timed against the best: the stored source of the best is damaged: files in ")
    write(folder, "TIME_US = 50.0")  # the best again
    await it.ended(3)
    assert snapshot.is_whole(best)


async def test_a_state_folder_that_cannot_be_written_is_named_with_its_reason_first(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    it.session.state.mkdir(exist_ok=True)
    (it.session.state / "sources").touch()  # no folder can be made there, by root neither
    await it.session.start()
    await it.until(lambda: bool(it.of(BuildFailed)))
    (failed,) = it.of(BuildFailed)
    assert isinstance(failed, BuildFailed)
    assert failed.message == (
        f"nothing was run (File exists): cannot write to {it.session.state}; use `--state DIR` to keep runs elsewhere;"
        " fix that and try again"
    )
    (it.session.state / "sources").unlink()
    for number in range(20):  # the watch may have begun after the first of them
        write(folder, f"TIME_US = {20.0 + number}")
        with contextlib.suppress(TimeoutError):
            await it.until(lambda: bool(it.of(RunStarted)), seconds=1.0)
            break
    await it.until(lambda: bool(summaries(it)))


async def test_what_a_broken_run_writes_does_not_start_it_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs may be kept in a folder of the task that is not hidden, and logs redirected into it."""
    (folder / "mine").mkdir()
    it = Watched(Session(taskfile.load(folder), folder / "mine", Options(harness=FAKE)))
    await it.session.start()
    await it.ended(1)
    append = RunsFile.append

    def full(file: RunsFile, line: str) -> int:
        if '"event":"finished"' in line:
            raise JournalError("runs.jsonl cannot be written: No space left on device")
        return append(file, line)

    monkeypatch.setattr(RunsFile, "append", full)
    write(folder, "TIME_US = 20.0")
    await it.until(lambda: bool(it.of(BuildFailed)))
    decide, decisions = it.session._saves.folder_changed, []

    def counted(found: FolderChanges, seen: bool, running: bool) -> Decision:
        decisions.append(decide(found, seen, running))
        return decisions[-1]

    monkeypatch.setattr(it.session._saves, "folder_changed", counted)
    for number in range(5):
        before = len(decisions)
        (folder / "watch.log").write_text(f"{number}")
        await reached(lambda before=before: len(decisions) > before)  # type: ignore[misc]
    await it.idle()
    assert len(it.of(BuildFailed)) == 1
    (folder / "solution.py").touch()
    await it.until(lambda: len(it.of(BuildFailed)) == 2)
    await it.session.close()
