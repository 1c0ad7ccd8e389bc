"""What a kernel writes into its own folder: a dump is no save, and must not end the run that writes it.

Who wrote a file cannot be known. A data file that changes during a run is left alone until the run has ended; then the
source is run once more, for a person may have saved a table that the kernel reads. Where data files change in that run
again it is the kernel that writes them, and they are left out of the watch from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

from kernbench.meaning import C_LIKE
from kernbench.snapshot import ALWAYS, Stamps

CODE = (".py", ".toml", *C_LIKE)


class Dumps:
    def __init__(self, look: Callable[[], Stamps]) -> None:
        self._look = look
        self._taken: Stamps = {}
        """The source's files as they were when they were last taken, or that was tried."""
        self._known: set[str] = set()
        """Left out of the watch."""
        self._doubts = False
        """The source is run once more, to tell."""

    def take(self) -> None:
        """The source is taken now; one whose code was changed is not the one that was to tell."""
        self._doubts = self._doubts and _are_data(self.changed())
        self._taken = self._look()

    def changed(self) -> set[str]:
        """The files that were saved since, but for those that the kernel is known to write."""
        return self._all_changed() - self._known

    def _all_changed(self) -> set[str]:
        now, then = self._look(), self._taken
        return {name for name in now.keys() | then.keys() if now.get(name) != then.get(name)}

    def is_no_save(self, running: bool) -> bool:
        """Whether all that changed may be the kernel's own: known to be, or data while it runs."""
        changed = self._all_changed()
        return bool(changed) and (changed <= self._known or (running and _are_data(changed)))

    def are_told_apart(self) -> bool:
        """Whether the run that was to tell has shown a person's save: nothing was written during it."""
        return not (self._doubts and _are_data(self.changed()))

    def end_run(self, is_another: Callable[[], bool]) -> tuple[str, bool]:
        """A sentence about what was written, or nothing, and whether to run once more; `is_another` source is there."""
        changed, doubted, self._doubts = self.changed(), self._doubts, False
        if not _are_data(changed):
            return "", False
        names = _listed(sorted(changed))
        if doubted or self._known:
            self._known |= changed
            return f"the kernel writes {names} into its own folder: left out of the watch until you leave", False
        self._doubts = is_another()
        return f"{names} changed during the run: once more" if self._doubts else "", self._doubts


def _are_data(names: set[str]) -> bool:
    """Neither code nor the task's own; such a save ends a run at once."""
    return bool(names) and not any(PurePath(name).suffix in CODE or PurePath(name).name in ALWAYS for name in names)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
