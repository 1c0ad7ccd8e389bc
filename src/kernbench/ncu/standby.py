"""A waiting Nsight Compute process: started before the key, given one request, killed at its deadline.

ncu starts `harness.target`, which imports torch, creates a context and waits on a named pipe; a key sends it source and
case. While it waits it is stopped (SIGSTOP): a waiting ncu would keep one core busy, and a stopped one costs nothing.
Its metrics are fixed on its command line, so a standby collects either the summary's set or the full one. ncu writes
its csv and errors to one file; the program's output goes to the log. All files are in a private folder that is also its
TMPDIR (ncu keeps a lock file there; in /tmp it might belong to another user). `Standby.profile` never raises: an
Outcome has either the csv or a refusal.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.shared.errors import Where
from harness.shared.lines import decode
from kernbench.diagnosis.metrics import NAMES
from kernbench.ncu import refusals
from kernbench.ncu.nsight import NoNcu
from kernbench.worker.launched import Launched
from kernbench.worker.log_limit import LogLimiter
from kernbench.worker.process import BOOT, child_environment, exit_text, harness_folder

START_SECONDS = 90.0
CSV_HEADER = '"Kernel Name"'


@dataclass(frozen=True)
class Setup:
    """How to start a standby."""

    python: str
    device: str
    ncu: Path | None
    """None: no counters, only the compiler's facts."""
    harness: Path = field(default_factory=harness_folder)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one request."""

    text: str = ""
    """All output of ncu, including the csv."""
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By side: the compiler's facts and the least bytes that the call must move."""
    gpu: dict[str, Any] = field(default_factory=dict)
    trace: tuple[dict[str, Any], ...] = ()
    """Rows of torch's profiler, for a trace."""
    problem: refusals.Refusal | None = None
    where: Where | None = None
    report: Path | None = None
    """The .ncu-rep of a full profile; the caller must move it before the standby closes."""


def command(setup: Setup, folder: Path, full: bool) -> list[str]:
    """The full command line of a standby."""
    mode = "facts" if setup.ncu is None else "full" if full else "summary"
    target = [setup.python, "-c", BOOT, str(setup.harness), "target"]
    target += [str(folder / "requests"), str(folder / "events"), setup.device, mode]
    if setup.ncu is None:
        return target
    common = "--profile-from-start off --clock-control none --target-processes application-only".split()
    common += ["--log-file", str(folder / "log"), "--page", "raw", "--csv", "--print-units", "base"]
    whole = ["--set", "full", "--import-source", "yes", "-o", str(folder / "report")]
    return [str(setup.ncu), *common, *(whole if full else ["--metrics", ",".join(NAMES)]), *target]


class Standby:
    """One ncu (or only its target, without ncu), from its start to its single result."""

    def __init__(self, program: Launched, folder: Path, full: bool, counts: bool) -> None:
        self.program, self.folder, self.full, self.counts = program, folder, full, counts
        self.gpu: dict[str, Any] = {}
        self.group: int | None = None
        """Process group of ncu and its target, once known."""
        self._facts: dict[str, dict[str, Any]] = {}
        self._trace: tuple[dict[str, Any], ...] = ()
        self._step = "start"
        self._problem: refusals.Refusal | None = None
        self._where: Where | None = None
        self._ready = asyncio.Event()
        self._buffer = b""
        self._requests = os.open(folder / "requests", os.O_RDWR | os.O_NONBLOCK)
        self._events = os.open(
            folder / "events", os.O_RDWR | os.O_NONBLOCK
        )  # holding both ends, it never reaches end-of-file
        self._tail: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    @classmethod
    async def start(cls, setup: Setup, full: bool = False, on_log: Callable[[str], None] = lambda _: None) -> Standby:
        folder = Path(tempfile.mkdtemp(prefix="kernbench-ncu-"))
        for name in ("requests", "events"):
            os.mkfifo(folder / name, 0o600)
        try:
            program = await Launched.start(command(setup, folder, full), _environment(folder))
        except OSError as problem:
            shutil.rmtree(folder, ignore_errors=True)
            path = setup.ncu or setup.python
            raise NoNcu(refusals.refuse("not_started", path=path, problem=problem.strerror)) from None
        standby = cls(program, folder, full, counts=setup.ncu is not None)
        asyncio.get_running_loop().add_reader(standby._events, standby._read_events)
        standby._tasks = [asyncio.create_task(standby._read_log(on_log)), asyncio.create_task(standby._wait())]
        return standby

    @property
    def _who(self) -> str:
        return refusals.NCU if self.counts else refusals.TRACED_CALL

    @property
    def alive(self) -> bool:
        return self.program.alive and not self._closed

    @property
    def ready(self) -> bool:
        """Warm: torch and a context are loaded, and it waits for a request."""
        return self.alive and self._step == "ready"

    @property
    def starting(self) -> bool:
        return self.alive and self._step == "start"

    async def wait_ready(self, seconds: float = START_SECONDS) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ready.wait()
        return self.ready

    async def profile(self, request: dict[str, Any], seconds: float = 60.0) -> Outcome:
        """Send the request and wait for ncu to end; after `seconds` the whole group is killed."""
        if not await self.wait_ready():
            if self.alive:
                self._problem = refusals.timed_out("start", START_SECONDS, self._who)
            return await self._outcome()
        self._step = "load"
        self._signal(signal.SIGCONT)
        line = json.dumps({**request, "seconds": seconds}, separators=(",", ":")) + "\n"
        await self._send(line.encode())
        try:
            async with asyncio.timeout(seconds):
                await self.program.exited.wait()
        except TimeoutError:
            self._problem = refusals.timed_out(self._step, seconds, self._who)
        return await self._outcome()

    async def close(self) -> None:
        """Remove its processes, pipes and folder."""
        if self._closed:
            return
        await self._stop()
        self._closed = True
        asyncio.get_running_loop().remove_reader(self._events)
        os.close(self._requests)
        os.close(self._events)
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _stop(self) -> None:
        await self.program.close()
        _done, pending = await asyncio.wait(self._tasks, timeout=1.0)
        for task in pending:
            task.cancel()

    def _signal(self, number: signal.Signals) -> None:
        if self.group is not None and self.group != os.getpgrp():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, number)

    async def _outcome(self) -> Outcome:
        await self._stop()
        self._read_events()
        text, report = self._written(), self.folder / "report.ncu-rep"
        problem = self._problem
        if problem is None and (self._step != "done" or (self.counts and CSV_HEADER not in text)):
            said = text + "\n" + "\n".join(self._tail)
            ended = exit_text(self.program.returncode)
            problem = refusals.explain(said, ended, str(self.folder), self._step == "done", self._who)
        place = report if report.is_file() else None
        return Outcome(text, self._facts, self.gpu, self._trace, problem, self._where, place)

    def _written(self) -> str:
        try:
            return (self.folder / "log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    async def _send(self, data: bytes) -> None:
        while data and self.alive:
            try:
                data = data[os.write(self._requests, data) :]
            except BlockingIOError:  # a task with many cases exceeds the pipe's buffer
                await asyncio.sleep(0.002)

    def _read_events(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            while chunk := os.read(self._events, 65536):
                self._buffer += chunk
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        kind = message["event"]
        if kind == "ready":
            self._step, self.gpu = "ready", message["gpu"]
            with contextlib.suppress(ProcessLookupError):
                self.group = os.getpgid(int(message["pid"]))
                self._signal(signal.SIGSTOP)
            self._ready.set()
        elif kind == "step":
            self._step = message["step"]
        elif kind == "facts":
            self._facts[message["side"]] = message
        elif kind == "trace":
            self._trace = tuple(message["rows"])
        elif kind == "done":
            self._step = "done"
        elif kind == "failed":
            where = message.get("where")
            self._where = decode(Where, where) if where else None
            self._problem = refusals.side_failed(str(message["side"]), message["message"])
        elif kind == "unusable":
            reason = (message["message"].strip().splitlines() or ["it printed nothing"])[0]  # torch appends advice
            problem = refusals.explain(reason, f"cannot start: {reason}", who=self._who)
            self._problem = refusals.refuse("gpu_full") if problem.code == "no_room" else problem

    async def _wait(self) -> None:
        await self.program.exited.wait()
        self._read_events()
        self._ready.set()

    async def _read_log(self, on_log: Callable[[str], None]) -> None:
        limiter = LogLimiter()
        while chunk := await self.program.output.read(65536):
            for line in limiter.feed(chunk, asyncio.get_running_loop().time()):
                self._tail.append(line)
                on_log(line)
            del self._tail[:-50]


def _environment(folder: Path) -> dict[str, str]:
    """The worker's environment with a private TMPDIR; the program keeps its files in the usual one."""
    return child_environment(None) | {"TMPDIR": str(folder), "KERNBENCH_TMPDIR": tempfile.gettempdir()}
