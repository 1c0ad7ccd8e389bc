"""First paint of the workbench in a terminal of its own, the memory it holds, and whether torch is in the process."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import termios
import time
from dataclasses import dataclass
from pathlib import Path

from bench import KERNBENCH, figure, scratch_task

ROWS, COLUMNS = 24, 80
LAST_PAINTED = b"quit"
"""A word of the key line, which is at the bottom of the first screenful."""


@dataclass(frozen=True)
class Opening:
    paint_s: float
    resident_mb: float
    later_mb: float
    torch_mapped: bool


def open_once(task: Path) -> Opening:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    start = time.perf_counter()
    child = subprocess.Popen(
        [KERNBENCH, str(task)], stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
    )
    os.close(slave)
    try:
        paint = read_until(master, LAST_PAINTED, 30.0) - start
        resident = resident_mb(child.pid)
        read_until(master, None, 6.0)  # long enough for the worker to come up and the first run to land
        maps = Path(f"/proc/{child.pid}/maps").read_text()
        return Opening(paint, resident, resident_mb(child.pid), "libtorch" in maps)
    finally:
        os.write(master, b"q")
        leave(child, master)
        os.close(master)


def read_until(master: int, word: bytes | None, limit: float) -> float:
    """Reads what is painted until the word comes (or, without one, until the time is up); the moment it ended."""
    seen, end = b"", time.perf_counter() + limit
    while (left := end - time.perf_counter()) > 0:
        if select.select([master], [], [], left)[0]:
            try:
                seen += os.read(master, 65536)
            except OSError:
                raise SystemExit(f"the program ended early:\n{seen.decode(errors='replace')}") from None
            if word is not None and word in seen:
                return time.perf_counter()
    if word is not None:
        raise SystemExit(f"{word!r} was not painted within {limit} s:\n{seen.decode(errors='replace')}")
    return end


def leave(child: subprocess.Popen[bytes], master: int) -> None:
    end = time.monotonic() + 5
    while child.poll() is None and time.monotonic() < end:
        if select.select([master], [], [], 0.05)[0]:
            try:
                os.read(master, 65536)
            except OSError:
                break
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


with scratch_task() as task:
    openings = [open_once(task) for _ in range(3)]
best, median = min(o.paint_s for o in openings), statistics.median(o.paint_s for o in openings)
figure(f"first paint at {COLUMNS}x{ROWS}, best of 3", f"{best:.2f} s", f"median {median:.2f} s")
figure("resident at first paint", f"{max(o.resident_mb for o in openings):.0f} MB")
figure("resident six seconds later", f"{max(o.later_mb for o in openings):.0f} MB")
figure("torch mapped in the process", "yes" if any(o.torch_mapped for o in openings) else "no")
