"""The screen's access to what a task keeps: earlier sources, profiles and exports of the log."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from harness.shared.errors import UserError
from harness.shared.results import CaseResult
from harness.shared.task import Task
from kernbench.diagnosis.rules import diagnose
from kernbench.events import ProfileReady, Summary
from kernbench.log import pruning, stored_sources
from kernbench.log.entries.pulled_entries import PulledEntries
from kernbench.log.logbook import Logbook
from kernbench.ncu.profile_store import Profiles
from kernbench.task.lookup import STATE_FOLDER

LONG_BYTES = 2 << 20


class Archive:
    def __init__(self, task: Task, logbook: Logbook) -> None:
        self.task = task
        """As last read; the session replaces it when it changes."""
        self._logbook = logbook

    @property
    def is_long(self) -> bool:
        """Whether reading the log would delay the first screen."""
        try:
            return (self._logbook.state / "runs.jsonl").stat().st_size > LONG_BYTES
        except OSError:
            return False

    def read(self) -> None:
        """Reads the log now instead of on first use. Safe to call in a thread."""
        self._logbook.refresh()

    def rows(self, entry: Summary) -> Mapping[str, CaseResult]:
        """The results of an iteration, by case. Safe to call in a thread."""
        return self._logbook.results_of(entry)

    def prune(self) -> None:
        """Removes snapshots and compiled images that nothing names. Safe to call in a thread."""
        with contextlib.suppress(UserError, OSError):
            pruning.prune(self._logbook.journal, PulledEntries(self._logbook.path))

    def sources(self, reference: str) -> dict[str, str]:
        """Solution files of an iteration, `best`, `last` or `now`, by name."""
        point = self._find(reference)
        return stored_sources.texts(point, self.task)

    def restore(self, reference: str) -> str:
        """Restores a source and returns a sentence on what changed; the files it replaces are kept."""
        task, state = self.task, self._logbook.state
        point = self._find(reference)
        before, changed = stored_sources.restore(task, point, state)
        here, usual = os.path.relpath(task.folder), Path(task.folder) / STATE_FOLDER
        name = None if here == "." else os.path.join(".", here)
        return stored_sources.restored(point, before, changed, name, None if state == usual else os.path.relpath(state))

    def _find(self, reference: str) -> stored_sources.StoredSource:
        book = self._logbook
        return stored_sources.find(self.task, book.journal, reference, book.environment, book.l2)

    def profiles(self) -> dict[str, ProfileReady]:
        """The newest kept profile of each case."""
        kept = [profile for profile in Profiles(self._logbook.state).newest() if profile.side == "solution"]
        return {item.case: ProfileReady(item.case, item, diagnose(item)) for item in reversed(kept)}

    def export(self, kind: str, force: bool) -> list[Path]:
        """Exports the log; raises UserError if it cannot."""
        from kernbench.export import export

        return export(self.task, self._logbook.state, kind, self.export_target(kind), force=force)

    def export_target(self, kind: str) -> Path:
        from kernbench.export import default_target

        return default_target(self.task, self._logbook.state, kind)
