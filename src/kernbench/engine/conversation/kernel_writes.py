"""Tells what the kernel writes into its task's folder from a user's saves.

A file that the worker reports is the kernel's until its run ends. What cannot be decided (the kernel has started a
process, or a file that was not there at first and was never edited changes right after the start of a run) starts at
most two runs in a row, or none if it is only an image, which the process has compiled; then it is ignored until another
file changes, or until it changes while nothing has run for a while.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from harness.shared import format as fmt
from harness.shared.taskfile.values import one_line
from kernbench.events import Notice
from kernbench.task.source_files import IMAGES

MOST_RUNS = 2
SOON_S = 2.0
MOST_NAMED = 3


class KernelWrites:
    def __init__(self, has_keys: bool) -> None:
        self.names: set[str] = set()
        """Written by the kernel that runs now."""
        self._unseen = False
        self._users: set[str] | None = None
        """Files that were there at the first run, or changed while nothing had run for a while."""
        self._began = self._ended = float("-inf")
        self._doubtful: frozenset[str] = frozenset()
        self._in_a_row = 0
        self._named: set[frozenset[str]] = set()
        self._else = "press r to run anyway" if has_keys else "save another file to run anyway"

    def start(self, files: Iterable[str]) -> None:
        """A run of a source with these files starts."""
        self.names, self._unseen, self._began = set(), False, time.monotonic()
        self._users = set(files) if self._users is None else self._users

    def add(self, names: Iterable[str], unseen: bool) -> None:
        self.names |= set(names)
        self._unseen |= unseen

    def stop(self) -> set[str]:
        written, self.names, self._ended = self.names, set(), time.monotonic()
        return written

    def keep_changing(self, files: frozenset[str], running: bool) -> bool:
        """Whether these changes have started enough runs, and may be the kernel's."""
        now, users = time.monotonic(), self._users or set()
        if not running and now - self._ended > SOON_S:
            self._users = users | files
            self._in_a_row = 0
            return False
        is_soon = now - self._began < SOON_S
        if not (self._unseen or (is_soon and not files & users)):
            self._in_a_row = 0
            return False
        self._in_a_row = self._in_a_row + 1 if files == self._doubtful else 1
        self._doubtful = files
        return self._in_a_row > (0 if _are_images(files) else MOST_RUNS)

    def reported(self, files: frozenset[str]) -> Notice | None:
        """Once for the same files."""
        return self._once(files, Notice(f"the kernel wrote {listed(files)}, which does not start a run; {self._else}"))

    def ignored(self, files: frozenset[str]) -> Notice | None:
        if _are_images(files):
            return self.reported(files)
        said = f"{listed(files)} kept changing ({MOST_RUNS + 1} runs in a row), perhaps written by the kernel"
        return self._once(files, Notice(f"{said}: ignored until another file changes; {self._else}", "warning"))

    def _once(self, files: frozenset[str], notice: Notice) -> Notice | None:
        if not files or files in self._named:
            return None
        self._named.add(files)
        return notice


def _are_images(files: frozenset[str]) -> bool:
    return all(name.endswith(IMAGES) for name in files)


def listed(files: Iterable[str]) -> str:
    names = sorted(files)
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return fmt.joined([*map(one_line, names[:MOST_NAMED]), *more])
