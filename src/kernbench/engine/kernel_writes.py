"""What a kernel writes into its own folder: a dump is no save, and must not end the run that writes it.

Who wrote a file cannot be known. A data file that changes during a run is left alone until the run has ended; then the
source is run once more, for a person may have saved a table that the kernel reads. Where data files change in the next
two runs again it is the kernel that writes them: while it runs they start nothing from then on. A change while nothing
runs is a person's, whatever the file, and a file that a run has not written is anybody's again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

from harness.shared.code_equality import C_LIKE
from kernbench.task.snapshot import ALWAYS, Stamps

CODE = (".py", ".toml", ".cl", ".inc", ".metal", *C_LIKE)

ENOUGH = 2


class Dumps:
    def __init__(self, look: Callable[[], Stamps]) -> None:
        self._look = look
        self._taken: Stamps = {}
        """The source's files as they were when they were last taken, or that was tried; of known dumps as last seen."""
        self._known: set[str] = set()
        """What the kernel writes whenever it runs."""
        self._written: set[str] = set()
        """Those of them that it has written since the source was taken."""
        self._makes_files = False
        """With other names every time."""
        self._doubts = 0
        """How many times the source was run once more, to tell."""

    def take(self) -> None:
        """The source is taken now; one whose code was changed is not the one that was to tell."""
        self._doubts = self._doubts if _are_data(self.changed()) else 0
        self._taken, self._written = self._look(), set()

    def changed(self) -> set[str]:
        """The files that were saved since, but for those that the kernel is known to write."""
        return self._all_changed() - self._known

    def _all_changed(self) -> set[str]:
        now, then = self._look(), self._taken
        return {name for name in now.keys() | then.keys() if now.get(name) != then.get(name)}

    def is_no_save(self, running: bool) -> bool:
        """Whether nothing has changed but what may be the kernel's own: data, while it runs."""
        changed = self._all_changed()
        if not changed:
            return bool(self._known)  # seen already; the source's hash does not know that
        if running:
            self._see(changed & self._known)
        return running and _are_data(changed)

    def are_told_apart(self) -> bool:
        """Whether the run that was to tell has shown a person's save: nothing was written during it."""
        return not (self._doubts and _are_data(self.changed()))

    def end_run(self, is_another: Callable[[], bool]) -> tuple[str, bool]:
        """A sentence about what was written, or nothing, and whether to run once more; `is_another` source is there."""
        everything, doubts, self._doubts = self._all_changed(), self._doubts, 0
        changed, created = everything - self._known, everything - self._taken.keys()
        self._see(everything & self._known)
        self._known = set(self._written)
        if not _are_data(changed):
            return "", False
        names = _listed(sorted(changed))
        if doubts == ENOUGH or (self._makes_files and changed <= created):
            self._known |= changed
            self._makes_files = self._makes_files or changed <= created
            self._see(changed)
            told = f"the kernel writes {names} into its own folder: while it runs that starts no run, r does"
            return told if doubts else "", False
        if not is_another():
            return "", False
        self._doubts = doubts + 1
        return f"{names} changed during the run: once more", True

    def _see(self, names: set[str]) -> None:
        """What the kernel has written is no news any more."""
        now = self._look()
        self._written |= names
        self._taken = {name: stamp for name, stamp in self._taken.items() if name not in names}
        self._taken |= {name: now[name] for name in names if name in now}


def _are_data(names: set[str]) -> bool:
    """Neither code nor the task's own; such a save ends a run at once."""
    return bool(names) and not any(PurePath(name).suffix in CODE or PurePath(name).name in ALWAYS for name in names)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
