"""The engine as the screen sees it: the session implements it, tests pass a fake."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench.diagnosis.machine_code import KernelCode
from kernbench.events import Event, ProfileReady, Summary

if TYPE_CHECKING:  # the screen loads a sweep only when one is asked for
    from kernbench.engine.jobs import Options
    from kernbench.sweep.live_sweep import GpuLender


class Archive(Protocol):
    """A task's stored sources, profiles and exports. A UserError explains what is missing."""

    @property
    def is_long(self) -> bool:
        """Whether the log takes long to read, so that the screen opens first."""

    def read(self) -> None:
        """Read the log; may be called in a thread."""

    def rows(self, entry: Summary) -> Mapping[str, CaseResult]:
        """The results of an iteration, by case; may be called in a thread."""

    def sources(self, reference: str) -> Mapping[str, str]:
        """File name to text of `now`, `best`, `last` or an iteration."""

    def machine_code(self, reference: str) -> list[KernelCode]:
        """What a source was compiled to; may take a second."""

    def restore(self, reference: str) -> tuple[str, str]:
        """Restore a source; returns what changed, and what brings the replaced files back (empty if none were)."""

    async def doubt(self, number: int) -> str:
        """Why the user may not want to drop this entry; empty if nothing in it was written by hand."""

    async def drop(self, number: int) -> str:
        """Remove an entry from ITERATIONS.md; returns one sentence."""

    async def put_back(self, number: int) -> str:
        """Bring a dropped entry back; returns one sentence."""

    def profiles(self) -> Mapping[str, ProfileReady]:
        """Stored profiles, the newest of each case."""

    async def tried(self) -> Mapping[str, Sequence[str]]:
        """What the logs know of each technique, by its name."""

    def export(self, kind: str, force: bool) -> list[Path]:
        """Export the log."""

    def export_target(self, kind: str) -> Path: ...


class Logbook(Protocol):
    """The iterations of a task."""

    def iterations(self) -> Sequence[Summary]:
        """All iterations, by number. Only the newest are cheap to read: a log may have thousands."""

    def summary(self, run: str) -> Summary | None:
        """Of a run of this machine."""

    def best_now(self) -> Summary | None:
        """The current best: a run, or an entry from another machine."""

    def numbers(self) -> Sequence[int]:
        """The numbers of all iterations, in order."""

    def text(self, number: int, source: str | None = None, at: str = "") -> str:
        """The entry's text; `source` and `at` choose between two with the same number."""


class RunNotes(Protocol):
    """A person's notes on runs."""

    hypothesis: str
    """Of the next run."""
    next_step: str
    """Not in an entry yet."""

    def hypothesis_for(self) -> int | None:
        """The last entry, if it has no hypothesis and nothing was saved since."""

    def set_hypothesis(self, number: int | None, text: str, instead_of: str = "") -> str:
        """Set it for that entry, else for the next run; returns one sentence with what changed."""

    def made(self) -> int:
        """How many entries saves have made so far."""

    def logged(self) -> int:
        """How many entries made since the start are in the log now."""

    def entry_after(self, count: int, besides: str = "") -> int | None:
        """The first entry after those, except that of the run `besides`."""

    def next_now(self) -> str:
        """The next step that `set_next` would replace."""

    def set_next(self, text: str) -> str:
        """Set the next step; returns one sentence with what changed."""


class Models(Protocol):
    """The models that have a site for the task."""

    last: str
    """The one that was chosen last."""

    def choices(self) -> Sequence[str]: ...

    def start(self, name: str) -> None:
        """Run it in its own worker as soon as nothing else runs; events say what it does and what came of it."""


class Engine(Protocol):
    """One open task. Events arrive in the event loop that called `start`."""

    @property
    def task(self) -> Task: ...

    @property
    def environment(self) -> Environment | None: ...

    @property
    def paused(self) -> bool: ...

    @property
    def waits(self) -> bool:
        """Whether a save is pending while paused."""

    @property
    def is_alone(self) -> bool:
        """Whether this is the only workbench open on the task."""

    @property
    def running(self) -> str | None:
        """Id of the run in progress."""

    @property
    def baseline(self) -> str: ...

    @property
    def state(self) -> Path:
        """The folder with the task's runs."""

    @property
    def options(self) -> Options: ...

    @property
    def supervisor(self) -> GpuLender:
        """Lends the GPU to a sweep."""

    @property
    def archive(self) -> Archive: ...

    @property
    def logbook(self) -> Logbook: ...

    @property
    def notes(self) -> RunNotes: ...

    @property
    def models(self) -> Models: ...

    selected: str | None
    """Case id under the cursor, set by the screen; the engine runs it early."""

    def listen(self, listener: Callable[[Event], None]) -> None: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def rerun(self) -> None: ...

    def set_paused(self, paused: bool) -> None: ...

    def set_baseline(self, name: str) -> None: ...

    def baselines(self) -> tuple[str, ...]: ...

    async def changed_elsewhere(self) -> bool:
        """Whether another process changed the log."""

    def last_results(self) -> Mapping[str, CaseResult]: ...

    def last_summary(self) -> Summary | None: ...

    async def profile(self, case: str, against: str | None = None, full: bool = False) -> object:
        """Profile with Nsight Compute; the outcome arrives as an event."""
