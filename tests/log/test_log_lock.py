"""Another process holds the lock of a log: nothing waits for it but the entry, which gets its number afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.shared import taskfile
from kernbench.cli import cli
from kernbench.events import Notice, RunFinished, Summary
from kernbench.log.entries import iterations_file, log_lock
from kernbench.log.entries.log_lock import LogbookError, LogHeld
from kernbench.log.file_thread import FileThread
from kernbench.log.logbook import Logbook
from kernbench.log.runs.journal import Journal
from tests.log.logs import make_log, rows_of, summary_of, write_entries
from tests.sessions import Watched, reached, summaries, write

HOLD = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); input()"


@contextlib.contextmanager
def held(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process has the lock until this ends."""
    command = [sys.executable, "-S", "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        yield process
        assert process.stdin is not None
        process.stdin.close()


def said(it: Watched) -> list[str]:
    return [event.text for event in it.of(Notice)]  # type: ignore[attr-defined]


def headings(path: Path) -> list[int]:
    return [int(number) for number in iterations_file.HEADING.findall(path.read_text())]


def unwritten(state: Path) -> list[str]:
    return list(Journal(state).waiting)


@pytest.mark.anyio
async def test_a_held_log_delays_the_entry_alone(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    path, state = it.session.logbook.path, it.session.state
    with held(state / "runs.jsonl"), held(path) as process:
        for count, time_us in ((2, 40.0), (3, 30.0)):  # the second run starts although an entry waits
            write(folder, f"TIME_US = {time_us}")
            await it.ended(count)
        assert [run.iteration for run in summaries(it)] == [1, None, None]
        await it.until(lambda: len(said(it)) == 2)
        for sentence in said(it):
            assert sentence.startswith(f"ITERATIONS.md is locked by process {process.pid} (")
            assert sentence.endswith(
                "the entry will be written as soon as possible, or else when kernbench next starts on this task"
            )
        assert headings(path) == [1]
        assert len(unwritten(state)) == 2  # on disk already
    await it.until(lambda: "entries 2 to 3 are now in ITERATIONS.md" in said(it))
    assert headings(path) == [1, 2, 3]
    assert await it.session.changed_elsewhere()  # so that the screen lists them
    assert not await it.session.changed_elsewhere()
    assert unwritten(state) == []
    assert [run.iteration for run in it.session.logbook.iterations()] == [1, 2, 3]
    assert [run.iteration for run in Journal(state).summaries] == [1, 2, 3]
    write(folder, "TIME_US = 20.0")
    await it.ended(4)
    assert summaries(it)[-1].iteration == 4


@pytest.mark.anyio
async def test_a_run_writes_the_entries_that_wait_and_the_log_names_them(
    watched: Callable[..., Watched], folder: Path
) -> None:
    first = watched()
    (folder / "ITERATIONS.md").touch()
    with held(folder / "ITERATIONS.md"):
        await first.session.run_once(iteration=True)
        await first.session.close()
    told = CliRunner().invoke(cli, ["log", str(folder)])
    assert told.output == "kernbench: 1 entry waits for ITERATIONS.md; the next run tries again\n"
    again = watched()
    await again.session.run_once(iteration=False)
    assert "entry 1 is now in ITERATIONS.md" in said(again)
    assert headings(folder / "ITERATIONS.md") == [1]


@pytest.mark.anyio
async def test_an_entry_that_waited_until_the_end_is_written_at_the_next_start(
    watched: Callable[..., Watched], folder: Path
) -> None:
    first = watched()
    (folder / "ITERATIONS.md").touch()
    first.session.notes.hypothesis = "half the loads"
    with held(folder / "ITERATIONS.md"):
        await first.session.start()
        await first.ended(1)
        await first.idle()
        assert first.session.notes.hypothesis == ""  # the entry will have it
        await first.session.close()
        again = watched()
        await again.session.start()
        await again.ended(1)
        assert len(unwritten(again.session.state)) == 1  # the same source makes no second entry
    await again.until(lambda: "entry 1 is now in ITERATIONS.md" in said(again))
    assert "## 1 · half the loads · 2.00x" in (folder / "ITERATIONS.md").read_text()
    assert headings(folder / "ITERATIONS.md") == [1]


@pytest.mark.anyio
async def test_a_command_waits_a_moment_and_names_the_holder(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernbench.engine.runner.PATIENCE", 0.05)
    it, path = watched(), folder / "ITERATIONS.md"
    path.touch()
    with held(path) as process:
        run = await it.session.run_once(iteration=True)
        assert isinstance(run, Summary)
        assert run.iteration is None
    assert f"locked by process {process.pid} (" in said(it)[0]
    write(folder, "TIME_US = 40.0")
    run = await watched().session.run_once(iteration=True)  # and the next one writes both
    assert isinstance(run, Summary)
    assert run.iteration == 2
    assert headings(path) == [1, 2]


@pytest.fixture
def book(tmp_path: Path) -> Logbook:
    task = make_log(tmp_path / "t", 2, cases=2)
    write_entries(task)
    return Logbook(tmp_path / "t", tmp_path / "t" / ".kernbench", task)


def finished(book: Logbook, number: int) -> tuple[Summary, str]:
    task = taskfile.load(book.path.parent)
    rows = rows_of(task, number, 1.0, {}, 1)
    return book.finish(task, lambda: summary_of(task, number, rows, []), {row.id: row for row in rows}, 0.0)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("where", ["_write", "_is_in"])
def test_a_process_killed_around_the_entry_leaves_neither_a_gap_nor_a_double(
    book: Logbook, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the entry is written, and after it, before runs.jsonl says so."""

    def kill(*_words: object) -> None:
        raise Killed

    monkeypatch.setattr(iterations_file, where, kill)
    with pytest.raises(Killed):
        finished(book, 3)
    monkeypatch.undo()
    assert headings(book.path) == ([1, 2] if where == "_write" else [1, 2, 3])
    assert [run.iteration for run in Journal(book.state).summaries] == [1, 2, 3]  # no entry without its run
    again = Logbook(book.path.parent, book.state, book.task)
    assert again.enter_waiting() == [3]
    assert again.enter_waiting() == []
    assert headings(book.path) == [1, 2, 3]
    assert unwritten(book.state) == []
    assert finished(again, 4)[0].iteration == 4


def test_a_number_taken_meanwhile_is_not_given_twice(book: Logbook, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(*_words: object) -> None:
        raise Killed

    monkeypatch.setattr(iterations_file, "_write", kill)
    with pytest.raises(Killed):
        finished(book, 3)
    monkeypatch.undo()
    book.path.write_text(book.path.read_text() + "\n## 3 · from another machine · 2.00x\n")
    again = Logbook(book.path.parent, book.state, book.task)
    assert again.enter_waiting() == [4]
    assert headings(book.path) == [1, 2, 3, 4]
    assert [run.iteration for run in Journal(book.state).summaries] == [1, 2, 4]


def test_an_entry_waits_for_the_task_as_it_was(book: Logbook) -> None:
    task = book.path.parent / "task.toml"
    with held(book.path):
        run, problem = finished(book, 3)
    assert (run.iteration, "locked by process" in problem) == (None, True)
    kept = book.source(run.source)
    kept.mkdir()
    for name in ("task.toml", "reference.py"):
        (kept / name).write_text((book.path.parent / name).read_text())
    task.write_text(task.read_text().replace("qwen", "llama"))
    again = Logbook(book.path.parent, book.state, taskfile.load(book.path.parent))
    assert again.enter_waiting() == [3]
    assert "qwen" in (iterations_file.entry_of(book.path, 3) or "")


def test_words_for_an_entry_that_waits_are_in_it(book: Logbook) -> None:
    with held(book.path):
        run, _problem = finished(book, 3)
        book.reword(run, "two rows a warp", "four")
    assert book.enter_waiting() == [3]
    assert "- hypothesis: two rows a warp\n" in book.path.read_text()
    assert Journal(book.state).summaries[-1].next == "four"


@pytest.mark.parametrize("change", ["reword", "set_next", "drop"])
def test_changes_end_with_a_sentence_instead_of_waiting(
    book: Logbook, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lock.locked.__wrapped__, "__defaults__", (0.05,))  # type: ignore[attr-defined]
    entry, before = book.journal.summaries[-1], book.path.read_bytes()
    make: dict[str, Callable[[], object]] = {
        "reword": lambda: book.reword(entry, "other words", ""),
        "set_next": lambda: book.set_next("later"),
        "drop": lambda: iterations_file.remove(book.path, entry, lambda text: None),
    }
    with held(book.path) as process, pytest.raises(LogHeld, match=rf"locked by process {process.pid} \("):
        make[change]()
    assert book.path.read_bytes() == before


def test_a_log_that_links_out_of_the_folder_is_not_written(book: Logbook, tmp_path: Path) -> None:
    outside = tmp_path / "notes.md"
    outside.write_text("mine\n")
    book.path.unlink()
    book.path.symlink_to(outside)
    run, problem = finished(book, 3)
    assert run.iteration is None
    assert f"ITERATIONS.md is a link to {outside}, outside the task's folder" in problem
    with pytest.raises(LogbookError, match="outside the task's folder"):
        book.set_next("later")
    assert outside.read_text() == "mine\n"
    book.path.unlink()
    (book.path.parent / "log.md").touch()
    book.path.symlink_to("log.md")  # within the folder it is followed
    assert book.enter_waiting() == [3]
    assert headings(book.path.parent / "log.md") == [3]


def test_a_stopped_holder_is_named_too(book: Logbook) -> None:
    with held(book.path) as process:
        process.send_signal(signal.SIGSTOP)
        try:
            assert log_lock.holder(book.path).startswith(f"process {process.pid} (")
        finally:
            process.send_signal(signal.SIGCONT)
    assert log_lock.holder(book.path) == "another process"


@pytest.mark.anyio
async def test_the_writer_keeps_the_order_and_outlives_a_cancelled_caller() -> None:
    writer, written = FileThread(), list[int]()
    waiting = [writer(written.append, number) for number in range(50)]
    waiting[20].cancel()
    assert await writer.close()
    assert written == list(range(50))


@pytest.mark.anyio
async def test_nobody_hears_of_an_error_after_the_caller_was_cancelled() -> None:
    """asyncio would print `Future exception was never retrieved` over the screen; anyio fails the test for it."""
    writer = FileThread()
    end, answer = os.pipe()
    writer(os.read, end, 1)
    writer(Path("/nowhere/at/all").read_text).cancel()
    await asyncio.sleep(0)  # the shield lets go of what is inside
    os.write(answer, b"x")
    assert await writer.close()
    gc.collect()


@pytest.mark.anyio
async def test_closing_does_not_wait_for_a_disk_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernbench.log.file_thread.CLOSING", 0.05)
    writer = FileThread()
    end, answer = os.pipe()
    hung = writer(os.read, end, 1)
    assert not await writer.close()
    os.write(answer, b"x")
    assert await hung == b"x"


@pytest.mark.anyio
async def test_a_log_that_is_emptied_is_reported_once(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    await it.session.run_once(iteration=True)
    runs = it.session.state / "runs.jsonl"
    assert not await it.session.changed_elsewhere()
    assert said(it) == []
    runs.unlink()
    for _again in range(2):
        await it.session.changed_elsewhere()
    kept = "earlier runs are kept in memory until you quit, but are no longer on disk"
    assert said(it) == [f"{runs} was emptied or removed: {kept}"]
    write(folder, "TIME_US = 40.0")
    run = await it.session.run_once(iteration=True)
    assert isinstance(run, Summary)
    assert run.iteration == 2
    assert len(said(it)) == 1
    await reached(lambda: json.loads(runs.read_text().splitlines()[-1])["event"] == "entered")
    assert it.of(RunFinished)
