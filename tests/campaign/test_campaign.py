"""`kernbench campaign` with a scripted agent and real processes: worktrees, promotion, resuming, the sandbox."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the MCP Python SDK is not installed (extra `mcp`)")

from tests import ROOT
from tests.campaign.conftest import Project
from tests.mcp_server.scripted import CACHED, LOOP
from tests.repositories import commit, git

Projects = Callable[[str], Project]
CHEAT = "TIME_US = 10.0\nCONFIRM_US = 80.0"
TASK = """
name = "softmax"
entry = "softmax"
device = "cpu"
threads = 1
[tolerance]
float32 = { atol = 1e-6, rtol = 1e-3 }
[[case]]
id = "only"
headline = true
axes = { rows = 19, cols = 3072 }
"""
PLAIN = "import torch\n\ndef softmax(x):\n    return torch.softmax(x, dim=-1)\n"
BROKEN = "import torch\n\ndef softmax(x:\n"


def outcomes(events: list[dict[str, Any]]) -> dict[str, str]:
    return {event["task"]: event.get("outcome", event["event"]) for event in events}


def test_a_confirmed_best_is_promoted_with_its_log(project: Projects) -> None:
    made = project("good")
    code, events, said = made.campaign({"good": ['DO = "wrong"', "TIME_US = 20.0", CHEAT, "late"]}, "--budget", "3/5")
    assert (code, outcomes(events)) == (0, {"good": "promoted"}), said
    assert [event["event"] for event in events] == ["ready", "begun", "started", "ended", "done"]
    assert made.source("good") == "def toy(): ...\nTIME_US = 20.0\n"
    assert (events[-1]["runs"], events[-1]["best"]) == (3, "#3: 5.00x ±0.1% over eager")
    entries = (made.root / "kernels" / "good" / "ITERATIONS.md").read_text()
    assert entries.count("\n## ") == 4  # as it is, a wrong one, the best, one that was refused
    changed = git(made.root, "status", "--porcelain", "-uall").split()
    assert changed[1::2] == ["kernels/good/solution.py", "kernels/good/ITERATIONS.md"]
    on_branch = git(made.root, "show", f"{events[-1]['branch']}:kernels/good/solution.py")
    assert on_branch == made.source("good")
    assert f"| good | promoted | {events[-1]['best']} | 3 |" in made.table()
    assert "the budget of 3 runs is spent" in (made.campaign_folder() / "good" / "agent.log").read_text()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_kept_refused_and_skipped(project: Projects) -> None:
    made = project("cheat lost dirty changed")
    (made.root / "kernels" / "dirty" / "solution.py").write_text("def toy(): ...\nTIME_US = 44.0\n")
    script = {
        "cheat": [CHEAT],
        "lost": ["TIME_US = 60.0", "fail"],
        "changed": ["tamper", "TIME_US = 20.0"],
    }
    code, events, said = made.campaign(script, "--budget", "2/3")
    expected = dict.fromkeys(("cheat", "lost", "changed"), "no better")
    assert (code, outcomes(events)) == (1, {**expected, "dirty": "skipped"}), said
    assert all("TIME_US = 50.0" in made.source(name) for name in expected)
    assert "TIME_US = 44.0" in made.source("dirty")
    done = {event["task"]: event for event in events if event["event"] == "done"}
    assert done["lost"]["why"].endswith("the agent exited with code 3")
    assert "the task's own files were changed" in done["changed"]["why"]
    for name, event in done.items():  # what failed is on its branch, in its worktree
        assert f"| {name} | no better |" in made.table()
        assert event["branch"] in made.table()
        assert (Path(event["worktree"]) / "kernels" / name / "ITERATIONS.md").is_file()
    assert "TIME_US = 10.0" in git(made.root, "show", f"{done['cheat']['branch']}:kernels/cheat/solution.py")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_agent_that_hangs_is_stopped(project: Projects) -> None:
    made = project("hangs")
    _code, events, said = made.campaign({"hangs": ["hang"]}, "--budget", "2/0.1")
    assert outcomes(events) == {"hangs": "no better"}, said
    assert events[-1]["why"].endswith("the agent was stopped after its 0.1 minutes")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_killed_and_resumed(project: Projects) -> None:
    made = project("a b c")
    script = {
        "a": ["TIME_US = 40.0"],
        "b": ["TIME_US = 30.0", "kill", "TIME_US = 20.0", "TIME_US = 10.0"],
        "c": ["TIME_US = 45.0"],
    }
    code, before, _said = made.campaign(script, "--budget", "3/5")
    assert code == -9
    whole = ["ready", "begun", "started", "ended", "done"]
    assert [event["event"] for event in before] == [*whole, "ready", "begun", "started"]
    assert "TIME_US = 50.0" in made.source("b")
    code, after, said = made.campaign(script, "--budget", "3/5")
    assert (code, outcomes(after)) == (0, {"b": "promoted", "c": "promoted"}), said
    assert [event["event"] for event in after] == ["started", "ended", "done", *whole]
    assert (after[0]["runs"], after[1]["runs"]) == (1, 3)  # the budget goes on, too
    assert ["TIME_US = 40.0" in made.source("a"), "TIME_US = 20.0" in made.source("b")] == [True, True]
    assert made.campaign(script, "--budget", "3/5")[:2] == (0, [])
    assert all(f"| {name} | promoted |" in made.table() for name in script)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bwrap: apt install bubblewrap")
def test_bwrap_leaves_an_agent_its_worktree(project: Projects) -> None:
    made = project("good")
    users = made.root / "kernels" / "good" / "mine"
    with socket.create_server(("127.0.0.1", 0)) as server:
        about = {"USERS_FILE": str(users), "PORT": str(server.getsockname()[1])}
        script = {"good": ["TIME_US = 20.0", "escape"]}
        assert made.campaign(script, "--sandbox", **about)[1][-1]["outcome"] == "promoted"
        log = made.campaign_folder() / "good" / "agent.log"
        could = json.loads(log.read_text().splitlines()[-1])
        assert could == {"worktree": True, "log": False, "user": False, "tmp": True, "network": False}
        assert not users.exists()
        assert not os.path.exists("/tmp/kernbench-escape")
        assert made.source("good") == "def toy(): ...\nTIME_US = 20.0\n"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_real_tasks_on_the_cpu(project: Projects) -> None:
    """With the real worker: one confirmed best each, and a cached answer is not promoted."""
    made = project("")
    for name in ("one", "two", "three", "cheat"):
        folder = made.root / "kernels" / name
        folder.mkdir(parents=True)
        shutil.copy(ROOT / "kernels" / "softmax_host" / "reference.py", folder)
        (folder / "task.toml").write_text(TASK)
        (folder / "solution.py").write_text(LOOP)
    commit(made.root)
    script = {"one": [BROKEN, PLAIN], "two": [CACHED, PLAIN], "three": [PLAIN], "cheat": [CACHED]}
    about = {"KERNBENCH_HARNESS": str(ROOT / "harness"), "PATIENCE": "6"}
    code, events, said = made.campaign(script, "--budget", "8/5", **about)
    expected = dict.fromkeys(("one", "two", "three"), "promoted") | {"cheat": "no better"}
    assert (code, outcomes(events)) == (0, expected), f"{said}\n{made.table()}"
    assert [made.source(name) for name in script] == [PLAIN, PLAIN, PLAIN, LOOP]
