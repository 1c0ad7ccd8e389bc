"""One child process: driven by JSON lines, killed with everything it started.

The child runs `harness.worker` (or `harness.precompile.server`) in any Python that has torch. A few lines passed to
`-c` build the package `harness` from its folder by importlib: neither that folder nor its parent gets on the child's
`sys.path`, and the workbench's PYTHONPATH is not inherited. From its greeting on, its stdout carries only events; the
kernel's output arrives on stderr, clipped and rate-limited here, so that no flood reaches the screen.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import harness
from harness.shared.codes import UnusableCode
from harness.shared.errors import UserError
from harness.shared.lines import PROTOCOL, STACK_SIGNAL, UNREADABLE, decode_checked
from harness.shared.run_request import Environment
from kernbench.machine import native_stack
from kernbench.worker.launched import Launched
from kernbench.worker.log_limit import LogLimiter
from kernbench.worker.wire_check import GARBLED, Refused, WireCheck

BOOT = """
import importlib, sys, importlib.util as util
sys.path[:] = [place for place in sys.path if place]
folder, module, *words = sys.argv[1:]
spec = util.spec_from_file_location("harness", folder + "/__init__.py", submodule_search_locations=[folder])
package = util.module_from_spec(spec)
sys.modules["harness"] = package
spec.loader.exec_module(package)
importlib.import_module("harness." + module).main(*words)
"""
"""For `python -c`; arguments: the harness's folder, the module whose main runs, and its arguments."""
GREETING = b'{"event"'
"""How a child's first event begins. What comes before is output: a wrapper script or a sitecustomize may print."""
LONGEST_EVENT = 32 * 1024 * 1024
DRAIN_SECONDS = 0.1
"""For the last events of a worker that has exited."""
STACK_SECONDS, STACK_LOOKS = 0.3, 6
"""For the stack of a worker that hangs: one that waits for a driver may respond late or never."""
NOISE = (native_stack.MARK, "Extension modules: ")
"""How lines of a crash begin that say nothing to a person."""
NOT_INHERITED = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "TRITON_INTERPRET")


class Unusable(UserError):
    """The worker cannot run here."""

    def __init__(self, code: UnusableCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class WorkerLost:
    """The worker ended during the run."""

    kind: Literal["crashed", "timeout", "cancelled"]
    step: str
    case: str | None
    detail: str
    log: tuple[str, ...] = ()
    """The last lines it printed, including a fault handler's report."""


def harness_folder() -> Path:
    return Path(next(iter(harness.__path__)))


def child_environment(threads: int | None) -> dict[str, str]:
    """The user's environment, without the variables of the workbench's Python."""
    environment = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    environment |= {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "KERNBENCH_PID": str(os.getpid())}
    if extra := os.environ.get("KERNBENCH_PYTHONPATH"):
        environment["PYTHONPATH"] = extra
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    return environment


class ChildProcess:
    """A running worker. `messages` holds its events; None means that the process is gone."""

    def __init__(
        self,
        program: Launched,
        python: str,
        on_log: Callable[[str], None],
        on_left: Callable[[str], None],
        is_checked: bool,
        after: ChildProcess | None,
    ) -> None:
        self.program, self._python = program, python
        self.messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.environment: Environment | None = None
        self.problem: Unusable | None = None
        self.refusal = ""
        """What was wrong with a line, if one ended the worker."""
        self.log_tail: list[str] = []
        self._limiter = LogLimiter()
        self._stack: list[str] | None = None
        """The lines since the worker was asked where it is; they do not reach the log."""
        self._ready = asyncio.Event()
        self._on_log, self._on_left = on_log, on_left
        self.warm = False
        """Its first run need not wait for anything."""
        self.preparing = ""
        """The request by which it loads rows ahead of its first run, once it has one."""
        self.is_preparing = False
        self.gpu_free = 1.0
        """Share of the GPU's memory that was free when it had warmed up."""
        self.became_warm = asyncio.Event()
        """Or it has ended."""
        self._frozen = self._greeted = False
        self._wire = WireCheck(program.pid) if is_checked else None
        program.on_stopped = self._stopped
        self._tasks = [asyncio.create_task(step()) for step in (self._read_events, self._read_log, self._watch)]
        if after is not None:
            self._tasks.append(asyncio.create_task(self._open(after)))

    @classmethod
    async def start(
        cls,
        python: str,
        folder: Path,
        device: str | None,
        on_log: Callable[[str], None],
        threads: int | None = None,
        module: str = "worker",
        on_left: Callable[[str], None] = lambda _: None,
        after: ChildProcess | None = None,
    ) -> ChildProcess:
        """`after` is the child that has to open the GPU before this one."""
        waits = [] if after is None else ["waits"]
        words = [python, "-c", BOOT, str(folder), module, *([device] if device is not None else []), *waits]
        try:
            program = await Launched.start(words, child_environment(threads), LONGEST_EVENT)
        except OSError as problem:
            raise Unusable(
                "broken", f"cannot start {python}: {problem.strerror or problem}; choose another with --python"
            ) from None
        return cls(program, python, on_log, on_left, module == "worker", after)

    @property
    def pid(self) -> int:
        return self.program.pid

    @property
    def returncode(self) -> int | None:
        return self.program.returncode

    @property
    def alive(self) -> bool:
        return self.program.alive

    @property
    def ready(self) -> bool:
        return self.environment is not None and self.alive

    @property
    def is_prepared(self) -> bool:
        """Warm, and all is loaded that it was asked to load."""
        return self.warm and not self.is_preparing

    async def wait_ready(self) -> Environment:
        await self._ready.wait()
        if self.environment is None:
            raise self.problem or Unusable("broken", "the worker exited before it was ready")
        return self.environment

    def send(self, request: dict[str, Any]) -> None:
        """Send one request; if the child is already gone, `messages` shows it."""
        line = json.dumps(request, separators=(",", ":"), allow_nan=False) + "\n"
        if self._wire is not None:
            self._wire.asked(request)
        if self.program.requests is not None and not self.program.requests.is_closing():
            self.program.requests.write(line.encode())

    async def _open(self, after: ChildProcess) -> None:
        with contextlib.suppress(Unusable):
            await after.wait_ready()
        self.send({"request": "open"})

    def prepare(self, request: dict[str, Any]) -> None:
        """Let it load what its first run will need; a run that comes meanwhile ends this."""
        self.preparing, self.is_preparing = str(request["run"]), True
        self.send(request)

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def freeze(self) -> None:
        """Keep a child that is still importing or warming up off the cores and the GPU while something is timed."""
        if self.alive and not self._frozen:
            self._frozen = True
            self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self._frozen:
            self.signal(signal.SIGCONT)
            self._frozen = False

    async def stack(self) -> tuple[str, ...]:
        """Its Python stack, innermost frame first; empty if it does not respond."""
        self._stack = []
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, STACK_SIGNAL)
        for _ in range(STACK_LOOKS):
            before = len(self._stack)
            await asyncio.sleep(STACK_SECONDS / STACK_LOOKS)
            if before and before == len(self._stack):
                break
        found, self._stack = self._stack, None
        return tuple(found)

    def kill(self) -> None:
        self.program.kill()

    async def close(self) -> None:
        """End the process with everything it started, and wait until both pipes are drained."""
        await self.program.close()
        _done, pending = await asyncio.wait(self._tasks, timeout=1.0)
        for task in pending:  # a process that cannot be killed still holds a pipe
            task.cancel()
        if self.program.left:
            left, self.program.left = self.program.left, ()
            pids = ", ".join(map(str, left))
            self._on_left(f"could not stop processes that the worker started (pid {pids}); stop them with `kill -9`")

    def resident_bytes(self) -> int:
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    async def _read_events(self) -> None:
        try:
            while line := await self.program.events.readline():
                if not self._greeted:
                    printed, _, _ = line.partition(GREETING)
                    self._log(self._limiter.feed(printed, asyncio.get_running_loop().time()))
                    line = line.removeprefix(printed)
                if line:
                    self._receive(json.loads(line))
            return
        except Refused as problem:
            self.refusal = str(problem)
        except UNREADABLE:  # the worker writes no such line, so a process of the source's did
            self.refusal = GARBLED
        if self._wire is not None and self._wire.is_idle:  # no run will say so
            self._on_log(f"the worker was stopped: {self.refusal}")
        self.kill()

    async def _watch(self) -> None:
        """Report the end of the process soon after its last event, even if another process holds its pipes."""
        await self.program.exited.wait()
        await asyncio.wait(self._tasks[:1], timeout=DRAIN_SECONDS)
        if self.environment is None and self.problem is None:
            self.problem = Unusable("broken", self._why_it_ended())
        self._ready.set()
        self.became_warm.set()
        self.messages.put_nowait(None)

    def _stopped(self) -> None:
        if not self._frozen:
            self.messages.put_nowait({"event": "stopped"})

    def _receive(self, message: dict[str, Any]) -> None:
        kind = message["event"]
        if self._wire is not None:
            self._wire.check(message)
        self._greeted = True
        if kind == "hello" and message.get("protocol") != PROTOCOL:
            self.problem = Unusable("broken", f"the worker speaks protocol {message.get('protocol')}, not {PROTOCOL}")
            self.kill()
        elif kind == "ready":
            self.environment = decode_checked(Environment, message.get("environment") or {})
            self._ready.set()
        elif kind == "warm":
            self.warm, self.gpu_free = True, float(message.get("gpu_free", 1.0))
            self.became_warm.set()
        elif kind == "unusable":
            self.problem = Unusable(message.get("code", "broken"), str(message.get("message")))
        elif self.preparing and message.get("run") == self.preparing:
            self.is_preparing = kind == "step"
        else:
            self.messages.put_nowait(message)

    def _why_it_ended(self) -> str:
        last = next((line for line in reversed(self.log_tail) if line.strip()), "it printed nothing")
        text = f"the worker {exit_text(self.returncode)} at startup: {last}"
        return text if self._greeted else f"{text}; does {self._python} have torch? choose another with --python"

    async def _read_log(self) -> None:
        limiter = self._limiter
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(1.0 if limiter.owes_a_report else None):
                    chunk = await self.program.output.read(1 << 20)
            except TimeoutError:  # the flood is over; report what was dropped
                self._log(limiter.finish())
                continue
            if not chunk:
                break
            self._log(limiter.feed(chunk, loop.time()))
            # A flood must not starve the screen: let keys through between two dropped pieces.
            await asyncio.sleep(0.01 if limiter.owes_a_report else 0)
        self._log(limiter.finish())

    def _log(self, lines: list[str]) -> None:
        if self._stack is not None:
            self._stack += lines
            return
        for line in lines:
            self.log_tail.append(line)
            if not line.startswith(NOISE):
                self._on_log(line)
        del self.log_tail[:-200]


def exit_text(returncode: int | None) -> str:
    """How a process ended, in words."""
    if returncode is None:
        return "was lost"
    if returncode >= 0:
        return f"exited with code {returncode}"
    try:
        return {signal.SIGSEGV: "segfaulted", signal.SIGKILL: "was killed", signal.SIGABRT: "aborted"}.get(
            signal.Signals(-returncode), f"died of {signal.Signals(-returncode).name}"
        )
    except ValueError:
        return f"died of signal {-returncode}"
