"""The SDK's own client plays scripts on softmax_host, over stdio: ten iterations with the fake worker, two for real."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="the MCP Python SDK is not installed (extra `mcp`)")

from mcp import Client, StdioServerParameters

from tests import FAKE, ROOT
from tests.mcp_server.scripted import CACHED, LOOP, Script

pytestmark = pytest.mark.anyio
TASK = """
name = "softmax_host"
entry = "softmax"
device = "cpu"
threads = 1
baseline = "eager"
[tolerance]
float32 = { atol = 1e-6, rtol = 1e-3 }
[[case]]
id = "softmax_19x3072"
headline = true
axes = { rows = 19, cols = 3072 }
[grid]
rows = [1, 3]
cols = [1, 17]
"""
TOY = "def softmax(x): ...\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """softmax_host with fewer cases, without its log."""
    folder = tmp_path / "softmax_host"
    shutil.copytree(ROOT / "kernels" / "softmax_host", folder, ignore=shutil.ignore_patterns(".*", "*.md"))
    (folder / "task.toml").write_text(TASK)
    return tmp_path


def server(place: Path, *words: str, **more: str) -> StdioServerParameters:
    arguments = ["-m", "kernbench", "mcp", "softmax_host", *words]
    return StdioServerParameters(command=sys.executable, args=arguments, cwd=place, env={**os.environ, **more})


async def test_ten_iterations(place: Path) -> None:
    folder = place / "softmax_host"
    serves = server(place, "--runs", "10", "--minutes", "60", KERNBENCH_HARNESS=str(FAKE))
    async with Client(serves) as client:
        script = Script(client)
        about = await script.call("read_task")
        assert set(about.task_files) == {"task.toml", "reference.py"}
        assert set(about.solution_files) == {"solution.py", "solution.cpp"}

        await script.save(f"{TOY}TIME_US = 90.0\n")
        first = await script.call("run", hypothesis="as it is", next_step="vector loads")
        assert (first.outcome, first.is_right, first.is_best, first.entry) == ("first", True, True, 1)
        assert "#1 is confirmed as best" in first.sentence
        assert [(row["case"], row["verdict"]) for row in first.rows] == [("softmax_19x3072", "faster")]

        saved = await script.save(f"{TOY}TIME_US = 50.0\n")
        second = await script.call("run", hypothesis="vector loads")
        assert (second.outcome, second.is_best, second.over_best["verdict"]) == ("improved", True, "faster")
        assert [entry["hypothesis"] for entry in second.tried_before] == ["as it is"]

        await script.save(f"{TOY}TIME_US = 20.0\nCONFIRM_US = 80.0\n")
        refused = await script.call("run", hypothesis="fast only while it is watched")
        assert (refused.outcome, refused.is_best) == ("refused", False)
        assert "#3 is not the best: " in refused.sentence

        await script.save(f'{TOY}DO = "syntax"\n')
        broken = await script.call("run", hypothesis="a typing mistake")
        assert (broken.outcome, broken.entry, broken.sentence) == (
            "build error",
            None,
            "solution.py:3: invalid syntax",
        )

        await script.save(f'{TOY}DO = "wrong"\n')
        wrong = await script.call("run", hypothesis="along the other axis")
        assert (wrong.outcome, wrong.is_right, wrong.over_baseline) == ("wrong", False, None)
        assert wrong.rows[0]["problem"].startswith("out differs at [0]")

        await script.save(f'{TOY}SAYS = "hello"\nDO = "crash"\n')
        crashed = await script.call("run", hypothesis="a crash costs one run")
        assert (crashed.outcome, crashed.printed[:1]) == ("crashed", ["hello"])

        text = (await script.call("diff")).diff
        assert "-TIME_US = 50.0" in text
        assert '+DO = "crash"' in text
        back = await script.call("restore", source="best")
        assert (back.changed, (folder / "solution.py").read_text()) == (["solution.py"], f"{TOY}TIME_US = 50.0\n")
        again = await script.call("run", hypothesis="the best once more")
        assert (again.same_source_as, again.is_best) == (2, True)

        await script.call("restore", source=saved.kept)  # what was there before it was overwritten
        assert (folder / "solution.py").read_text() == f"{TOY}TIME_US = 90.0\n"

        assert "runs on the CPU here" in await script.refusal("profile", case="softmax_19x3072")
        for number in (8, 9, 10):
            await script.save(f"{TOY}TIME_US = 60.0\nNUMBER = {number}\n")
            last = await script.call("run", hypothesis=f"try {number}")
        assert (last.outcome, last.is_stalled, last.budget["runs_left"]) == ("slower", True, 0)
        assert "stalled: profile again" in last.sentence
        refusal = await script.refusal("run", hypothesis="one more")
        assert refusal.startswith("nothing was run: the budget of 10 runs is spent; ")

        log = await script.call("log")
        assert (log.best.split(":")[0], log.entries[0]["next_step"]) == ("#2", "vector loads")
        assert [entry["entry"] for entry in log.entries] == list(range(1, 10))  # one could not be loaded
        assert (folder / "ITERATIONS.md").read_text().count("\n## ") == 9
        assert (await script.call("status")).budget["sentence"].startswith("0 runs left and ")


async def test_a_cached_answer_is_not_promoted(place: Path) -> None:
    """With the real worker."""
    async with Client(server(place, "--budget", "10")) as client:
        script = Script(client)
        await script.save(CACHED)
        cheat = await script.call("run", hypothesis="a cached answer needs no work")
        assert (cheat.is_right, cheat.is_best, cheat.over_baseline) == (False, False, None), cheat.sentence
        assert (await script.call("log")).best.startswith("no best yet: ")


@pytest.mark.long
async def test_honest_work_is_confirmed(place: Path) -> None:
    """With the real worker."""
    async with Client(server(place, "--budget", "10")) as client:
        script = Script(client)
        await script.save(LOOP)
        honest = await script.call("run", hypothesis="the work, ten times")
        assert honest.is_right, honest.sentence
        assert (honest.outcome, honest.is_best) in (("first", True), ("refused", False))  # on a busy machine
        assert script.progress[-1][2] == "confirming it in a new worker"
