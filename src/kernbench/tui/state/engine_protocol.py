"""What the screen asks of the engine: the session keeps this promise, tests pass a fake."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench.events import Event, ProfileReady, Summary


class Archive(Protocol):
    """What a task keeps. A UserError says why something cannot be had."""

    @property
    def is_long(self) -> bool:
        """Reading the log takes longer than a glance: the screen opens before."""

    def read(self) -> None:
        """Reads the log; may be called in a thread."""

    def sources(self, reference: str) -> Mapping[str, str]:
        """File name to text of `now`, `best`, `last` or an iteration."""

    def restore(self, reference: str) -> str:
        """Brings a source back and says what changed; what was there is kept."""

    def profiles(self) -> Mapping[str, ProfileReady]:
        """Kept ones, the newest of each case."""

    def export(self, kind: str, force: bool) -> list[Path]:
        """Writes the log for other people."""

    def export_target(self, kind: str) -> Path: ...


class Logbook(Protocol):
    """The iterations of a task."""

    def iterations(self) -> Sequence[Summary]:
        """By number, which each of them has. Only the newest are cheap to read: a log may have thousands."""

    def best_now(self) -> Summary | None:
        """The best source today: a run, or an entry that was made elsewhere."""

    def numbers(self) -> Sequence[int]:
        """Of all iterations, in their order."""

    def text(self, number: int, source: str | None = None, at: str = "") -> str:
        """The entry as it is written; of two with one number, that of the source and time."""


class RunNotes(Protocol):
    """What a person says of a run."""

    hypothesis: str
    """Of the run to come."""
    next_step: str
    """In no entry yet."""

    def hypothesis_for(self) -> int | None:
        """The last entry, where it has no hypothesis and nothing was saved since."""

    def set_hypothesis(self, number: int | None, text: str, instead_of: str = "") -> str:
        """For that entry, else for the run to come; one sentence saying what was changed."""

    def made(self) -> int:
        """How many entries saves have made so far."""

    def entry_after(self, count: int, besides: str = "") -> int | None:
        """The first one beyond them, but for that of the run named."""

    def next_now(self) -> str:
        """The next step that `set_next` would change."""

    def set_next(self, text: str) -> str:
        """One sentence saying what was changed."""


class Engine(Protocol):
    """One task being worked on. Events arrive in the event loop that called `start`."""

    @property
    def task(self) -> Task: ...

    @property
    def environment(self) -> Environment | None: ...

    @property
    def paused(self) -> bool: ...

    @property
    def waits(self) -> bool:
        """A save that came while paused."""

    @property
    def is_alone(self) -> bool:
        """No other workbench was open on the task when this one began, or it has left."""

    @property
    def running(self) -> str | None:
        """Id of the run in progress."""

    @property
    def baseline(self) -> str: ...

    @property
    def state(self) -> Path:
        """The folder that keeps the task's runs."""

    @property
    def archive(self) -> Archive: ...

    @property
    def logbook(self) -> Logbook: ...

    @property
    def notes(self) -> RunNotes: ...

    selected: str | None
    """Case id under the cursor: set by the screen, answered early by the engine."""

    def listen(self, listener: Callable[[Event], None]) -> None: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def rerun(self) -> None: ...

    def set_paused(self, paused: bool) -> None: ...

    def set_baseline(self, name: str) -> None: ...

    def baselines(self) -> tuple[str, ...]: ...

    def changed_elsewhere(self) -> bool:
        """Whether the log has changed by what another process did."""

    def last_results(self) -> Mapping[str, CaseResult]: ...

    def last_summary(self) -> Summary | None: ...

    async def profile(self, case: str, against: str | None = None, full: bool = False) -> object:
        """Asks Nsight Compute; the answer is an event, whatever comes of it."""
