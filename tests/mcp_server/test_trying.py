"""The tools `sweep` and `transfer`: answers, progress, cancellation and budget, over the fake worker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="the MCP Python SDK is not installed (extra `mcp`)")

from harness.shared.model_step import Patch
from kernbench.mcp_server import transfer_tool
from kernbench.mcp_server.desk import Desk
from kernbench.mcp_server.run_budget import RunBudget
from kernbench.transfer.model_row import ModelRow
from kernbench.transfer.model_run import ModelRun
from tests.conftest import _workers
from tests.mcp_server.scripted import Script, desk_on
from tests.sessions import gone, reached, write

pytestmark = pytest.mark.anyio
Opens = Callable[[Desk], Awaitable[Script]]


async def test_a_sweep_answers_what_won_and_writes_only_when_asked(folder: Path, opens: Opens) -> None:
    script = await opens(desk_on(folder, runs=9))
    before = (folder / "solution.py").read_text()
    found = await script.call("sweep", sets=["TIME_US=40.0,20.0,60.0"], hypothesis="less time is faster")
    assert (found.verdict, found.winner, found.outcome, found.is_best) == ("faster", "TIME_US=20.0", "first", True)
    assert found.over_now["low"] <= 2.5 <= found.over_now["high"]
    tried = [(item["variant"], item["verdict"], item["timed"]) for item in found.variants]
    assert tried == [
        ("TIME_US=20.0", "faster", "in full"),
        ("TIME_US=40.0", "faster", "in full"),
        ("as it is", "same", "now"),
        ("TIME_US=60.0", "slower", "in full"),
    ]
    assert (found.written, (folder / "solution.py").read_text()) == ("", before)
    assert found.budget["runs_left"] == 9 - 3 - 1  # three in full, and the winner's own
    assert (await script.call("log")).entries[0]["hypothesis"] == "less time is faster"
    assert [done for done, _total, _said in script.progress] == sorted(
        {done for done, _total, _said in script.progress}
    )
    assert "own run" in str(script.progress[-1][2])

    again = await script.call("sweep", sets=["TIME_US=20.0,55.0"], write=True)
    assert "TIME_US = 20.0" in (folder / "solution.py").read_text()
    assert again.written.startswith("wrote TIME_US=20.0: solution.py")
    refused = await script.refusal("sweep", sets=["TIME_US=1.0,2.0,3.0"])
    assert refused == "nothing was run: this takes up to 4 runs, and the budget has 2 left"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"sets": []}, "`sets` needs a constant"),
        ({"sets": ["NOTHING=1"]}, "nothing sets NOTHING"),
        ({"sets": ["TIME_US=1.0"], "sample": 0}, "a sample of 0 variants is none"),
    ],
)
async def test_a_sweep_that_cannot_begin_says_why(
    folder: Path, opens: Opens, arguments: dict[str, Any], said: str
) -> None:
    script = await opens(desk_on(folder, runs=5))
    assert said in await script.refusal("sweep", **arguments)
    assert (await script.call("status")).budget["runs_left"] == 5


async def test_a_cancelled_sweep_ends_its_worker_and_the_next_call_works(folder: Path, opens: Opens) -> None:
    desk = desk_on(folder, runs=9)
    script = await opens(desk)
    write(folder, 'TIME_US = 50.0\nDO = "nothing"')
    workers: set[int] = set()

    def hangs() -> bool:
        workers.update(_workers())
        return "as it is" in desk._heard.doing

    async with anyio.create_task_group() as group:
        group.start_soon(lambda: script.client.call_tool("sweep", {"sets": ['DO="hang","nothing"']}))
        await reached(hangs)
        group.cancel_scope.cancel()
    await reached(lambda: not desk._jobs)
    assert workers
    assert all(map(gone, workers))
    assert (await script.call("run", hypothesis="after it")).is_best


async def test_minutes_stop_a_sweep_that_says_how_far_it_came(folder: Path, opens: Opens) -> None:
    desk = desk_on(folder)
    desk.budget = RunBudget(minutes=2 / 60)
    script = await opens(desk)
    write(folder, 'TIME_US = 50.0\nDO = "nothing"')
    found = await script.call("sweep", sets=['DO="hang"'], write=True)
    assert re.match(r"stopped before its end: [01] of 2 variants in ", found.sentence)
    assert found.sentence.endswith("; the budget's minutes are spent")
    assert (found.verdict, found.winner, found.written, found.entry) == ("unclear", "", "", None)


async def test_a_transfer_gives_its_word_and_counts(
    folder: Path, opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def rows(run: ModelRun) -> list[ModelRow]:
        run._tell("checked")
        await asyncio.sleep(0.6)
        patch = Patch(task="toy", what="now", folder="", user_folder="", build="", entry="toy")
        about = ModelRow("r", "mini", "tiny", "now", "slower", False, "", "ours", "eager", 0.9, 0.88, 0.92, 1.1, 0.02)
        assert run._options.tasks == (str(folder),)
        return [ModelRow(**{**about.__dict__, "sources": (patch,)})]

    monkeypatch.setattr(transfer_tool.ModelRun, "rows", rows)
    script = await opens(desk_on(folder, runs=1))
    found = await script.call("transfer", model="mini", task="toy", source="now")
    assert (found.word, found.kept, found.step["verdict"], found.tasks) == ("slower", False, "slower", ["toy: now"])
    assert script.progress[0][2] == "checked"
    assert found.budget["runs_left"] == 0
    assert "budget of 1 run is spent" in await script.refusal("transfer", model="mini")
    assert "no model '../mini' here; available: " in await script.refusal("transfer", model="../mini")
    assert "'ous' is not one of eager" in await script.refusal("transfer", model="mini", sides=["ous"])
