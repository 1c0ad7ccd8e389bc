"""Which processes are kernbench's own: the workbench and all below it, such as the spare worker and compilers."""

from __future__ import annotations

import os

TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds; the unit of the times in /proc."""


def is_own(pid: int) -> bool:
    """Whether a process is the workbench or somewhere below it; not, if it has ended."""
    root = workbench()
    while pid > 1 and pid != root:
        fields = _stat(pid)
        pid = int(fields[1]) if fields else 0
    return pid == root > 0


def find() -> list[int]:
    """All of them. It reads a file per process of the machine, so not while anything is timed."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        if (fields := _stat(int(name))) and fields[1] != "0":
            children.setdefault(int(fields[1]), []).append(int(name))
    found = [workbench()]
    for pid in found:  # it grows
        found += children.get(pid, [])
    return found if os.getpid() in found else [*found, os.getpid()]  # the workbench may be in another namespace


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and the children that it has waited for; 0 if it has ended: its parent has it then."""
    return sum(map(int, _stat(pid)[11:15])) * TICK


def workbench() -> int:
    """Its pid, which it puts in the environment: a worker's parent is a launcher."""
    told = os.environ.get("KERNBENCH_PID", "")
    return int(told) if told.isdigit() else os.getppid()


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may contain anything; none if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []
