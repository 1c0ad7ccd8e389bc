"""Which compiler a process is running: a deadline waits for one that is at work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

DRIVERS = ("g++", "c++", "clang++", "gcc", "cc", "clang", "nvcc", "hipcc")
"""The programs that people know."""
PARTS = ("cc1plus", "cc1", "cudafe++", "cicc", "ptxas", "fatbinary", "nvlink", "as", "ld", "collect2", "ninja")
"""The programs that they start, and those that start them."""
MOST_PROCESSES = 256


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
