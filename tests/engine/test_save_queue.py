"""What the queue makes of saves, keys and runs, event by event; no worker and no waiting.

A row is a list of (event, outcome). Events:

    save A          solution.py gets the text A, and the watch reports it
    look A          the same, found only by a look at the files' times
    touch           the watch reports a save of the same text
    report          the watch reports a change, late or of something else
    write F A       the file F gets the text A, and the watch reports it
    remove F        the file F is removed, and the watch reports it
    quietly F A     the same, before the watch has reported it
    wrote F         the worker reports that the kernel opens the file F for writing
    unseen          the worker reports that the kernel has started a process
    later           nothing has run for a while
    key, pause, space
    next            the session asks for a job and reads the folder for it
    finish, break off   the run ends, or is cancelled; `key` and `save` during a run only ask for that
    fail            the job could not read the folder, or its run broke down
    reload          the task could be read again

Outcomes of changes: queued, dropped, ignored, waits (still queued). Of next: runs A or runs A for an entry; answered
(not run), none. Of finish: entry or no entry. Notices follow after a bar.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernbench.engine.jobs import Job
from kernbench.engine.save_queue import Decision, SaveQueue
from kernbench.log.logbook import Logbook
from kernbench.task import source_files

Row = list[tuple[str, str]]

PAUSED = "paused: press space to run this save"
LAYOUT = "only comments, formatting or unused files changed; not re-timed"
PRESS_R = "changed: press r to run"
OPEN: Row = [("open", ""), ("next", "runs 1 for an entry"), ("finish", "entry")]
RUNS: Row = [("break off", ""), ("next", "runs 1 for an entry")]
WROTE = "the kernel wrote gen.py, which does not start a run; press r to run anyway"
IGNORED = (
    "gen.py kept changing (3 runs in a row), perhaps written by the kernel: ignored until another file changes;"
    " press r to run anyway"
)


class Bench:
    """A task's folder, and a session reduced to the calls it makes to its queue."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.logbook = folder, Logbook(folder, folder / ".kernbench")
        self.queue = SaveQueue(folder, self.logbook)
        self.running: Job | None = None
        self._clock = 0
        self._store("solution.py", "x = 1\n")

    def do(self, event: str) -> str:
        name, _, words = event.partition(" ")
        action: Callable[..., str] = getattr(self, f"_{name}")
        if name in ("write", "quietly"):
            return action(*words.split())
        return action(words) if words else action()

    def _store(self, name: str, text: str) -> None:
        """Every write has a time of its own, however quickly they follow one another."""
        self._clock += 1
        (self.folder / name).write_text(text)
        os.utime(self.folder / name, ns=(self._clock * 10**9,) * 2)

    def _report(self) -> str:
        return self._change()

    def _change(self, seen: bool = True) -> str:
        before = self.queue.waiting
        decision = self.queue.folder_changed(self.queue.look(), seen, self.running is not None)
        after = self.queue.waiting
        assert decision.job is None or decision.job is after
        if decision.job is not None:
            return _with_notice("queued", decision)
        if before is not None:
            return _with_notice("waits" if after is before else "dropped", decision)
        return _with_notice("ignored", decision)

    def _open(self) -> str:
        self.queue.add(Job("open", 0.0, iteration=True))
        return ""

    def _save(self, text: str) -> str:
        self._store("solution.py", f"x = {text}\n")
        return self._change()

    def _look(self, text: str) -> str:
        self._store("solution.py", f"x = {text}\n")
        return self._change(seen=False)

    def _touch(self) -> str:
        self._store("solution.py", (self.folder / "solution.py").read_text())
        return self._change()

    def _write(self, name: str, text: str) -> str:
        self._store(name, text)
        return self._change()

    def _quietly(self, name: str, text: str) -> str:
        self._store(name, text)
        return ""

    def _remove(self, name: str) -> str:
        (self.folder / name).unlink()
        return self._change()

    def _wrote(self, name: str) -> str:
        self.queue.kernel_wrote([name], False)
        return ""

    def _later(self) -> str:
        self.queue._by_kernel._began = self.queue._by_kernel._ended = float("-inf")
        return ""

    def _unseen(self) -> str:
        self.queue.kernel_wrote([], True)
        return ""

    def _key(self) -> str:
        self.queue.add(Job("key", 0.0, iteration=False))
        return ""

    def _pause(self) -> str:
        self.queue.paused = True
        return ""

    def _space(self) -> str:
        self.queue.paused = False
        return ""

    def _next(self) -> str:
        assert self.running is None
        job = self.queue.next()
        if job is None:
            return "none"
        self.queue.before_reading(self.queue.stamps())
        decision = self.queue.admit(job, self.logbook.take_source(), "task")
        if decision.job is None:
            return _with_notice("answered", decision)
        self.queue.run_started()
        self.running = decision.job
        text = (self.folder / "solution.py").read_text().removeprefix("x = ").rstrip()
        return _with_notice(f"runs {text}" + (" for an entry" if decision.job.iteration else ""), decision)

    def _finish(self) -> str:
        assert self.running is not None
        entry = "entry" if self.running.iteration else "no entry"
        self.running = None
        notice = self.queue.kernel_stopped(self.queue.stamps())
        self.queue.run_finished()
        return _with_notice(entry, Decision(notice=notice))

    def _break(self, _off: str) -> str:
        assert self.running is not None
        self.running = None
        self.queue.kernel_stopped(self.queue.stamps())
        return ""

    def _fail(self) -> str:
        self.running, self.queue.failed = None, True
        return ""

    def _reload(self) -> str:
        self.queue.failed = False
        return ""


def _with_notice(outcome: str, decision: Decision) -> str:
    return outcome + (f" | {decision.notice.text}" if decision.notice else "")


ROWS: dict[str, Row] = {
    "a save is run and entered": [*OPEN, ("save 2", "queued"), ("next", "runs 2 for an entry"), ("finish", "entry"),
        ("next", "none")],
    "a save of the same text starts nothing": [*OPEN, ("touch", "ignored"), ("next", "none")],
    "the newest save wins": [*OPEN, ("save 2", "queued"), ("save 3", "queued"), ("next", "runs 3 for an entry"),
        ("finish", "entry"), ("next", "none")],
    "a save that waits is not queued again by a look": [*OPEN, ("save 2", "queued"), ("look 3", "waits"),
        ("next", "runs 3 for an entry"), ("finish", "entry")],
    "a save that only a look finds is run": [*OPEN, ("look 2", "queued"), ("next", "runs 2 for an entry")],
    "a save during a run takes its place": [*OPEN, ("save 2", "queued"), ("next", "runs 2 for an entry"),
        ("save 3", "queued"), ("break off", ""), ("next", "runs 3 for an entry"), ("finish", "entry")],
    "a key times the source again without an entry": [*OPEN, ("key", ""), ("next", "runs 1"), ("finish", "no entry")],
    "a key while a save waits runs that save, with its entry": [*OPEN, ("save 2", "queued"), ("key", ""),
        ("next", "runs 2 for an entry"), ("finish", "entry"), ("next", "none")],
    "a key during a save's run keeps its entry": [*OPEN, ("save 2", "queued"), ("next", "runs 2 for an entry"),
        ("key", ""), ("break off", ""), ("next", "runs 2 for an entry"), ("finish", "entry"), ("key", ""),
        ("next", "runs 2"), ("finish", "no entry")],
    "a key pressed twice during a save's run keeps its entry": [*OPEN, ("save 2", "queued"),
        ("next", "runs 2 for an entry"), ("key", ""), ("key", ""), ("break off", ""), ("next", "runs 2 for an entry"),
        ("key", ""), ("break off", ""), ("next", "runs 2 for an entry"), ("finish", "entry"), ("next", "none")],
    "a paused save waits for space": [*OPEN, ("pause", ""), ("save 2", f"queued | {PAUSED}"), ("next", "none"),
        ("save 3", "queued"), ("next", "none"), ("space", ""), ("next", "runs 3 for an entry"), ("finish", "entry")],
    "a key runs a paused save and stays paused": [*OPEN, ("pause", ""), ("save 2", f"queued | {PAUSED}"), ("key", ""),
        ("next", "runs 2 for an entry"), ("finish", "entry"), ("save 3", f"queued | {PAUSED}"), ("next", "none")],
    "a key runs while paused": [*OPEN, ("pause", ""), ("key", ""), ("next", "runs 1"), ("finish", "no entry")],
    "a save undone before its turn is dropped": [*OPEN, ("save 2", "queued"), ("save 1", "dropped"), ("next", "none")],
    "a paused save that was undone is dropped": [*OPEN, ("pause", ""), ("save 2", f"queued | {PAUSED}"),
        ("save 1", "dropped"), ("space", ""), ("next", "none")],
    "an undone save is kept while its source has no answer": [*OPEN, ("save 2", "queued"),
        ("next", "runs 2 for an entry"), ("save 3", "queued"), ("save 2", "waits"), ("break off", ""),
        ("next", "runs 2 for an entry"), ("finish", "entry")],
    "a save of a comment is not run": [*OPEN, ("save 1  # why", "queued"), ("next", f"answered | {LAYOUT}"),
        ("next", "none"), ("save 1  # because", "queued"), ("next", f"answered | {LAYOUT}")],
    "a comment saved during a run does not lose its entry": [*OPEN, ("save 2", "queued"),
        ("next", "runs 2 for an entry"), ("save 2  # why", "queued"), ("break off", ""),
        ("next", "runs 2  # why for an entry"), ("finish", "entry")],
    "a key runs a paused comment, without an entry": [*OPEN, ("pause", ""), ("save 1  # why", f"queued | {PAUSED}"),
        ("key", ""), ("next", "runs 1  # why"), ("finish", "no entry"), ("space", ""), ("next", "none")],
    "an answered source that comes back after a broken-off run is timed without an entry": [*OPEN, ("save 2", "queued"),
        ("next", "runs 2 for an entry"), ("save 1", "queued"), ("break off", ""), ("next", "runs 1"),
        ("finish", "no entry"), ("touch", "ignored"), ("next", "none")],
    "an answered source that comes back with a comment says so and is timed": [*OPEN, ("save 2", "queued"),
        ("next", "runs 2 for an entry"), ("save 1  # back", "queued"), ("break off", ""),
        ("next", f"runs 1  # back | {LAYOUT}"), ("finish", "no entry")],
    "an older source that comes back is a save like another": [*OPEN, ("save 2", "queued"),
        ("next", "runs 2 for an entry"), ("finish", "entry"), ("save 1", "queued"), ("next", "runs 1 for an entry")],
    "a data file that changes starts nothing, and r runs it with an entry": [*OPEN,
        ("write out.pt a", f"ignored | out.pt {PRESS_R}"), ("report", "ignored"), ("next", "none"),
        ("key", ""), ("next", "runs 1 for an entry"), ("finish", "entry"), ("key", ""), ("next", "runs 1"),
        ("finish", "no entry")],
    "a report between the key and the run drops nothing": [*OPEN, ("write out.pt a", f"ignored | out.pt {PRESS_R}"),
        ("key", ""), ("report", "waits"), ("write out.pt b", "waits"), ("next", "runs 1 for an entry"),
        ("finish", "entry")],
    "a data file says so at every change": [*OPEN, ("write out.pt a", f"ignored | out.pt {PRESS_R}"),
        ("write out.pt b", f"ignored | out.pt {PRESS_R}"), ("write out.pt b", f"ignored | out.pt {PRESS_R}"),
        ("write notes.md b", "ignored")],
    "data written back as it was says nothing, and r times the source again": [("quietly out.pt a", ""), *OPEN,
        ("write out.pt b", f"ignored | out.pt {PRESS_R}"), ("write out.pt a", "ignored"), ("key", ""),
        ("next", "runs 1"), ("finish", "no entry")],
    "a data file removed while nothing runs says so": [("quietly out.pt a", ""), *OPEN,
        ("remove out.pt", f"ignored | out.pt {PRESS_R}"), ("next", "none")],
    "many data files are counted": [*OPEN, ("quietly a.pt a", ""), ("quietly b.pt a", ""), ("quietly c.pt a", ""),
        ("write d.pt a", "ignored | a.pt, b.pt, c.pt and 1 more changed: press r to run")],
    "a data file that changes during a run starts nothing and says nothing": [("open", ""),
        ("next", "runs 1 for an entry"), ("write out.pt a", "ignored"), ("finish", "entry"), ("next", "none"),
        ("key", ""), ("next", "runs 1"), ("write out.pt b", "ignored"), ("write out.pt a", "ignored"),
        ("finish", "no entry"), ("report", "ignored"), ("next", "none")],
    "the watch may report it only after the run": [("open", ""), ("next", "runs 1 for an entry"),
        ("quietly out.pt a", ""), ("finish", "entry"), ("report", "ignored"), ("next", "none"),
        ("write out.pt by-hand", f"ignored | out.pt {PRESS_R}")],
    "nor does it after a run that was broken off": [("open", ""), ("next", "runs 1 for an entry"),
        ("quietly out.pt a", ""), ("break off", ""), ("report", "ignored"), ("next", "none")],
    "code saved in the last moment of a run is not lost": [("open", ""), ("next", "runs 1 for an entry"),
        ("quietly solution.py x=2", ""), ("finish", "entry"), ("report", "queued"), ("next", "runs x=2 for an entry")],
    "code saved during a run starts the next": [("open", ""), ("next", "runs 1 for an entry"),
        ("write gen.cuh a", "queued"), ("finish", "entry"), ("next", "runs 1 for an entry")],
    "code saved together with data ends the run": [*OPEN, ("key", ""), ("next", "runs 1"), ("quietly out.pt a", ""),
        ("save 2", "queued"), ("break off", ""), ("next", "runs 2 for an entry")],
    "a file that the kernel writes starts nothing and is named once": [("open", ""), ("next", "runs 1 for an entry"),
        ("wrote gen.py", ""), ("write gen.py a", "ignored"), ("write gen.py b", "ignored"),
        ("finish", f"entry | {WROTE}"), ("report", "ignored"), ("next", "none"), ("key", ""), ("next", "runs 1"),
        ("wrote gen.py", ""), ("write gen.py c", "ignored"), ("finish", "no entry"), ("next", "none")],
    "nor where the watch reports it only after the run": [("open", ""), ("next", "runs 1 for an entry"),
        ("wrote gen.py", ""), ("quietly gen.py a", ""), ("finish", f"entry | {WROTE}"), ("report", "ignored"),
        ("next", "none")],
    "a file that the kernel opened and left as it was is not named": [("open", ""), ("next", "runs 1 for an entry"),
        ("wrote gen.py", ""), ("finish", "entry"), ("next", "none")],
    "the same file saved by hand while nothing runs starts a run": [("open", ""), ("next", "runs 1 for an entry"),
        ("wrote gen.h", ""), ("write gen.h a", "ignored"), ("finish", f"entry | {WROTE.replace('.py', '.h')}"),
        ("write gen.h by-hand", "queued"), ("next", "runs 1 for an entry")],
    "a kernel that appends to its own solution does not loop": [("open", ""), ("next", "runs 1 for an entry"),
        ("wrote solution.py", ""), ("save 1;y=1", "ignored"),
        ("finish", f"entry | {WROTE.replace('gen', 'solution')}"), ("next", "none"), ("save 2", "queued"),
        ("next", "runs 2 for an entry")],
    "a save during a run in which the kernel writes another file takes its place": [("open", ""),
        ("next", "runs 1 for an entry"), ("wrote gen.py", ""), ("write gen.py a", "ignored"), ("save 2", "queued"),
        ("break off", ""), ("next", "runs 2 for an entry")],
    "what a process of the kernel writes starts two runs and is ignored": [("open", ""),
        ("next", "runs 1 for an entry"), ("unseen", ""), ("write gen.py a", "queued"), *RUNS,
        ("unseen", ""), ("write gen.py b", "queued"), *RUNS,
        ("unseen", ""), ("write gen.py c", f"ignored | {IGNORED}"), ("write gen.py d", "ignored"),
        ("finish", "entry"), ("report", "ignored"), ("next", "none"), ("save 2", "queued"),
        ("next", "runs 2 for an entry")],
    "even if that is the solution": [("open", ""), ("next", "runs 1 for an entry"),
        ("unseen", ""), ("save 1;y=1", "queued"), ("break off", ""), ("next", "runs 1;y=1 for an entry"),
        ("unseen", ""), ("save 1;y=2", "queued"), ("break off", ""), ("next", "runs 1;y=2 for an entry"),
        ("unseen", ""), ("save 1;y=3", f"ignored | {IGNORED.replace('gen', 'solution')}"), ("finish", "entry"),
        ("next", "none"), ("later", ""), ("save 2", "queued"), ("next", "runs 2 for an entry")],
    "what a process writes in the last moment of a run starts two runs too": [("open", ""),
        ("next", "runs 1 for an entry"), ("unseen", ""), ("finish", "entry"), ("write gen.h a", "queued"),
        ("next", "runs 1 for an entry"), ("unseen", ""), ("finish", "entry"), ("write gen.h b", "queued"),
        ("next", "runs 1 for an entry"), ("unseen", ""), ("finish", "entry"),
        ("write gen.h c", f"ignored | {IGNORED.replace('.py', '.h')}"), ("next", "none")],
    "what compiled code writes starts two runs and is ignored": [("open", ""), ("next", "runs 1 for an entry"),
        ("write gen.py a", "queued"), *RUNS, ("write gen.py b", "queued"), *RUNS,
        ("write gen.py c", f"ignored | {IGNORED}"), ("finish", "entry"), ("next", "none")],
    "a solution saved during every run is run every time": [*OPEN, ("save 2", "queued"),
        ("next", "runs 2 for an entry"), ("save 3", "queued"), ("break off", ""), ("next", "runs 3 for an entry"),
        ("save 4", "queued"), ("break off", ""), ("next", "runs 4 for an entry"), ("save 5", "queued"),
        ("break off", ""), ("next", "runs 5 for an entry"), ("finish", "entry")],
    "so is another file that was edited before": [*OPEN, ("later", ""), ("write gen.h a", "queued"),
        ("next", "runs 1 for an entry"),
        ("write gen.h b", "queued"), *RUNS, ("write gen.h c", "queued"), *RUNS, ("write gen.h d", "queued"), *RUNS],
    "and one that was there at the first run": [("quietly kernel.cu a", ""), *OPEN, ("write kernel.cu b", "queued"),
        *RUNS[1:], ("write kernel.cu c", "queued"), *RUNS, ("write kernel.cu d", "queued"), *RUNS,
        ("write kernel.cu e", "queued"), *RUNS],
    "a save of the same text runs a data file that waits": [*OPEN, ("touch", "ignored"),
        ("write out.pt a", f"ignored | out.pt {PRESS_R}"), ("report", "ignored"), ("touch", "queued"),
        ("next", "runs 1 for an entry"), ("finish", "entry"), ("touch", "ignored")],
    "while paused a data file says so, and r runs it": [*OPEN, ("pause", ""),
        ("write out.pt a", f"ignored | out.pt {PRESS_R}"), ("next", "none"), ("key", ""),
        ("next", "runs 1 for an entry"), ("finish", "entry")],
    "a save that waits takes a changed data file along": [*OPEN, ("pause", ""), ("save 2", f"queued | {PAUSED}"),
        ("write out.pt a", "queued"), ("space", ""), ("next", "runs 2 for an entry"), ("finish", "entry"),
        ("report", "ignored")],
    "a key during the run of a changed data file keeps its entry": [*OPEN,
        ("write out.pt a", f"ignored | out.pt {PRESS_R}"), ("key", ""), ("next", "runs 1 for an entry"), ("key", ""),
        ("break off", ""), ("next", "runs 1 for an entry"), ("finish", "entry")],
    "after a failure a data file still starts nothing": [*OPEN, ("fail", ""),
        ("write out.pt a", f"ignored | out.pt {PRESS_R}"), ("next", "none")],
    "after a failure any save is worth a try": [*OPEN, ("save 2", "queued"), ("next", "runs 2 for an entry"),
        ("fail", ""), ("report", "ignored"), ("touch", "queued"), ("reload", ""), ("next", "runs 2 for an entry"),
        ("finish", "entry"), ("touch", "ignored")],
    "after a failure the answered source is taken back without a run": [*OPEN, ("fail", ""), ("touch", "queued"),
        ("reload", ""), ("next", "answered"), ("next", "none")],
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_every_event_has_its_outcome(row: Row, tmp_path: Path) -> None:
    bench = Bench(tmp_path / "t")
    assert [(event, bench.do(event)) for event, _ in row] == row


def test_a_task_that_changed_is_not_answered(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "t")
    assert [bench.do(event) for event, _ in OPEN] == [outcome for _, outcome in OPEN]
    source, job = bench.logbook.take_source(), Job("save", 0.0, iteration=True)
    assert bench.queue.admit(job, source, "another task") == Decision(job)
    assert bench.queue.admit(job, source, "task") == Decision(None)


def test_a_folder_that_cannot_be_read_is_left_to_the_job_that_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path / "t")
    assert [bench.do(event) for event, _ in OPEN] == [outcome for _, outcome in OPEN]

    def refuse(*_: object) -> source_files.Stamps:
        raise OSError(errno.EIO, "Input/output error")

    assert bench.do("report") == "ignored"
    monkeypatch.setattr(source_files, "stamps", refuse)
    assert bench.do("report") == "queued"


def test_without_keys_the_notice_names_another_way(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "t")
    bench.queue = SaveQueue(bench.folder, bench.logbook, has_keys=False)
    assert [bench.do(event) for event, _ in OPEN] == [outcome for _, outcome in OPEN]
    assert bench.do("write out.pt a") == "ignored | out.pt changed: save the solution to start a run"
    assert [bench.do(event) for event in ("touch", "next")] == ["queued", "runs 1 for an entry"]
