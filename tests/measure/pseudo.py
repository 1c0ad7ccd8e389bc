"""A terminal for the measuring scripts: a program on a pty whose bytes are counted and whose words are waited for."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMPILED = tempfile.TemporaryDirectory(prefix="kernbench-compiled-")
COLOURS = rb"(?:\x1b\[[0-9;]*m)*"
PATHS = os.pathsep.join([str(ROOT), str(ROOT / "src")])


class Terminal:
    def __init__(self, command: Sequence[str], columns: int, rows: int, orders: bool = False, **environ: str) -> None:
        """With `orders` the program gets a pipe to read them from, as descriptor 3."""
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": PATHS, **environ}
        # As in a user's shell, where Python keeps what it compiled.
        environment |= {"PYTHONPYCACHEPREFIX": COMPILED.name}
        for name in ("TMUX", "PYTHONDONTWRITEBYTECODE"):
            environment.pop(name, None)
        ours, self._orders = os.pipe()
        self.seen = b""
        self.started = time.perf_counter()
        shell = ["/bin/sh", "-c", f'exec "$@" 3<&{ours}', "sh"] if orders else []
        self.process = subprocess.Popen(
            [*shell, *command], stdin=slave, stdout=slave, stderr=slave, pass_fds=[ours], env=environment,
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        os.close(ours)

    def count(self, seconds: float) -> int:
        """Bytes that arrive meanwhile."""
        total, end = 0, time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            total += len(self._read(left))
        return total

    def until(self, word: bytes, seconds: float = 30.0) -> float:
        """The moment at which the word was painted, in whatever colours; what came before it is forgotten."""
        end = time.perf_counter() + seconds
        pattern = COLOURS.join(re.escape(word[at : at + 1]) for at in range(len(word)))
        while (found := re.search(pattern, self.seen)) is None:
            if time.perf_counter() > end:
                raise SystemExit(f"{word!r} was not painted within {seconds} s:\n{self.seen[-3000:]!r}")
            self.seen = self.seen[-200_000:] + self._read(0.5)
        self.seen = self.seen[found.end() :]
        return time.perf_counter()

    def order(self, letter: str, seconds: float = 0.5) -> int:
        os.write(self._orders, letter.encode())
        return self.count(seconds)

    def type(self, keys: str) -> float:
        """The moment at which the keys were typed."""
        now = time.perf_counter()
        os.write(self.master, keys.encode())
        return now

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def leave(self) -> None:
        """Read to the end: a full terminal would hold the program back."""
        self.type("q")
        end = time.monotonic() + 10
        while self.process.poll() is None and time.monotonic() < end:
            if not self._read(0.1) and self.process.poll() is not None:
                break
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.master)
        os.close(self._orders)

    def _read(self, seconds: float) -> bytes:
        if select.select([self.master], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                return os.read(self.master, 65536)
            if self.process.poll() is None:
                time.sleep(0.01)
        return b""


def kernbench(*words: str) -> list[str]:
    return [sys.executable, "-m", "kernbench", *words]


def write_task(folder: Path, rows: int, solution: str = "TIME_US = 50.0\n") -> Path:
    """A task for the fake harness."""
    folder.mkdir(parents=True)
    cases = "".join(
        f'[[case]]\nid = "row_{index:03}"\nlabel = "row {index:03}"\naxes = {{ rows = {index} }}\n'
        for index in range(rows)
    )
    (folder / "task.toml").write_text(f'name = "{folder.name}"\nentry = "toy"\ndevice = "cpu"\n{cases}')
    (folder / "reference.py").write_text("def make_inputs(case, seed, device): ...\ndef toy(): ...\n")
    (folder / "solution.py").write_text(f"def toy(): ...\n{solution}")
    return folder


FAKE_HARNESS = str(ROOT / "tests" / "fake" / "harness")
