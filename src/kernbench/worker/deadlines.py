"""How long each step of a run may take, and which compiler is at work: a deadline waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DRIVERS = ("g++", "c++", "clang++", "gcc", "cc", "clang", "nvcc", "hipcc")
"""The programs that people know."""
PARTS = ("cc1plus", "cc1", "cudafe++", "cicc", "ptxas", "fatbinary", "nvlink", "as", "ld", "collect2", "ninja")
"""The programs that they start, and those that start them."""
MOST_PROCESSES = 256


@dataclass(frozen=True)
class Deadlines:
    """Seconds a step may take."""

    build: float = 60.0
    baseline: float = 120.0
    check: float = 10.0
    time: float = 5.0
    compile: float = 600.0
    """For any step, while a compiler is at work."""
    cancel: float = 1.0
    cancel_build: float = 10.0
    """It may be compiling for the cache, and a new worker would have to import torch."""
    cancel_spared: float = 3.0
    """The same if a warm spare is ready."""
    slow_start: float = 20.0
    """After this time of starting, a notice says that the worker is slow."""
    start: float = 180.0
    look: float = 1.0
    """How often a silent worker is searched for a compiler."""

    def of(self, step: str) -> float:
        return {"load": self.build, "build": self.build, "baseline": self.baseline, "time": self.time}.get(
            step, self.check
        )

    def to_cancel(self, step: str, spared: bool) -> float:
        """How long a cancelled step may go on: longest for a baseline, which is compiled for all later saves."""
        if step not in ("load", "build", "baseline"):
            return self.cancel
        return self.cancel_spared if spared and step != "baseline" else self.cancel_build


def compiler_below(pid: int) -> str | None:
    """The name of a compiler among the descendants of a process, a well-known one first; None without /proc."""
    running = {name for name, state in _below(pid) if state not in "ZTt"}
    return next((name for name in (*DRIVERS, *PARTS) if name in running), None)


def _below(pid: int) -> Iterator[tuple[str, str]]:
    """Name and state of every descendant."""
    waiting, seen = _children(pid), 0
    while waiting and seen < MOST_PROCESSES:
        child, seen = waiting.pop(0), seen + 1
        try:
            head, _, rest = Path(f"/proc/{child}/stat").read_text(errors="replace").rpartition(")")
        except OSError:
            continue
        yield head.partition("(")[2], rest.split()[0]
        waiting += _children(child)


def _children(pid: int) -> list[int]:
    """Children of all its threads."""
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    except OSError:  # it has just ended
        pass
    return found
