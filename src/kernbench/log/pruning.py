"""Keeps the state folder small: removes snapshots that are not needed any more.

A snapshot stays if an entry, a best, a restore or one of the last runs named it, or if it was used within the hour.
What no run made stays too. Builds are the worker's to remove (`harness/load/builds.py`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from harness.shared.lines import encode
from kernbench.log.entries import pulled_entries
from kernbench.log.entries.pulled_entries import PulledEntries
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.runs_file import JournalError, RunsFile, parse

LAST_RUNS = 100
"""Sources of so many last runs without an entry stay."""
RECENT = 3600.0
"""Seconds for which a file that was used stays in any case: another workbench may need it."""
START, KEPT = b'{"event":"start"', b'{"event":"kept"'
GONE = ".gone-"


def keep(state: Path, source: str) -> None:
    """A restore stored this source and names it in its answer: it is never removed. On a full disk the restore goes
    on without this line."""
    with contextlib.suppress(JournalError):
        RunsFile(state / "runs.jsonl").append(encode("kept", source=source))


def prune(journal: Journal, entries: PulledEntries) -> int:
    """Removes what is not needed and returns how much that was. Call it in a thread: it may read the whole log."""
    pulled = [*entries.of(journal), *pulled_entries.dropped(journal)]
    if entries.path.exists() and not entries.current():  # its entries are not known
        return 0
    sources = journal.state / "sources"
    named = {run.source for run in journal.summaries if run.iteration is not None or run.best}
    named |= {journal.summaries[place].source for place in list(journal.waiting.values())}
    written = tuple({entry.source for entry in pulled if entry.source})
    stored = {path.name for path in _inside(sources) if path.is_dir() and not path.is_symlink()}
    others = {name for name in stored - named if not (written and name.startswith(written))}
    old = _made_by_runs(journal.path, others)[:-LAST_RUNS] if len(others) > LAST_RUNS else []
    gone = [sources / name for name in old]
    gone += [path for path in _inside(sources) if path.name.startswith((GONE, ".new-"))]  # of a killed process
    return sum(_removed(path) for path in gone)


def _made_by_runs(path: Path, sources: set[str]) -> list[str]:
    """Those of `sources` that a run timed and no restore stored, in the order of their last runs."""
    made: dict[str, None] = {}
    for _place, line in RunsFile(path).scan(rows=False):
        if line.startswith((START, KEPT)) and (data := parse(line)) is not None:
            source = str(data.get("source"))
            made.pop(source, None)
            if data["event"] == "kept":
                sources = sources - {source}
            elif source in sources:
                made[source] = None
    return [source for source in made if source in sources]


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _used(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _removed(path: Path) -> bool:
    if time.time() - _used(path) < RECENT:
        return False
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            gone = path.with_name(GONE + path.name.removeprefix(GONE))
            os.rename(path, gone)  # at once: a snapshot is there whole or not at all
            shutil.rmtree(gone)
        else:
            path.unlink()
        return True
    return False
