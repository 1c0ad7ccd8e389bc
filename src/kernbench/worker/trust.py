"""Whether a worker may go on after a source: what its messages say the source has done to the process.

A worker that a source has changed is replaced after the run. A source that is not to blame is run again in a clean one:
when an earlier source has left something behind, when it fails in code that is not its own after another source ran in
the same worker, or when the harness itself fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.shared import format as fmt
from kernbench.events import Event, Notice

MOST_REPLACED = 2
"""Workers in a row for one reason; a source that changes its process at every save would use up every spare."""


class Trust:
    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self.packages: list[str] = []
        """Those that change torch when they are imported: a new worker imports them first."""
        self._sources: dict[int, set[str]] = {}
        """Sources that each worker has run."""
        self._reason: frozenset[str] = frozenset()
        self._times = 0
        self._said: set[tuple[str, ...]] = set()
        self._pid = 0
        self._changed: list[str] = []
        self._left = self._failed_inside = False

    def begin(self, pid: int, source: str) -> None:
        """A worker is asked to run a source."""
        self._pid, self._changed, self._left, self._failed_inside = pid, [], False, False
        self._sources = {pid: self._sources.get(pid, set()) | {source}}

    def take(self, message: dict[str, Any]) -> None:
        """Notes what a message says about the process, and tells the user once."""
        if message.get("event") == "failed" and message.get("internal"):
            self._failed_inside = True
        if message.get("event") != "changed":
            return
        restored = tuple(map(str, message.get("restored", ())))
        self._changed += map(str, message.get("replaced", ()))
        self._left |= bool(message.get("left"))
        if restored:
            self._say(restored, f"restored {fmt.joined(restored)}, which the source had changed")
        for name, package in message.get("packages", ()):
            if package not in self.packages:
                self.packages.append(str(package))
            self._say((str(name), str(package)), f"importing {package} replaced {name}")

    def _say(self, key: tuple[str, ...], text: str) -> None:
        if key not in self._said:
            self._said.add(key)
            self._emit(Notice(text))

    def wants_clean_worker(self, message: dict[str, Any]) -> bool:
        """Whether this source has to be run again in a new worker before anything is said about it."""
        if self._left and message.get("event") == "changed":
            return True
        result = message.get("result")
        failed = message.get("event") == "failed" or (
            isinstance(result, dict) and result.get("status") == "runtime_error"
        )
        suspect = message.get("elsewhere") or message.get("internal") or self._changed
        return bool(failed and suspect and len(self._sources.get(self._pid, ())) > 1)

    def must_replace(self) -> bool:
        """Whether the worker has to go after this run."""
        reason = frozenset(self._changed)
        if not reason:
            self._reason, self._times = frozenset(), 0
            return self._failed_inside or self._left
        self._times = self._times + 1 if reason == self._reason else 1
        self._reason = reason
        if self._times > MOST_REPLACED and not self._failed_inside:
            names = fmt.joined(sorted(reason)[:3])
            text = f"the source changes {names} at every save: its worker is kept, and its runs cannot become best"
            self._say(("kept", *sorted(reason)), text)
            return False
        return True
