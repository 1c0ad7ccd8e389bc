"""Tells files that a kernel writes into its own folder from files that a person saves there.

Nothing says who wrote a file, so the answer is inferred. A data file that changes during a run is left alone until the
run has ended; then the source runs once more, because a person may have saved a table that the kernel reads. If data
files change again in the next two runs, the kernel writes them, and from then on they start nothing while it runs. A
change while nothing runs is always a person's. A file that a run did not write may be anybody's again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

from harness.shared.code_equality import C_LIKE
from kernbench.task.snapshot import ALWAYS, Stamps

CODE_SUFFIXES = (".py", ".toml", ".cl", ".inc", ".metal", *C_LIKE)

ENOUGH_DOUBTS = 2


class KernelWrites:
    """Every method gets the stamps of the source's files as they are at that moment."""

    def __init__(self) -> None:
        self._seen: Stamps = {}
        """Stamps when the source was last read, or tried to be; those of known files when they were last seen."""
        self._known: set[str] = set()
        """Files that the kernel writes in every run."""
        self._written: set[str] = set()
        """The known files that it has written since the source was read."""
        self._makes_files = False
        """It writes new names in every run."""
        self._doubts = 0
        """How many extra runs have been started to find out who writes."""

    def start_run(self, now: Stamps) -> None:
        """The source is about to be read. If its code was changed, the next run is not the one that settles a doubt."""
        self._doubts = self._doubts if _is_data(self.changed(now)) else 0
        self._seen, self._written = now, set()

    def changed(self, now: Stamps) -> set[str]:
        """Files saved since then, without those that the kernel is known to write."""
        return self._all_changed(now) - self._known

    def _all_changed(self, now: Stamps) -> set[str]:
        then = self._seen
        return {name for name in now.keys() | then.keys() if now.get(name) != then.get(name)}

    def only_kernel_wrote(self, now: Stamps, running: bool) -> bool:
        """Whether nothing has changed but what the kernel may have written: data files, during a run."""
        changed = self._all_changed(now)
        if not changed:
            return bool(self._known)  # they were seen before; the hash of the source still differs
        if running:
            self._mark_seen(changed & self._known, now)
        return running and _is_data(changed)

    def is_resolved(self, now: Stamps) -> bool:
        """Whether no doubt is left about who wrote; after an extra run: nothing was written during it."""
        return not (self._doubts and _is_data(self.changed(now)))

    def after_run(self, now: Stamps, is_other_source: Callable[[], bool]) -> tuple[str, bool]:
        """A sentence about what was written, or "", and whether to run once more.

        `is_other_source` says whether the folder holds another source than the one that ran. It reads every file, so
        it is called only when the answer matters.
        """
        everything, doubts, self._doubts = self._all_changed(now), self._doubts, 0
        changed, created = everything - self._known, everything - self._seen.keys()
        self._mark_seen(everything & self._known, now)
        self._known = set(self._written)
        if not _is_data(changed):
            return "", False
        names = _joined(sorted(changed))
        if doubts == ENOUGH_DOUBTS or (self._makes_files and changed <= created):
            self._known |= changed
            self._makes_files = self._makes_files or changed <= created
            self._mark_seen(changed, now)
            sentence = f"the kernel writes {names} into its own folder: while it runs that starts no run, r does"
            return sentence if doubts else "", False
        if not is_other_source():
            return "", False
        self._doubts = doubts + 1
        return f"{names} changed during the run: once more", True

    def _mark_seen(self, names: set[str], now: Stamps) -> None:
        """The kernel has written these: they no longer count as changed."""
        self._written |= names
        self._seen = {name: stamp for name, stamp in self._seen.items() if name not in names}
        self._seen |= {name: now[name] for name in names if name in now}


def _is_data(names: set[str]) -> bool:
    """Neither code nor a file of the task, whose save ends a run at once."""
    return bool(names) and not any(
        PurePath(name).suffix in CODE_SUFFIXES or PurePath(name).name in ALWAYS for name in names
    )


def _joined(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
