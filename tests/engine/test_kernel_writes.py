"""Data files that change during a run: the kernel writes them, or a person saves them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernbench.engine.kernel_writes import KernelWrites
from kernbench.events import Notice, RunCancelled, RunFinished, RunStarted
from kernbench.task.snapshot import Stamps
from tests.sessions import Watched, write


def said(it: Watched) -> list[str]:
    return [event.text for event in it.of(Notice)]  # type: ignore[attr-defined]


@pytest.mark.anyio
async def test_a_kernel_that_writes_into_its_folder_ends_no_run_and_is_told_of(
    watched: Callable[..., Watched], folder: Path
) -> None:
    write(folder, 'DO = "dump"  # debug.txt')
    it = watched()
    await it.session.start()
    told = "the kernel writes debug.txt into its own folder: while it runs that starts no run, r does"
    await it.until(lambda: told in said(it))
    assert len(it.of(RunFinished)) == 3
    write(folder, 'DO = "dump"  # debug.txt\nTIME_US = 20.0')
    await it.until(lambda: len(it.of(RunFinished)) == 4)
    (folder / "debug.txt").write_text("by hand, while nothing runs")
    await it.until(lambda: len(it.of(RunFinished)) == 5)
    write(folder, "TIME_US = 10.0  # debug.txt")
    await it.until(lambda: len(it.of(RunFinished)) == 6)
    assert not it.of(RunCancelled)
    assert len(it.of(RunStarted)) == 6
    assert said(it).count(told) == 1
    assert [entry.iteration for entry in it.session.logbook.iterations()] == [1, 2, 3, 4]
    assert [run.iteration for run in it.session.logbook.journal.summaries] == [1, None, None, 2, 3, 4]


@pytest.mark.anyio
async def test_a_table_that_is_saved_by_hand_has_its_run(watched: Callable[..., Watched], folder: Path) -> None:
    slow = 'DO = "slow"\nTABLE = "table.txt"'
    write(folder, slow)
    it = watched()
    await it.session.start()
    await it.until(lambda: it.session.running is not None)
    (folder / "table.txt").write_text("1 2 3")  # while it runs
    await it.until(lambda: len(it.of(RunFinished)) == 2)
    assert "table.txt changed during the run: once more" in said(it)
    (folder / "table.txt").write_text("4 5 6")  # while nothing runs
    await it.until(lambda: len(it.of(RunFinished)) == 3)
    assert not it.of(RunCancelled)
    assert [run.iteration for run in it.session.logbook.journal.summaries] == [1, 2, 3]


@pytest.mark.anyio
async def test_while_paused_the_run_once_more_waits_and_says_so(watched: Callable[..., Watched], folder: Path) -> None:
    write(folder, 'DO = "slow"\nTABLE = "table.txt"')
    it = watched()
    await it.session.start()
    await it.until(lambda: it.session.running is not None)
    it.session.set_paused(True)
    (folder / "table.txt").write_text("1 2 3")
    await it.until(lambda: "table.txt changed during the run: once more, when space goes on" in said(it))
    assert len(it.of(RunFinished)) == 1
    it.session.set_paused(False)
    await it.until(lambda: len(it.of(RunFinished)) == 2)


class Folder:
    def __init__(self) -> None:
        self.stamps: Stamps = {"solution.py": (0, 0, 0)}
        self.writes = KernelWrites()

    def save(self, *names: str) -> None:
        for name in names:
            self.stamps[name] = (self.stamps.get(name, (0, 0, 0))[0] + 1, 0, 0)

    def run(self, *written: str) -> tuple[bool, tuple[str, bool]]:
        self.start_run()
        self.save(*written)
        return self.writes.is_resolved(dict(self.stamps)), self.after_run()

    def start_run(self) -> None:
        self.writes.start_run(dict(self.stamps))

    def after_run(self) -> tuple[str, bool]:
        return self.writes.after_run(dict(self.stamps), lambda: True)

    def only_kernel_wrote(self, running: bool) -> bool:
        return self.writes.only_kernel_wrote(dict(self.stamps), running)


def test_code_saved_before_the_second_run_is_an_iteration_like_another() -> None:
    it = Folder()
    assert it.run("out.pt") == (True, ("out.pt changed during the run: once more", True))
    it.save("solution.py")
    assert it.run("out.pt") == (True, ("out.pt changed during the run: once more", True))
    assert it.run("out.pt") == (False, ("out.pt changed during the run: once more", True))
    resolved, (sentence, again) = it.run("out.pt")
    assert (resolved, again) == (False, False)
    assert sentence.startswith("the kernel writes out.pt ")
    assert it.run("out.pt") == (True, ("", False))
    assert it.only_kernel_wrote(running=False)  # the watch reports it a moment later
    it.save("out.pt")
    assert not it.only_kernel_wrote(running=False)  # by hand


def test_another_file_than_the_kernels_own_has_its_run() -> None:
    it = Folder()
    it.save("table.json")
    for _ in range(3):
        it.run("out.pt")
    assert it.run("out.pt", "table.json") == (True, ("table.json changed during the run: once more", True))
    assert it.run("out.pt") == (True, ("", False))
    assert it.run() == (True, ("", False))
    assert it.run("out.pt") == (True, ("out.pt changed during the run: once more", True))  # by hand, for all we know


def test_what_is_known_and_written_while_a_run_is_on_is_seen_at_once() -> None:
    it = Folder()
    for _ in range(3):
        it.run("out.pt")
    it.start_run()
    it.save("out.pt")
    assert it.only_kernel_wrote(running=True)
    assert it.after_run() == ("", False)
    assert it.only_kernel_wrote(running=False)


def test_a_new_name_at_every_run_has_an_end() -> None:
    it = Folder()
    assert [it.run(f"out_{number}.pt")[1][1] for number in range(5)] == [True, True, False, False, False]
    assert it.only_kernel_wrote(running=False)
    it.save("other.pt")
    assert (it.only_kernel_wrote(running=False), it.only_kernel_wrote(running=True)) == (False, True)


@pytest.mark.parametrize("name", ["solution.py", "solution.cu", "cases.json", "task.toml", "inc/tile.cuh"])
def test_a_save_of_code_or_of_the_task_ends_the_run(name: str) -> None:
    it = Folder()
    it.start_run()
    it.save("out.pt", name)
    assert not it.only_kernel_wrote(running=True)
