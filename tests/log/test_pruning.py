"""The state folder stays small, and nothing that anybody can still name is removed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench.events import RunStarted
from kernbench.log import pruning, stored_sources
from kernbench.log.entries.pulled_entries import PulledEntries
from kernbench.log.runs.journal import Journal
from kernbench.task import snapshot
from tests.log.logs import make_log, summary_of, write_entries
from tests.sessions import Watched, reached

LONG_AGO = time.time() - 2 * pruning.RECENT
STARTED = RunStarted("r", "", "save", (), "2026-11-14T21:03:00+00:00", "eager")


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.setattr(pruning, "LAST_RUNS", 2)
    task = make_log(tmp_path / "t", 3, cases=2)
    write_entries(task)
    return task


def state(task: Task) -> Path:
    return Path(task.folder) / ".kernbench"


def stored(task: Task, sha: str) -> Path:
    """A snapshot that was last used long ago."""
    place = state(task) / "sources" / sha
    if not place.exists():
        place.mkdir()
        (place / "solution.py").write_text(f"# {sha}\n")
    os.utime(place, (LONG_AGO, LONG_AGO))
    return place


def started(task: Task, *sources: str) -> list[Path]:
    journal = Journal(state(task))
    for sha in sources:
        journal.start(replace(STARTED, run=f"r-{sha}", source=sha), "rms_norm", Environment())
    return [stored(task, sha) for sha in sources]


def prune(task: Task) -> int:
    return pruning.prune(Journal(state(task)), PulledEntries(Path(task.folder) / "ITERATIONS.md"))


def left(places: list[Path]) -> list[bool]:
    return [place.is_dir() for place in places]


def test_only_sources_of_old_runs_without_an_entry_go(task: Task) -> None:
    entries = [stored(task, run.source) for run in Journal(state(task)).summaries]
    runs = started(task, *(f"{number:02}" * 32 for number in range(5)))
    unknown = [stored(task, f"fe{number}" * 20) for number in range(4)]  # of a restore of an older version, perhaps
    assert prune(task) == 3
    assert left(runs) == [False, False, False, True, True]
    assert all(left([*entries, *unknown]))
    assert prune(task) == 0


def test_a_source_that_comes_again_is_one_of_the_last(task: Task) -> None:
    runs = started(task, "aa", "bb", "cc", "dd", "aa")
    prune(task)
    assert left(runs) == [True, False, False, True, True]


def test_what_a_best_or_a_waiting_entry_names_stays(task: Task) -> None:
    journal = Journal(state(task))
    about = summary_of(task, 9, [], [])
    journal.finish(replace(about, run="r1", source="aa", iteration=None, best=True), [])
    journal.finish(replace(about, run="r2", source="bb", iteration=None, best=False), [], True)
    runs = started(task, "aa", "bb", "cc", "dd", "ee")
    assert prune(task) == 1
    assert left(runs) == [True, True, False, True, True]


def test_what_a_pulled_entry_names_stays_even_if_the_log_cannot_be_read(task: Task) -> None:
    named = [run.source for run in Journal(state(task)).summaries]
    (state(task) / "runs.jsonl").unlink()  # the entries come from elsewhere now
    runs = started(task, *named, "cc", "dd", "ee")
    log = Path(task.folder) / "ITERATIONS.md"
    text = log.read_text()
    log.unlink()
    os.mkfifo(log)
    assert prune(task) == 0
    log.unlink()
    log.write_text(text)
    assert prune(task) == 1
    assert left(runs) == [True, True, True, False, True, True]


def test_what_a_restore_replaced_stays(task: Task) -> None:
    journal = Journal(state(task))
    point = stored_sources.find(task, journal, "2")
    (Path(task.folder) / "solution.py").write_text("# never entered\n")
    taken = snapshot.take(Path(task.folder), state(task), task)
    started(task, taken.sha)
    stored_sources.restore(task, point, state(task))
    os.utime(taken.folder, (LONG_AGO, LONG_AGO))
    runs = started(task, "aa", "bb", "cc")
    assert prune(task) == 1
    assert left([taken.folder, *runs]) == [True, False, True, True]


def test_what_was_just_used_stays(task: Task) -> None:
    started(task, "aa", "bb", "cc", "dd")
    os.utime(state(task) / "sources" / "aa")
    prune(task)
    assert sorted(path.name for path in (state(task) / "sources").iterdir() if len(path.name) == 2) == [
        "aa",
        "cc",
        "dd",
    ]
    source = snapshot.take(Path(task.folder), state(task), task)
    os.utime(source.folder, (LONG_AGO, LONG_AGO))
    snapshot.take(Path(task.folder), state(task), task)
    assert source.folder.stat().st_mtime > LONG_AGO + 60


def test_what_killed_processes_left_goes(task: Task) -> None:
    sources = state(task) / "sources"
    for name in (".new-abc", ".gone-abc"):
        (sources / name).mkdir()
        os.utime(sources / name, (LONG_AGO, LONG_AGO))
    assert prune(task) == 2
    assert not [path for path in sources.iterdir() if path.name.startswith(".")]


@pytest.mark.anyio
async def test_a_session_prunes_while_nothing_is_timed(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "LAST_RUNS", 1)
    it = watched()
    place = it.session.state / "sources"
    (place / ".new-killed").mkdir(parents=True)
    os.utime(place / ".new-killed", (LONG_AGO, LONG_AGO))
    await it.session.start()
    await it.ended(1)
    await reached(lambda: not (place / ".new-killed").exists())
    assert [path.name for path in place.iterdir()] == [it.session.logbook.journal.summaries[0].source]
