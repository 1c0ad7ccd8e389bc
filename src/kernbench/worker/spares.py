"""Workers on standby: they have imported everything, warmed up the GPU, loaded every row's baseline, and wait.

One starts only while nothing runs, and is frozen (SIGSTOP) if a run begins before it is warm, so that it takes neither
a core nor the GPU from the timed run. A nice value would not do: an ordinary user could not lower it again. A second
one, for two fatal saves in a row, starts while half of the memory is free, the machine's and the GPU's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kernbench.events import Event, Notice
from kernbench.worker.process import ChildProcess, exit_text

MOST = 2
TRIES = 2
FREE = 0.5
"""Share of the memory that must be free for a second one."""
MACHINE, CONTAINER = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


class Spares:
    def __init__(self, start: Callable[[], Awaitable[ChildProcess]], emit: Callable[[Event], None], most: int) -> None:
        self._start, self._emit, self._most = start, emit, most
        self._children: list[ChildProcess] = []
        self._starting = asyncio.Lock()
        self._failed = 0

    async def add(self, is_wanted: Callable[[], bool]) -> None:
        """Start one, unless there are enough; `is_wanted` is asked again once it runs."""
        self._forget_the_dead()
        if not self.may_start:
            return
        async with self._starting:
            child = await self._start()
            if not is_wanted():  # closed meanwhile: it would outlive the workbench
                await child.close()
                return
        self._children.append(child)

    def take(self) -> ChildProcess | None:
        """The one that is furthest, to become the worker."""
        self._children = [child for child in self._children if child.alive]
        best = max(self._children, key=lambda child: (child.is_prepared, child.warm, child.ready), default=None)
        if best is not None:
            self._children.remove(best)
            best.thaw()
        return best

    def prepare_rows(self, request: dict[str, Any]) -> None:
        """Let each load every row's baseline and inputs; once, while nothing runs."""
        for child in self._children:
            if child.alive and child.warm and not child.preparing:
                child.prepare(request)

    def stop_warming(self) -> None:
        """Keep them off the cores and the GPU while something is timed."""
        for child in self._children:
            if not child.warm or child.is_preparing:
                child.freeze()

    def thaw(self) -> None:
        for child in self._children:
            child.thaw()

    async def close(self) -> None:
        children, self._children = self._children, []
        for child in children:
            await child.close()

    async def started(self) -> None:
        """Wait for one that is being started; `add` closes it if it is not wanted any more."""
        async with self._starting:
            pass

    def forgive(self) -> None:
        """Next to another worker one may fit that did not before."""
        self._failed = 0

    @property
    def may_start(self) -> bool:
        """Whether another would be of use. A GPU that is full or in exclusive-process mode has no room for one."""
        alive = [child for child in self._children if child.alive]
        if self._failed >= TRIES or len(alive) >= self._most:
            return False
        return not alive or (all(child.warm and child.gpu_free >= FREE for child in alive) and memory_free() >= FREE)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(child.pid for child in self._children if child.alive)

    @property
    def lacks_one(self) -> bool:
        """Whether none is there, or one was lost."""
        return not self.pids or self.any_lost

    @property
    def any_ready(self) -> bool:
        """Whether one could take over, even if it is still warming up."""
        return any(child.ready for child in self._children)

    @property
    def any_warm(self) -> bool:
        return any(child.alive and child.warm for child in self._children)

    @property
    def any_lost(self) -> bool:
        return not all(child.alive for child in self._children)

    def all_are(self, state: str) -> bool:
        """Whether none is left that is not `ready`, `warm` or `is_prepared`."""
        return all(child.alive and getattr(child, state) for child in self._children)

    def _forget_the_dead(self) -> None:
        """Counts those that died before they were warm: a full GPU may fail one at its start or later."""
        dead = [child for child in self._children if not child.alive]
        self._children = [child for child in self._children if child.alive]
        for child in dead:
            if child.warm:
                continue
            self._failed += 1
            if self._failed == TRIES and not self._children:
                why = str(child.problem or exit_text(child.returncode)).partition(";")[0]
                text = f"no spare worker ({why}): a crash will make the next save wait for a restart"
                self._emit(Notice(text, "warning"))


def memory_free() -> float:
    """Share of this machine's memory, or of what its container may use, that is free; 1 if unknown."""
    shares = [1.0]
    with contextlib.suppress(OSError, LookupError, ValueError, ZeroDivisionError):
        lines = (line.split() for line in MACHINE.read_text().splitlines())
        sizes = {words[0]: int(words[1]) for words in lines}
        shares.append(sizes["MemAvailable:"] / sizes["MemTotal:"])
    with contextlib.suppress(OSError, LookupError, ValueError, ZeroDivisionError):  # `max` means that there is no limit
        limit, used = (int((CONTAINER / f"memory.{name}").read_text()) for name in ("max", "current"))
        kept = dict(line.split() for line in (CONTAINER / "memory.stat").read_text().splitlines())
        shares.append(1 - (used - int(kept["inactive_file"])) / limit)
    return min(shares)
