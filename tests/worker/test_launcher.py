"""The launcher: nothing of a program's tree outlives it or the workbench, and its end is learned at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from kernbench.events import BuildFailed, CaseLanded
from kernbench.worker.launched import Launched
from kernbench.worker.process import ChildProcess
from tests import FAKE, ROOT
from tests.sessions import Watched, gone, write

pytestmark = pytest.mark.anyio
DAEMON = """
import os, subprocess, sys, time
other = subprocess.Popen(["sleep", "600"], start_new_session=True)  # holds stdout and stderr
print(other.pid, flush=True)
"""
ORPHANS = r"""
import os, sys, time
for _ in range(3):
    if not os.fork():
        os.setsid()
        os.fork()
        break
os.write(1, b"%d\n" % os.getpid())
time.sleep(600)
"""


async def launch(code: str) -> Launched:
    return await Launched.start([sys.executable, "-c", code], dict(os.environ), 1 << 16)


@pytest.fixture
async def daemon() -> AsyncIterator[tuple[Launched, int]]:
    program = await launch(DAEMON + "time.sleep(600)")
    yield program, int(await program.events.readline())
    await program.close()


async def test_a_process_in_another_session_ends_with_the_program(daemon: tuple[Launched, int]) -> None:
    program, other = daemon
    assert not gone(other, 0.1)
    await program.close()
    assert gone(other)
    assert program.returncode == -signal.SIGKILL
    assert program.left == ()


async def test_an_exit_is_learned_though_another_process_holds_the_pipes() -> None:
    program = await launch(DAEMON + "os._exit(7)")
    await program.exited.wait()
    assert program.returncode == 7
    assert gone(int(await program.events.readline()))
    assert await program.output.read() == b""  # its end, once the holder was killed
    await program.close()


async def test_every_fork_in_every_session_ends() -> None:
    program = await launch(ORPHANS)
    pids = [int(await program.events.readline()) for _ in range(7)]
    await program.close()
    assert all(gone(pid) for pid in pids)


async def test_a_launcher_that_was_killed_takes_the_program_with_it(daemon: tuple[Launched, int]) -> None:
    program, other = daemon
    os.kill(program._launcher.pid, signal.SIGKILL)
    await program.exited.wait()
    assert gone(program.pid)
    os.kill(other, signal.SIGKILL)


async def test_a_launcher_that_was_stopped_does_not_hold_up_the_end(
    daemon: tuple[Launched, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    program, other = daemon
    monkeypatch.setattr("kernbench.worker.launched.KILL_SECONDS", 0.1)
    os.kill(program._launcher.pid, signal.SIGSTOP)
    await program.close()
    assert gone(program.pid)
    os.kill(other, signal.SIGKILL)


async def test_a_program_that_cannot_start_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        await Launched.start(["/nothing/here"], dict(os.environ))


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "pid"
    code = f"import os, time; open({str(place)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    starting = asyncio.create_task(launch(code))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not place.exists() or gone(int(place.read_text() or 0))


@pytest.mark.parametrize("frozen", [False, True])
async def test_kill_9_of_the_workbench_leaves_nothing(frozen: bool) -> None:
    """Not even a program that was stopped as soon as it had started."""
    script = (
        "import asyncio, os, signal, sys\n"
        "from kernbench.worker.launched import Launched\n"
        "async def main():\n"
        "    program = await Launched.start(['sleep', '600'], dict(os.environ))\n"
        f"    {'os.killpg(program.pid, signal.SIGSTOP)' if frozen else 'pass'}\n"
        "    print(program.pid, program._launcher.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment).stdout
    assert all(gone(int(pid)) for pid in said.split())


async def test_what_cannot_be_killed_is_named() -> None:
    said: list[str] = []
    child = await ChildProcess.start(sys.executable, FAKE, "cpu", lambda _: None, on_left=said.append)
    child.program.left = (12, 34)
    await child.close()
    assert said == ["could not stop processes that the worker started (pid 12, 34); stop them with `kill -9`"]


async def test_a_line_that_is_not_the_workers_ends_it_with_a_sentence(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched()
    for line in ("[" * 200_000, "5", '{"event":"ready","environment":[1]}', '{"event":"case","pid":1,"seq":3}'):
        write(folder, f'DO = "say"\nSAY = "{line}"')
        outcome = await it.session.run_once(iteration=False)
        assert isinstance(outcome, BuildFailed)
        assert (outcome.status, "wrote to its event pipe" in outcome.message) == ("crashed", True)
    write(folder, "TIME_US = 50.0")
    assert (await it.session.run_once(iteration=False)).right  # type: ignore[union-attr]


async def test_a_worker_killed_while_idle_does_not_cost_the_next_save(
    watched: Callable[..., Watched], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = watched()
    await it.session.run_once(iteration=False)
    supervisor = it.session.supervisor
    ask = supervisor._ask
    killed: list[int] = []

    def kill_first(child: ChildProcess, request: dict[str, object]) -> None:
        if not killed:
            killed.append(child.pid)
            os.kill(child.pid, signal.SIGKILL)
        ask(child, request)

    monkeypatch.setattr(supervisor, "_ask", kill_first)
    outcome = await it.session.run_once(iteration=False)
    assert killed
    assert outcome.right  # type: ignore[union-attr]


async def test_a_worker_stopped_from_outside_is_reported(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    write(folder, 'DO = "hang"\nON = "b"')
    running = asyncio.create_task(it.session.run_once(iteration=False))
    await it.until(lambda: bool(it.of(CaseLanded)))  # a worker that dies before its first word is replaced
    (pid, *_) = it.session.supervisor.pids
    os.kill(pid, signal.SIGSTOP)
    said = f"a signal stopped the worker; `kill -CONT {pid}` resumes it"
    await it.until(lambda: any(getattr(event, "text", "") == said for event in it.events))
    os.kill(pid, signal.SIGKILL)
    await running
