"""Compares the process with its fingerprint around a source: before it loads, after it has loaded, after its run.

The modules of reference and baseline are watched too: what a source changes there makes its opponent slower or wrong.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from harness.load.failure import SIDE_PREFIX
from harness.shared import findings
from harness.shared import format as fmt
from harness.shared.codes import FindingCode
from harness.shared.results import Finding
from harness.state.fingerprint import Fingerprint, Functions

MOST_NAMES = 3
OPPONENTS = tuple(f"{SIDE_PREFIX}{role}_" for role in ("reference", "baseline"))


class ProcessWatch:
    """One per worker."""

    def __init__(self) -> None:
        self._fingerprint: Fingerprint | None = None
        self._opponents: dict[str, Functions] = {}
        """By module."""
        self._reference: tuple[Any, dict[str, Any]] = (None, {})
        """The loaded reference and its functions."""
        self._inherited: Mapping[str, int] = {}
        self._last: Mapping[str, int] = {}
        """What the last look found replaced: nothing runs between its run and the next."""
        self._task: tuple[Any, str] = (None, "None")
        """The run's task and its text: cases, tolerances, and all else that a row is judged by."""
        self._told: set[str] = set()
        self.changed = ""
        """What the source of this run has changed for good, in words."""
        self.restored: tuple[str, ...] = ()
        """The settings that the last look put back: a source that stays loaded has lost its own."""

    def begin(self) -> None:
        """Takes the fingerprint, once nothing more is imported."""
        if self._fingerprint is None:
            self._fingerprint = Fingerprint()

    def begin_run(self, task: Any) -> None:
        self._task = (task, repr(task))

    def before_load(self) -> None:
        """Notes what earlier sources have left behind, so that this one is not blamed for it."""
        self.begin()
        assert self._fingerprint is not None
        self._fingerprint.begin()
        self._told, self.changed = set(), ""
        self._inherited = self._last

    def look(
        self, emit: Callable[..., None], is_over: bool = False, mentions: Callable[[str], bool] = lambda name: True
    ) -> list[Finding]:
        """Reports what the source has changed, and what it found changed; returns what the run is marked with.

        Settings are put back when the run is over: the source may need them in its calls.
        """
        assert self._fingerprint is not None
        changes = self._fingerprint.look(is_over, mentions)
        self.restored, self._last = tuple(changes.restored), changes.replaced
        news = {name: value for name, value in changes.replaced.items() if name not in self._told}
        mine = [name for name, value in news.items() if self._inherited.get(name) != value]
        left = [name for name in news if name not in mine]
        packages = [list(item) for item in changes.by_packages]
        spoiled = [name for name in self._changed_opponents() if name not in self._told]
        if changes.restored or news or packages or spoiled:
            replaced = [*mine, *spoiled]
            emit("changed", restored=list(changes.restored), replaced=replaced, left=left, packages=packages)
        self._told.update([*news, *spoiled])
        self.changed = self.changed or listed([*mine, *spoiled])
        named: tuple[tuple[FindingCode, list[str]], ...] = (
            ("process_changed", mine),
            ("changed_before", left),
            ("opponent_changed", spoiled),
        )
        return [findings.make(code, names=listed(names)) for code, names in named if names]

    def import_packages(self, names: list[str]) -> None:
        """Imports packages that change torch, so that their changes are part of the fingerprint."""
        for name in names:
            with contextlib.suppress(Exception):  # the source's own import will say why
                importlib.import_module(name)
        self._fingerprint = None

    @contextlib.contextmanager
    def task_files(self) -> Iterator[None]:
        """What happens inside is the task's doing: its settings last, and its functions are watched from then on."""
        known = self._fingerprint
        if known is not None:
            settings, replaced = known.settings(), known.look(restore=False).replaced
        yield
        if known is not None:
            known.accept(settings, replaced)
        self.watch_opponents()

    def keep_reference(self, reference: Any) -> None:
        """Watches the functions that the harness has taken from it."""
        if self._reference[0] is not reference:
            self._reference = (reference, dict(vars(reference)))

    def watch_opponents(self) -> None:
        """Call it when a file of the reference's or the baseline's has been loaded."""
        loaded = {name for name in sys.modules if name.startswith(OPPONENTS)}
        self._opponents = {name: kept for name, kept in self._opponents.items() if name in loaded}
        for name in loaded - self._opponents.keys():
            module = sys.modules[name]
            if isinstance(module, types.ModuleType):
                self._opponents[name] = Functions([(_user_name(name), vars(module))])

    def _changed_opponents(self) -> list[str]:
        loaded = [kept for name, kept in self._opponents.items() if name in sys.modules]
        reference, taken = self._reference
        current = vars(reference) if taken else {}
        other = [f"reference.{name.strip('_')}" for name, value in taken.items() if current.get(name) is not value]
        task, text = self._task
        return [
            *(["the task's settings"] if repr(task) != text else []),
            *other,
            *(f"{owner}.{name}" for kept in loaded for owner, name, _ in kept.replaced()),
            *(name for kept in loaded for name in kept.rewritten()),
        ]


def _user_name(module: str) -> str:
    return module.partition(".")[2] or "reference"


def listed(names: list[str]) -> str:
    more = len(names) - MOST_NAMES
    return fmt.joined([*names[:MOST_NAMES], *([f"{more} more"] if more > 0 else [])])
