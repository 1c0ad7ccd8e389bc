"""The tools over the fake worker, in this process: cancellation, turns, several tasks, refusals."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

pytest.importorskip("mcp", reason="the MCP Python SDK is not installed (extra `mcp`)")

from mcp import Client
from mcp.types import TextContent

from kernbench.mcp_server import desk as desks
from kernbench.mcp_server.desk import Desk
from kernbench.mcp_server.tools import make_server
from tests import FAKE
from tests.mcp_server.scripted import Script, desk_on
from tests.ncu.kept_csv import DATA, HERE, NCU
from tests.sessions import HASTY, gone, reached, write

pytestmark = pytest.mark.anyio
Opens = Callable[[Desk], Awaitable[Script]]


async def cancelled(script: Script, running: Callable[[], bool], tool: str = "run", **arguments: str) -> None:
    """Calls a tool and cancels the call once a condition holds."""
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: script.client.call_tool(tool, arguments))
        await reached(running)
        group.cancel_scope.cancel()


async def test_a_cancelled_run_ends_and_the_next_works(folder: Path, opens: Opens) -> None:
    desk = desk_on(folder, runs=5, deadlines=HASTY)
    script = await opens(desk)
    write(folder, 'DO = "hang"')
    await cancelled(script, lambda: desk._heard.doing.startswith("checking"), hypothesis="it hangs")
    write(folder, "TIME_US = 50.0")
    after = await script.call("run", hypothesis="it does not")
    assert (after.is_best, after.entry, after.budget["runs_left"]) == (True, 1, 3)


async def test_a_call_cancelled_while_its_worker_starts_runs_nothing(
    folder: Path, opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_START", "0.5")
    desk = desk_on(folder)
    script = await opens(desk)
    await cancelled(script, lambda: desk._heard.doing.startswith("starting"), hypothesis="too early")
    assert (await script.call("run", hypothesis="again")).entry == 1


async def test_a_cancelled_confirmation_leaves_best_open_and_the_next_run_settles_it(
    folder: Path, opens: Opens
) -> None:
    desk = desk_on(folder)
    script = await opens(desk)
    write(folder, 'TIME_US = 50.0\nCONFIRM_DO = "wait"')
    (folder / ".wait").touch()
    await cancelled(script, lambda: desk._heard.doing == "confirming it in a new worker", hypothesis="never confirmed")
    assert (await script.call("log")).best == "no best yet: the first one waits for its confirmation in a new worker"
    (folder / ".wait").unlink()
    again = await script.call("run", hypothesis="confirmed now")
    assert (again.is_best, again.same_source_as) == (True, 1)


async def test_one_run_at_a_time_and_a_waiting_one_can_be_cancelled(
    folder: Path, opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SLOW", "0.1")
    desk = desk_on(folder)
    script = await opens(desk)
    write(folder, 'DO = "slow"')
    first = asyncio.create_task(script.call("run", hypothesis="first"))
    await reached(lambda: bool(desk._works_on))
    waits = asyncio.create_task(script.call("run", hypothesis="second"))
    assert (await script.call("status")).running == "toy"
    await cancelled(script, lambda: len(desk._turn._waiters or ()) == 2, hypothesis="never")
    assert [(await task).entry for task in (first, waits)] == [1, 2]
    assert [entry["hypothesis"] for entry in (await script.call("log")).entries] == ["first", "second"]


async def test_a_cancelled_profile_leaves_a_desk_that_works(
    folder: Path, opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forever(*_given: object) -> None:
        await asyncio.sleep(600)

    desk = desk_on(folder)
    script = await opens(desk)
    with monkeypatch.context() as patch:
        patch.setattr(desks.Session, "profile", forever)
        await cancelled(script, lambda: desk._heard.doing == "profiling b", tool="profile", case="b")
    assert (await script.call("run", hypothesis="after it")).is_best


async def test_a_profile_names_the_limit_and_the_next_run_repeats_it(
    folder: Path, tmp_path: Path, opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the fake worker, the fake ncu and what a real one wrote."""
    monkeypatch.setenv("FAKE_DEVICE", "cuda:0")
    monkeypatch.setenv("FAKE_NCU_CSV", str(DATA / "rms_4096x3072.csv"))
    harness = tmp_path / "harness"
    shutil.copytree(FAKE, harness)
    shutil.copy(HERE / "fake" / "harness" / "target.py", harness)
    (folder / "task.toml").write_text((folder / "task.toml").read_text().replace('"cpu"', '"cuda"'))
    desk = desk_on(folder, harness=harness, ncu=str(NCU))
    script = await opens(desk)
    first = await script.call("run", hypothesis="as it is")
    assert (first.device, first.is_best) == ("Fake 9000", True)
    found = await script.call("profile", case="a 16x16")
    assert (found.case, bool(found.evidence and found.to_try and found.numbers)) == ("a", True)
    again = await script.call("run", hypothesis="once more")
    assert [row["limit"] for row in again.rows] == [found.limit, "", ""]


async def test_closing_ends_a_run_as_cancelled(folder: Path, opens: Opens) -> None:
    desk = desk_on(folder, deadlines=HASTY)
    script = await opens(desk)
    write(folder, 'DO = "hang"')
    running = asyncio.create_task(script.client.call_tool("run", {"hypothesis": "it hangs"}))
    await reached(lambda: desk._heard.doing.startswith("checking"))
    await desk.close()
    assert (await running).is_error
    assert not (folder / "ITERATIONS.md").exists()
    assert '"event":"cancelled"' in (folder / ".kernbench" / "runs.jsonl").read_text()


async def test_closing_stops_the_worker(folder: Path) -> None:
    desk = desk_on(folder)
    async with Client(make_server(desk)) as client:
        await Script(client).call("run", hypothesis="as it is")
        assert desk._session is not None
        pids = desk._session.supervisor.pids
        await desk.close()
    assert pids
    assert all(map(gone, pids))


async def test_several_tasks_and_one_worker(folder: Path, opens: Opens) -> None:
    other = folder.parent / "other"
    shutil.copytree(folder, other)
    script = await opens(desk_on(folder, other))
    assert "which task?; choose one of toy, other" in await script.refusal("read_task")
    assert "no task 'tou' is served; choose one of toy, other" in await script.refusal(
        "run", hypothesis="h", task="tou"
    )
    for name in ("toy", "other", "toy"):
        assert (await script.call("run", hypothesis="as it is", task=name)).task == name
    tasks = (await script.call("status")).tasks
    assert [(task["task"], task["iterations"], task["best"]) for task in tasks] == [
        ("toy", 2, "2.00x"),
        ("other", 1, "2.00x"),
    ]


async def test_a_solution_that_is_gone_is_restored_or_written(folder: Path, opens: Opens) -> None:
    script, text = await opens(desk_on(folder)), (folder / "solution.py").read_text()
    await script.call("run", hypothesis="as it is")
    (folder / "solution.py").unlink()
    assert "solution.py: no such file" in await script.refusal("run", hypothesis="h")
    assert (await script.call("restore", source="1")).changed == ["solution.py"]
    (folder / "solution.py").unlink()
    await script.call("write_source", path="parts.py", text="X = 1\n")
    await script.call("write_source", path="solution.py", text=text)
    assert (folder / "solution.py").read_text() == text


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("run", {"hypothesis": " "}, "nothing was run: say in `hypothesis` what this change should do"),
        ("diff", {}, "no best yet: nothing has been run on this machine"),
        ("diff", {"old": "7"}, "no iteration '7' here: none is logged yet; try best, last or a hash"),
        ("restore", {"source": "now"}, "`now` is what the files are already"),
        ("log", {"count": 0}, "ask for 1 to 200"),
        ("profile", {"case": "z"}, "z: no case matches in toy; choose one of a, b, c"),
        ("profile", {"case": "[ab]"}, "[ab]: 2 cases match in toy; choose one of a, b"),
    ],
)
async def test_a_refusal_is_one_sentence(
    folder: Path, opens: Opens, tool: str, arguments: dict[str, object], said: str
) -> None:
    assert said in await (await opens(desk_on(folder))).refusal(tool, **arguments)


async def test_what_cannot_be_run_is_not_counted(folder: Path, opens: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    script = await opens(desk_on(folder, runs=1))
    task = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text("entry = 3\n")
    assert "task.toml: entry: " in await script.refusal("run", hypothesis="h")
    (folder / "task.toml").write_text(task)
    with monkeypatch.context() as patch:
        patch.setenv("FAKE_UNUSABLE", "1")
        assert "nothing was run: there is no device cuda:7 here" in await script.refusal("run", hypothesis="h")
    assert (await script.call("run", hypothesis="h")).budget["sentence"] == "0 runs left"


async def test_an_internal_error_is_a_sentence_too(folder: Path, opens: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Desk, "status", lambda desk: 1 / 0)
    assert "internal error: ZeroDivisionError" in await (await opens(desk_on(folder))).refusal("status")


async def test_findings_are_explained_once(folder: Path, opens: Opens) -> None:
    script = await opens(desk_on(folder))
    write(folder, 'DO = "patch"')
    answer = await script.call("run", hypothesis="torch.softmax is mine now")
    assert [(found["name"], found["disqualifies"]) for found in answer.findings] == [("changed process", True)]
    assert not answer.is_best


async def test_every_tool_has_a_schema_for_its_answer(folder: Path, opens: Opens) -> None:
    script = await opens(desk_on(folder))
    tools = {tool.name: tool for tool in (await script.client.list_tools()).tools}
    assert list(tools) == "status read_task diff log write_source restore run profile sweep transfer".split()
    assert all(tool.description and tool.output_schema for tool in tools.values())
    assert tools["run"].input_schema["required"] == ["hypothesis"]
    result = await script.client.call_tool("status", {})
    assert isinstance(result.structured_content, dict)
    assert result.structured_content["tasks"][0]["problem"] == ""
    assert isinstance(result.content[0], TextContent)
    assert json.loads(result.content[0].text)["budget"] == {"sentence": "runs and minutes are not limited"}
