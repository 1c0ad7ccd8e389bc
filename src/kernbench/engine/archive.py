"""The screen's access to what a task keeps: earlier sources, profiles and exports of the log."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.shared.errors import UserError
from harness.shared.results import CaseResult
from harness.shared.task import Task
from kernbench.diagnosis import machine_code
from kernbench.diagnosis.machine_code import KernelCode
from kernbench.diagnosis.rules import diagnose
from kernbench.events import ProfileReady, Summary
from kernbench.log import drop_entry, pruning, stored_sources
from kernbench.log.entries.pulled_entries import PulledEntries
from kernbench.log.logbook import Logbook
from kernbench.machine import disassembler
from kernbench.ncu.profile_store import Profiles
from kernbench.task import snapshot
from kernbench.task.lookup import STATE_FOLDER

LONG_BYTES = 2 << 20
MACHINE_CODE = "machine_code"
"""The folder that the worker writes it to."""


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

    def machine_code(self, reference: str) -> list[KernelCode]:
        """What the source was compiled to when it last ran here on a GPU. Takes a second: call it in a thread."""
        task, state = self.task, self._logbook.state
        if task.device == "cpu":
            raise UserError("this task runs on the CPU: machine code is kept of GPU kernels only")
        point = self._find(reference)
        is_now = point.folder == Path(task.folder)
        name = snapshot.sha_of(point.folder, state, task.ignore) if is_now else point.folder.name
        try:
            data = json.loads((state / MACHINE_CODE / f"{name}.json").read_text(encoding="utf-8"))
            program = disassembler.find(str(data.get("nvdisasm", "")))
            return machine_code.read(data, functools.partial(disassembler.sass, program))
        except OSError:
            what = "the working copy" if is_now else point.name
            raise UserError(f"no machine code of {what}: it is kept when a source runs on a GPU; run it here") from None
        except (ValueError, AttributeError) as problem:
            raise UserError(f"the machine code of {point.name} cannot be read: {problem}") from None

    def restore(self, reference: str) -> tuple[str, str]:
        """Restores a source. Returns a sentence on what changed, and the hash of the files it replaced, which are kept;
        empty if none were."""
        task, state = self.task, self._logbook.state
        point = self._find(reference)
        before, changed = stored_sources.restore(task, point, state)
        here, usual = os.path.relpath(task.folder), Path(task.folder) / STATE_FOLDER
        name = None if here == "." else os.path.join(".", here)
        usually = None if state == usual else os.path.relpath(state)
        return stored_sources.restored(point, before, changed, name, usually), before if changed else ""

    async def doubt(self, number: int) -> str:
        """Why the user may not want to drop this entry; empty if nothing in it was written by hand."""
        return await self._logbook.in_thread(self._doubt, number)

    def _doubt(self, number: int) -> str:
        journal = self._logbook.journal
        return drop_entry.doubt(self.task, journal, drop_entry.find(self.task, journal, number))

    async def drop(self, number: int) -> str:
        """Removes an entry from ITERATIONS.md; its text is kept."""
        return await self._logbook.in_thread(self._drop, number)

    def _drop(self, number: int) -> str:
        journal = self._logbook.journal
        is_best = drop_entry.drop(self.task, journal, drop_entry.find(self.task, journal, number))
        self._logbook.refresh()
        best = "; its source stays the best until another takes over" if is_best else ""
        return f"dropped entry {number}{best}; `kernbench drop {number} --undo` puts it back"

    async def put_back(self, number: int) -> str:
        """Brings a dropped entry back."""
        return await self._logbook.in_thread(self._put_back, number)

    def _put_back(self, number: int) -> str:
        drop_entry.undo(self.task, self._logbook.journal, number)
        self._logbook.refresh()
        return f"entry {number} is back in ITERATIONS.md"

    def _find(self, reference: str) -> stored_sources.StoredSource:
        book = self._logbook
        return stored_sources.find(self.task, book.journal, reference, book.environment, book.l2)

    def profiles(self) -> dict[str, ProfileReady]:
        """The newest kept profile of each case."""
        kept = [profile for profile in Profiles(self._logbook.state).newest() if profile.side == "solution"]
        return {item.case: ProfileReady(item.case, item, diagnose(item)) for item in reversed(kept)}

    async def tried(self) -> Mapping[str, Sequence[str]]:
        """What the logs found from the task's folder know of each technique, by its name."""
        return await self._logbook.in_thread(self._tried)

    def _tried(self) -> Mapping[str, Sequence[str]]:
        from kernbench.log import knowledge

        return knowledge.by_technique(knowledge.entries(knowledge.logs(Path(self.task.folder))))

    def export(self, kind: str, force: bool) -> list[Path]:
        """Exports the log; raises UserError if it cannot."""
        from kernbench.export import export

        return export(self.task, self._logbook.state, kind, self.export_target(kind), force=force)

    def export_target(self, kind: str) -> Path:
        from kernbench.export import default_target

        return default_target(self.task, self._logbook.state, kind)
