"""What the screen asks of the engine: the session keeps this promise, tests pass a fake."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from harness.records import CaseResult, Environment, Task
from kernbench.events import Event, ProfileReady, Summary


class Engine(Protocol):
    """One task being worked on. Events arrive in the event loop that called `start`."""

    @property
    def task(self) -> Task: ...

    @property
    def environment(self) -> Environment | None: ...

    @property
    def paused(self) -> bool: ...

    @property
    def running(self) -> str | None:
        """Id of the run in progress."""

    @property
    def baseline(self) -> str: ...

    @property
    def hypothesis(self) -> str:
        """Of the run to come."""

    @property
    def next_step(self) -> str: ...

    @property
    def state(self) -> Path:
        """The folder that keeps the task's runs."""

    @property
    def pids(self) -> Sequence[int]:
        """Of the worker and its spare."""

    selected: str | None
    """Case id under the cursor: set by the screen, answered early by the engine."""

    @property
    def has_long_past(self) -> bool:
        """Reading the log takes longer than a glance: the screen opens before."""

    def remember(self) -> None:
        """Reads the log; may be called in a thread."""

    def listen(self, listener: Callable[[Event], None]) -> None: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def rerun(self) -> None: ...

    def set_paused(self, paused: bool) -> None: ...

    def set_baseline(self, name: str) -> None: ...

    def baselines(self) -> tuple[str, ...]: ...

    def set_hypothesis(self, text: str) -> str:
        """One sentence saying what was changed."""

    def set_next(self, text: str) -> str:
        """One sentence saying what was changed."""

    def iterations(self) -> Sequence[Summary]:
        """Oldest first; a run without a number made no iteration."""

    def last_results(self) -> Mapping[str, CaseResult]: ...

    def last_summary(self) -> Summary | None: ...

    def iteration_text(self, number: int) -> str: ...

    async def profile(self, case: str, against: str | None = None, full: bool = False) -> object:
        """Asks Nsight Compute; the answer is an event, whatever comes of it."""

    def profiles(self) -> Mapping[str, ProfileReady]:
        """Kept ones, the newest of each case."""

    def export(self, kind: str, force: bool) -> list[Path]:
        """Writes the log for other people; a UserError says why it cannot."""

    def export_target(self, kind: str) -> Path: ...

    def sources(self, reference: str) -> Mapping[str, str]:
        """File name to text of `now`, `best`, `last` or an iteration; a UserError says why it cannot be had."""

    def restore(self, reference: str) -> str:
        """Brings a source back and says what changed; what was there is kept."""
