"""The child process: its thread, its death, its parent's death, its floods, its refusal to be cancelled."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kernbench.worker.log_limit import LogLimiter
from kernbench.worker.process import ChildProcess, Unusable
from tests import FAKE, ROOT
from tests.sessions import HASTY, Watched, gone, write


@pytest.mark.parametrize("harness", ["fake", "real"])
def test_the_worker_dies_with_its_parent(tmp_path: Path, harness: str) -> None:
    """kill -9 of the workbench: the worker must not be left behind, busy or not."""
    folder = FAKE if harness == "fake" else ROOT / "harness"
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from kernbench.worker.process import ChildProcess\n"
        "async def main():\n"
        f"    child = await ChildProcess.start(sys.executable, Path({str(folder)!r}), 'cpu', lambda line: None)\n"
        "    await child.wait_ready()\n"
        "    print(child.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert not gone(pid, 0.1)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(pid)


@pytest.mark.anyio
async def test_a_worker_that_ignores_cancel_is_killed(watched: object, folder: Path) -> None:
    it: Watched = watched(deadlines=HASTY)  # type: ignore[operator]
    await it.session.start()
    await it.ended(1)
    pid = it.session.supervisor.pids[0]
    write(folder, 'DO = "hang_load"')
    await it.until(lambda: it.session.running is not None)
    write(folder, "TIME_US = 10.0")
    await it.ended(3)
    assert it.session.logbook.journal.summaries[-1].geomean == pytest.approx(10.0)
    assert gone(pid)


@pytest.mark.anyio
async def test_a_worker_says_where_it_is_and_nobody_reads_it_in_the_log() -> None:
    log: list[str] = []
    child = await ChildProcess.start(sys.executable, ROOT / "harness", "cpu", log.append)
    try:
        await child.wait_ready()
        stack = await child.stack()
        assert any(f'File "{ROOT}/harness/worker.py"' in line and line.endswith(" in main") for line in stack), stack
        assert not any("worker.py" in line for line in log)
        assert child.alive
    finally:
        await child.close()


@pytest.mark.anyio
async def test_what_the_kernel_leaves_in_the_group_is_killed_too() -> None:
    child = await ChildProcess.start(sys.executable, FAKE, "cpu", lambda line: None)
    await child.wait_ready()
    os.killpg(child.pid, signal.SIGCONT)  # the group is the child's own
    await child.close()
    assert gone(child.pid)


@pytest.mark.anyio
async def test_a_python_without_torch_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "harness"
    broken.mkdir()
    (broken / "__init__.py").write_text("")
    (broken / "worker.py").write_text("raise ImportError('no such thing')\n")
    child = await ChildProcess.start(sys.executable, broken, "cpu", lambda line: None)
    words = r"exited with code 1 at startup: ImportError: no such thing; does .* have torch"
    with pytest.raises(Unusable, match=words):
        await child.wait_ready()
    await child.close()


@pytest.mark.anyio
async def test_what_is_no_python_is_doubted() -> None:
    child = await ChildProcess.start("/bin/ls", FAKE, "cpu", lambda line: None)
    with pytest.raises(Unusable, match="; does /bin/ls have torch\\? choose another with --python"):
        await child.wait_ready()
    await child.close()


def test_the_log_keeps_the_first_lines_of_a_second_and_counts_the_rest() -> None:
    limiter = LogLimiter(lines_per_second=3, longest=10)
    assert limiter.feed(b"one\ntwo\nthr", 1.0) == ["one", "two"]
    assert limiter.feed(b"ee\nfour\nfive\n", 1.5) == ["three"]
    assert limiter.feed(b"six\n" * 1000, 1.9) == []
    assert limiter.feed(b"seven\n", 2.0) == ["... 1,002 more lines (4.0 kB) dropped", "seven"]
    assert limiter.feed(b"a line with no end at all" + b"x" * 100, 3.0) == ["a line wit ..."]
    assert limiter.finish() == []


def test_bytes_that_are_no_text_do_not_reach_the_screen() -> None:
    text = b"\x1b[2J\xff\x00ok\tfine\n\x1b[31mred\x1b[0m \x1b]0;title\x07bell\x07\n"
    assert LogLimiter().feed(text, 0.0) == ["\ufffd?ok\tfine", "red bell?"]


def wrapper(place: Path) -> Path:
    place.write_text(f'#!/bin/sh\necho "loading modules..."\nprintf "no end of line"\nexec {sys.executable} "$@"\n')
    place.chmod(0o755)
    return place


@pytest.mark.anyio
@pytest.mark.parametrize("module", ["worker", "judge", "precompile.server", "transfer.step_worker"])
async def test_what_a_python_prints_at_startup_is_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    lines: list[str] = []
    monkeypatch.setenv("FAKE_BUILDER", "deaf")
    device = None if module == "precompile.server" else "cpu"
    child = await ChildProcess.start(str(wrapper(tmp_path / "python")), FAKE, device, lines.append, module=module)
    try:
        await asyncio.wait_for(child.wait_ready(), 60)
    finally:
        await child.close()
    assert {"loading modules...", "no end of line"} <= set(lines)
