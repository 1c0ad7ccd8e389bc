"""Runs the agent on a task, in the task's worktree, and serves it the task's tools through a socket.

kernbench starts the server, outside the agent's sandbox: the agent's own command only passes lines on. So the budget is
kernbench's to keep, and in a sandbox the agent cannot write the log that decides what is best.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from kernbench.campaign.campaign_file import Stopwatch
from kernbench.campaign.process_tree import ProcessTree, Streams
from kernbench.campaign.sandbox import NO_SANDBOX, Bounds, Sandbox
from kernbench.campaign.task_tree import TaskTree

LOOK = 2.0
"""Seconds between two notes of the time."""
KEPT = 16 << 20
"""Bytes of the agent's output that are kept from its start, and as many from its end."""
TURN = 15.0
"""Seconds that a second connection waits for the server of the first to end."""
KERNBENCH = (sys.executable, "-m", "kernbench")


@dataclass(frozen=True)
class AgentOptions:
    agent: str
    """A command line for the shell."""
    runs: int
    minutes: float
    sandbox: Sandbox = NO_SANDBOX
    network: bool = False
    device: str | None = None
    """The task's if None."""
    python: str | None = None

    @property
    def served(self) -> list[str]:
        """Options of `kernbench run` and `kernbench mcp`."""
        given = {"--device": self.device, "--python": self.python}
        return [word for name, value in given.items() if value is not None for word in (name, value)]


@dataclass(frozen=True)
class AgentEnd:
    code: int | None
    """None if its minutes were over."""
    runs: int
    seconds: float


class AgentRun:
    def __init__(self, tree: TaskTree, options: AgentOptions) -> None:
        self._tree, self._options = tree, options
        self._place = tree.place
        self._watch = Stopwatch(self._place / "seconds")
        self._spent = self._place / "server" / "runs"
        self._log = self._place / "agent.log"
        self._spent.parent.mkdir(parents=True, exist_ok=True)

    async def first_run(self) -> tuple[int, str]:
        """Runs the source as it is, which later ones have to beat; its exit code and the last that it said."""
        log = self._place / "first_run.log"
        words = [*KERNBENCH, "run", str(self._tree.folder), "-m", "as it is, before the campaign"]
        tree = await self._start_bench([*words, *self._options.served], Streams(said=log))
        try:
            code = await tree.wait()
        finally:
            await tree.end()
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return code or 0, lines[-1] if lines else ""

    async def run(self) -> AgentEnd:
        """Until the agent ends, or its minutes do; a second call has what is left of them."""
        limit = self._options.minutes * 60
        if self._watch.seconds >= limit:
            return AgentEnd(None, self.runs, self._watch.seconds)
        async with self._served() as address:
            agent = await self._start_agent(address)
            self._watch.start()
            code = None
            try:
                while code is None and self._watch.seconds < limit:
                    code = await agent.wait(min(LOOK, max(limit - self._watch.seconds, 0.01)))
                    self._watch.save()
                    bound(self._log)
            finally:
                self._watch.save()
                await agent.end()
                bound(self._log)
        return AgentEnd(code, self.runs, self._watch.seconds)

    @property
    def runs(self) -> int:
        try:
            return int(self._spent.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0

    async def _start_agent(self, address: Path) -> ProcessTree:
        settings = self._place / "mcp.json"
        join = {"command": KERNBENCH[0], "args": [*KERNBENCH[1:], "mcp", "--join", str(address)]}
        settings.write_text(json.dumps({"mcpServers": {"kernbench": join}}, indent=2), encoding="utf-8")
        minutes = max(self._options.minutes - self._watch.seconds / 60, 0.0)
        about = {
            "KERNBENCH_TASK": str(self._tree.folder),
            "KERNBENCH_WORKTREE": str(self._tree.root),
            "KERNBENCH_MCP_CONFIG": str(settings),
            "KERNBENCH_RUNS": str(self._options.runs - self.runs),
            "KERNBENCH_MINUTES": str(round(minutes, 1)),
        }
        bounds = Bounds(
            folder=self._tree.folder,
            scratch=self._scratch("agent"),
            writable=[self._tree.root],
            readable=[self._tree.state, self._tree.git_file, settings, address.parent],
            network=self._options.network,
        )
        words = self._options.sandbox.wrapped(["sh", "-c", self._options.agent], bounds)
        streams = Streams(said=self._log)
        return await ProcessTree.start(words, self._tree.folder, streams, {**os.environ, **about})

    @contextlib.asynccontextmanager
    async def _served(self) -> AsyncIterator[Path]:
        """The address of a socket whose connections are served one after the other."""
        folder = Path(tempfile.mkdtemp(prefix="kernbench-", dir="/tmp"))  # a socket's path must be short
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                address = folder / "mcp"
                listener.bind(str(address))
                listener.listen()
                listener.setblocking(False)
                serving = asyncio.create_task(self._serve(listener))
                try:
                    yield address
                finally:
                    serving.cancel()
                    await asyncio.wait([serving])
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _serve(self, listener: socket.socket) -> None:
        """Closes a second connection, so that `--join` there ends with a sentence."""
        loop = asyncio.get_running_loop()
        serving: set[asyncio.Task[None]] = set()
        try:
            while True:
                connection, _address = await loop.sock_accept(listener)
                if serving:
                    _ended, serving = await asyncio.wait(serving, timeout=TURN)
                if serving:
                    connection.close()
                else:
                    serving = {asyncio.create_task(self._serve_one(connection))}
        finally:
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)

    async def _serve_one(self, connection: socket.socket) -> None:
        with connection:
            connection.setblocking(True)
            minutes = max(self._options.minutes - self._watch.seconds / 60, 0.001)
            words = [*KERNBENCH, "mcp", str(self._tree.folder), "--runs", str(self._options.runs)]
            words += ["--spent", str(self._spent), "--minutes", str(round(minutes, 3)), *self._options.served]
            end = connection.fileno()
            server = await self._start_bench(words, Streams(end, end, self._place / "server.log"))
        try:
            await server.wait()
        finally:
            await server.end()

    async def _start_bench(self, words: list[str], streams: Streams) -> ProcessTree:
        """kernbench itself, and so its workers, in a sandbox without network that may write the task's log."""
        bounds = Bounds(
            folder=self._place,  # not the task's: Python would import the agent's files from there
            scratch=self._scratch("bench"),
            writable=[self._tree.root, self._spent.parent],
            readable=[self._tree.git_file],
        )
        return await ProcessTree.start(self._options.sandbox.wrapped(words, bounds), self._place, streams)

    def _scratch(self, name: str) -> Path:
        folder = self._place / "scratch" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def bound(log: Path) -> None:
    """Takes the middle out of a file to which a program, perhaps without end, appends."""
    with contextlib.suppress(OSError):
        if (size := log.stat().st_size) > 3 * KEPT:
            with log.open("a+b") as file:
                file.seek(size - KEPT)
                last = file.read(KEPT)
                file.truncate(KEPT)
                file.write(b"\n... the middle of the output is left out here ...\n" + last)
