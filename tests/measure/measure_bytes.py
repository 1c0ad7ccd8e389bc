"""Bytes that the screen sends: at rest, for an arriving row, for progress, for a key, under a flood of log."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

ROWS, COLUMNS = 40, 120
ROUNDS = 5
ROOT = Path(__file__).parents[2]


def child() -> None:
    """The workbench on a fake engine that waits for orders on stdin's neighbour, fd 3, and answers each with a dot."""
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    from kernbench.events import LogLine, WorkerChanged
    from tests.tui.scene import H200, STARTED, FakeEngine, landed, make_app, progress, right, whole_run

    engine = FakeEngine()
    flood = [LogLine(f"flood {index} " + "x" * 60) for index in range(100)]
    orders = {
        b"w": [WorkerChanged("ready", H200), *whole_run()],
        b"s": [STARTED],
        b"f": flood,
        **{str(index).encode(): landed(right(index)) for index in range(ROUNDS)},
        **{bytes([97 + index]): [progress("time", index)] for index in range(ROUNDS)},
    }

    def obey() -> None:
        order = os.read(3, 1)
        engine.say(*orders.get(order, []))

    async def start() -> None:
        asyncio.get_running_loop().add_reader(3, obey)

    engine.start = start  # type: ignore[method-assign]
    make_app(engine).run()


class Terminal:
    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        ours, theirs = os.pipe()
        self.orders = theirs
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", f'exec "$0" "$1" child 3<&{ours}', sys.executable, __file__],
            stdin=slave, stdout=slave, stderr=slave, pass_fds=[ours], env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        os.close(ours)

    def count(self, seconds: float) -> int:
        """Bytes that arrive meanwhile."""
        total, end = 0, time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            if select.select([self.master], [], [], left)[0]:
                total += len(os.read(self.master, 65536))
        return total

    def leave(self) -> None:
        """Read to the end: a full terminal would hold the program back."""
        os.write(self.master, b"q")
        with contextlib.suppress(OSError):
            while os.read(self.master, 65536):
                pass
        self.process.wait(timeout=10)

    def order(self, letter: str, seconds: float = 0.5) -> int:
        os.write(self.orders, letter.encode())
        return self.count(seconds)

    def key(self, key: str, seconds: float = 0.5) -> int:
        os.write(self.master, key.encode())
        return self.count(seconds)


def main() -> None:
    terminal = Terminal()
    first = terminal.count(3)
    terminal.order("w", 1.0)
    figures = {
        "first screen": first,
        "ten seconds at rest": terminal.count(10),
        "a run starts (all rows dim)": terminal.order("s"),
        "one arriving row": max(terminal.order(str(index)) for index in range(1, ROUNDS)),
        "one step of progress": max(terminal.order(chr(97 + index)) for index in range(1, ROUNDS)),
        "cursor down": terminal.key("\x1b[B"),
        "100 log lines in a hidden pane": terminal.order("f", 1.0),
        "to the log pane": terminal.key("3"),
        "100 log lines in view": terminal.order("f", 1.0),
    }
    terminal.leave()
    for name, value in figures.items():
        print(f"{name:<34}{value:>8,} bytes")


if __name__ == "__main__":
    child() if sys.argv[1:] == ["child"] else main()
