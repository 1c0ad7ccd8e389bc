"""What the queue makes of saves, keys and runs, event by event; no worker and no waiting.

A row is a list of (event, outcome). Events:

    save A          solution.py gets the text A, and the watch reports it
    look A          the same, found only by a look at the files' times
    touch           the watch reports a save of the same text
    report          the watch reports a change, late or of something else
    write F A       the data file F gets the text A, and the watch reports it
    quietly F A     the same, before the watch has reported it
    key, pause, space
    next            the session asks for a job and reads the folder for it
    finish, break off   the run ends, or is cancelled; `key` and `save` during a run only ask for that
    fail            the job could not read the folder, or its run broke down
    reload          the task could be read again

Outcomes of changes: queued, dropped, ignored, waits (still queued). Of next: runs A or runs A for an entry; answered
(not run), none. Of finish: entry or no entry, and `again` where another run was queued. Notices follow after a bar.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernbench.engine.jobs import Job
from kernbench.engine.save_queue import Decision, SaveQueue
from kernbench.log.logbook import Logbook

Row = list[tuple[str, str]]

PAUSED = "paused: the save waits, space goes on"
LAYOUT = "only comments, layout or unused files changed: not timed again"
KERNEL_WRITES = "the kernel writes out.pt into its own folder: while it runs that starts no run, r does"
OPEN: Row = [("open", ""), ("next", "runs 1 for an entry"), ("finish", "entry")]


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
        decision = self.queue.folder_changed(seen, self.running is not None)
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
        self.queue.before_reading()
        decision = self.queue.admit(job, self.logbook.take_source(), "task")
        if decision.job is None:
            return _with_notice("answered", decision)
        self.queue.run_started()
        self.running = decision.job
        text = (self.folder / "solution.py").read_text().removeprefix("x = ").rstrip()
        return _with_notice(f"runs {text}" + (" for an entry" if decision.job.iteration else ""), decision)

    def _finish(self) -> str:
        assert self.running is not None
        entry = "entry" if self.running.iteration and self.queue.is_persons_save() else "no entry"
        self.running = None
        self.queue.run_finished()
        decision = self.queue.after_run()
        return _with_notice(entry + (", again" if decision.job else ""), decision)

    def _break(self, _off: str) -> str:
        assert self.running is not None
        self.running = None
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
    "a table saved during a run has its own run and entry": [("open", ""), ("next", "runs 1 for an entry"),
        ("write out.pt a", "ignored"), ("finish", "entry, again | out.pt changed during the run: once more"),
        ("next", "runs 1 for an entry"), ("finish", "entry"), ("next", "none"),
        ("write out.pt b", "queued"), ("next", "runs 1 for an entry"), ("finish", "entry")],
    "data written in three runs in a row is the kernel's": [("open", ""), ("next", "runs 1 for an entry"),
        ("write out.pt a", "ignored"), ("finish", "entry, again | out.pt changed during the run: once more"),
        ("next", "runs 1 for an entry"),
        ("write out.pt b", "ignored"), ("finish", "no entry, again | out.pt changed during the run: once more"),
        ("next", "runs 1 for an entry"),
        ("write out.pt c", "ignored"), ("finish", f"no entry | {KERNEL_WRITES}"), ("next", "none"),
        ("key", ""), ("next", "runs 1"), ("write out.pt d", "ignored"), ("finish", "no entry"), ("next", "none"),
        ("save 2", "queued"), ("next", "runs 2 for an entry"), ("write out.pt e", "ignored"), ("finish", "entry"),
        ("write out.pt by-hand", "queued"), ("next", "runs 2 for an entry"), ("finish", "entry")],
    "the watch may report a known file only after the run": [("open", ""), ("next", "runs 1 for an entry"),
        ("quietly out.pt a", ""), ("finish", "entry, again | out.pt changed during the run: once more"),
        ("next", "runs 1 for an entry"),
        ("quietly out.pt b", ""), ("finish", "no entry, again | out.pt changed during the run: once more"),
        ("next", "runs 1 for an entry"),
        ("quietly out.pt c", ""), ("finish", f"no entry | {KERNEL_WRITES}"), ("report", "ignored"), ("next", "none")],
    "data written back as it was during a run starts nothing": [("quietly out.pt a", ""), *OPEN, ("key", ""),
        ("next", "runs 1"), ("write out.pt b", "ignored"), ("write out.pt a", "ignored"), ("finish", "no entry"),
        ("next", "none")],
    "code saved during a doubt starts the count anew": [("open", ""), ("next", "runs 1 for an entry"),
        ("write out.pt a", "ignored"), ("finish", "entry, again | out.pt changed during the run: once more"),
        ("save 2", "queued"), ("next", "runs 2 for an entry"), ("write out.pt b", "ignored"),
        ("finish", "entry, again | out.pt changed during the run: once more")],
    "code saved together with data ends the run": [*OPEN, ("key", ""), ("next", "runs 1"), ("quietly out.pt a", ""),
        ("save 2", "queued"), ("break off", ""), ("next", "runs 2 for an entry")],
    "while paused the extra run waits for space": [("open", ""), ("next", "runs 1 for an entry"), ("pause", ""),
        ("write out.pt a", "ignored"),
        ("finish", "entry, again | out.pt changed during the run: once more, when space goes on"), ("next", "none"),
        ("space", ""), ("next", "runs 1 for an entry"), ("finish", "entry")],
    "a key that waits takes the place of the extra run": [("open", ""), ("next", "runs 1 for an entry"),
        ("write out.pt a", "ignored"), ("key", ""),
        ("finish", "entry | out.pt changed during the run: once more"), ("next", "runs 1 for an entry"),
        ("finish", "entry"), ("next", "none")],
    "a kernel that makes new files in every run has an end": [("open", ""), ("next", "runs 1 for an entry"),
        ("write a.pt 1", "ignored"), ("finish", "entry, again | a.pt changed during the run: once more"),
        ("next", "runs 1 for an entry"),
        ("write b.pt 1", "ignored"), ("finish", "no entry, again | b.pt changed during the run: once more"),
        ("next", "runs 1 for an entry"), ("write c.pt 1", "ignored"),
        ("finish", f"no entry | {KERNEL_WRITES.replace('out.pt', 'c.pt')}"), ("next", "none"),
        ("key", ""), ("next", "runs 1"), ("write d.pt 1", "ignored"), ("finish", "no entry"),
        ("key", ""), ("next", "runs 1"), ("write e.pt 1", "ignored"), ("finish", "no entry"), ("next", "none"),
        ("write f.pt by-hand", "queued"), ("next", "runs 1 for an entry")],
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

    def refuse() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench.logbook, "take_source", refuse)
    assert bench.do("save 2") == "queued"
