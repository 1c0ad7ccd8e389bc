"""A compiler at work is seen below the worker, moves its deadline, and is still held to a limit."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernbench.events import BuildFailed, Progress, RunFinished
from kernbench.worker.deadlines import Deadlines, compiler_below
from tests.sessions import Watched, reached, write

COMPILER = """#!/bin/sh
echo started
while [ -e {hold} ]; do sleep 0.02; done
"""


@pytest.fixture
def compiler(tmp_path: Path) -> Iterator[Path]:
    """A program called g++ that works as long as a file exists."""
    hold = tmp_path / "hold"
    hold.touch()
    program = tmp_path / "bin" / "g++"
    program.parent.mkdir()
    program.write_text(COMPILER.format(hold=hold))
    program.chmod(0o755)
    yield program
    hold.unlink(missing_ok=True)


@pytest.mark.parametrize("words", [[], ["sh", "-c", '"$0"; true']])
def test_a_compiler_below_is_seen_while_it_works(compiler: Path, words: list[str]) -> None:
    assert compiler_below(os.getpid()) is None
    with subprocess.Popen([*words, str(compiler)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert compiler_below(os.getpid()) == "g++"
        (compiler.parent.parent / "hold").unlink()
    assert compiler_below(os.getpid()) is None


def test_one_that_is_stopped_or_only_left_unburied_is_not_at_work(compiler: Path) -> None:
    with subprocess.Popen([str(compiler)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert compiler_below(os.getpid()) is None
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert compiler_below(os.getpid()) is None


def test_a_process_that_is_gone_has_none_below() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    assert compiler_below(process.pid) is None


@pytest.mark.anyio
async def test_a_build_outlasts_its_deadline_while_a_compiler_works(
    watched: Callable[..., Watched], folder: Path, compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_COMPILER", str(compiler))
    write(folder, 'DO = "compile"')
    it = watched(deadlines=Deadlines(build=0.1, look=0.05, check=60.0), spares=False)
    await it.session.start()
    supervisor = it.session.supervisor
    await it.until(lambda: any(event.compiler == "g++" for event in it.of(Progress)))  # type: ignore[attr-defined]
    await reached(lambda: supervisor._deadline > supervisor._entered + 1.0)
    (compiler.parent.parent / "hold").unlink()
    await it.until(lambda: bool(it.of(RunFinished)))
    assert not it.of(BuildFailed)


@pytest.mark.anyio
async def test_a_compiler_that_never_ends_is_given_up(
    watched: Callable[..., Watched], folder: Path, compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_COMPILER", str(compiler))
    write(folder, 'DO = "compile"')
    it = watched(deadlines=Deadlines(build=0.1, look=0.05, compile=0.5), spares=False)
    await it.session.start()
    await it.until(lambda: bool(it.of(BuildFailed)))
    (failure,) = it.of(BuildFailed)
    assert isinstance(failure, BuildFailed)
    assert (failure.status, failure.message) == ("timeout", "timed out after 0.5 s while loading")
