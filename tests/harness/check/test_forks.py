"""A source that forks: rows land once, the copy is gone and reported; children with a purpose are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.child import Child, findings, results, write_task
from tests.sessions import gone

HEAD = "import ctypes, multiprocessing, os, subprocess, sys\n"
FORKS = {
    "import": "os.fork()\ndef scale(x, factor):\n    return x * factor\n",
    "call": "def scale(x, factor):\n    os.fork()\n    return x * factor\n",
    "raise": "def scale(x, factor):\n    if not os.fork(): raise OSError\n    return x * factor\n",
    "c": "fork = ctypes.CDLL(None).fork\nfork()\ndef scale(x, factor):\n    return x * factor\n",
}
PURPOSES = {
    "exec": "if not os.fork(): os.execvp('true', ['true'])\n",
    "exit": "if not os.fork(): os._exit(0)\n",
    "popen": "subprocess.run(['true'], preexec_fn=os.setsid)\n",
    "multiprocessing": "_p = multiprocessing.get_context('fork').Process(target=print)\n_p.start()\n_p.join()\n",
}


@pytest.mark.parametrize("how", FORKS)
def test_a_copy_that_comes_back_ends_and_is_reported(tmp_path: Path, how: str) -> None:
    with Child() as child:
        events = child.run(write_task(tmp_path, solution_py=HEAD + FORKS[how]), cases=("small",), budget_ms=1.0)
        assert results(events)["small"]["status"] == "ok"
        assert "forked" in findings(events)
        assert [event["event"] for event in events].count("started") == 1
        assert [event["seq"] for event in events] == list(range(events[0]["seq"], events[-1]["seq"] + 1))
        below = Path(f"/proc/{child.process.pid}/task/{child.process.pid}/children").read_text().split()
        assert all(gone(int(pid)) for pid in below)


@pytest.mark.parametrize("what", PURPOSES)
def test_a_child_with_a_purpose_is_not_reported(tmp_path: Path, what: str) -> None:
    source = HEAD + PURPOSES[what] + "def scale(x, factor):\n    return x * factor\n"
    with Child() as child:
        events = child.run(write_task(tmp_path, solution_py=source), cases=("small",), budget_ms=1.0)
    assert results(events)["small"]["status"] == "ok"
    assert "forked" not in findings(events)


def test_a_best_that_forks_is_not_the_solutions_finding(tmp_path: Path) -> None:
    task, best = write_task(tmp_path / "task"), write_task(tmp_path / "best", solution_py=HEAD + FORKS["import"])
    with Child() as child:
        events = child.run(task, cases=("small",), budget_ms=1.0, best=str(best))
    assert results(events)["small"]["vs_best"]
    assert "forked" not in findings(events)
