"""Which processes are kernbench's own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from harness.device import own_processes

WAITS = "import os; print(os.getpid(), flush=True); input()"


@contextlib.contextmanager
def grandchild(code: str, outlives: bool = False) -> Iterator[int]:
    """Its pid. With `outlives`, its parent ends first, so it leaves the tree of this process."""
    start = "Popen" if outlives else "run"
    script = f"import subprocess, sys; subprocess.{start}([sys.executable, '-c', {code!r}])"
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    try:
        if outlives:
            parent.wait()
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        parent.communicate()


def test_a_process_below_the_workbench_is_own_and_a_stranger_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with grandchild(WAITS) as pid:
        monkeypatch.setenv("KERNBENCH_PID", str(os.getpid()))
        assert own_processes.is_own(pid)
        assert {os.getpid(), pid} <= set(own_processes.find())
        monkeypatch.setenv("KERNBENCH_PID", str(pid))
        assert own_processes.is_own(pid)
        assert not own_processes.is_own(os.getpid())
        assert set(own_processes.find()) == {pid, os.getpid()}
        monkeypatch.setenv("KERNBENCH_PID", str(os.getpid()))
    assert not own_processes.is_own(pid)


def test_without_a_word_from_the_workbench_the_parent_is_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNBENCH_PID", raising=False)
    assert own_processes.workbench() == os.getppid()
    assert own_processes.is_own(os.getpid())
    monkeypatch.setattr(os, "getppid", lambda: 0)  # of another namespace
    assert not own_processes.is_own(1)
    assert own_processes.find() == [0, os.getpid()]
