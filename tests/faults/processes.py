"""Processes by a mark in their environment: a mark survives setsid, double forks and the death of every parent."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

MARK = "KERNBENCH_FAULTS_MARK"


def marked(mark: str) -> set[int]:
    """Live processes that carry the mark, zombies not among them."""
    wanted, found = f"{MARK}={mark}".encode(), set()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if wanted in Path("/proc", entry, "environ").read_bytes().split(b"\0") and state(int(entry)) != "Z":
                found.add(int(entry))
    return found


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def state(pid: int) -> str:
    """The letter of /proc; Z for one that is gone, too."""
    try:
        return _fields(pid)[0]
    except OSError:
        return "Z"


def parent(pid: int) -> int:
    return int(_fields(pid)[1])


def alive(pid: int) -> bool:
    return state(pid) != "Z"


def cpu_ticks(pids: Iterable[int]) -> int:
    used = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            used += sum(map(int, _fields(pid)[11:13]))
    return used


def within(root: int, pids: Iterable[int]) -> set[int]:
    """Those whose parents lead to the root, itself included."""
    parents = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            parents[pid] = int(_fields(pid)[1])

    def leads(pid: int) -> bool:
        while pid in parents and pid != root:
            pid = parents[pid]
        return pid == root

    return {pid for pid in parents if leads(pid)}


def name(pid: int) -> str:
    """The process's words without the program that `-c` carries."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "gone"
    return " ".join(word for word in words if word and "\n" not in word)[:80]


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def memory(pid: int, key: str) -> float:
    """Megabytes of a line of smaps_rollup (Private_Dirty, Rss) or of status (VmHWM)."""
    file = "status" if key.startswith("Vm") else "smaps_rollup"
    for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) / 1024
    raise KeyError(key)


def until(condition: Callable[[], bool], seconds: float, step: float = 0.02) -> bool:
    """Whether the condition comes to hold in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(step)
    return True


def end(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
