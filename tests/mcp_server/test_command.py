"""`kernbench mcp`: which tasks it serves, its budget, and how it ends."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernbench.cli import cli
from kernbench.mcp_server import served_tasks
from kernbench.mcp_server.run_budget import BudgetSpent, RunBudget


def test_a_task_a_folder_or_what_is_here(folder: Path) -> None:
    project = folder.parent
    second = project / "kernels" / "second"
    shutil.copytree(folder, second)
    (project / ".git").mkdir()

    def names(words: list[str], cwd: Path) -> list[str]:
        return [path.name for path in served_tasks.find(words, cwd).folders]

    assert names(["toy"], project) == ["toy"]
    assert names(["kernels"], project) == ["second"]
    assert names(["toy", str(project)], project) == ["toy"]
    assert names([], folder) == ["toy"]
    assert set(names([], project)) >= {"toy", "second"}
    copy = project / "more" / "toy"
    shutil.copytree(folder, copy)
    with pytest.raises(Exception, match="two tasks are called toy"):
        names([str(folder), str(copy)], project)
    with pytest.raises(Exception, match="no task 'nosuch' here"):
        names(["nosuch"], project)


def test_the_budget_ends_with_its_runs() -> None:
    budget = RunBudget(runs=2)
    assert budget.left().sentence == "2 runs left"
    budget.count_run()
    budget.check_run()
    budget.count_run()
    budget.check_time()
    with pytest.raises(BudgetSpent, match="nothing was run: the budget of 2 runs is spent; read_task, diff"):
        budget.check_run()


def test_the_minutes_begin_with_the_first_call() -> None:
    now = 0.0
    budget = RunBudget(minutes=1.5, clock=lambda: now)
    now = 600.0
    budget.check_run()
    budget.begin()
    now = 630.0
    budget.begin()
    assert budget.left().sentence == "1 minutes left"
    now = 690.0
    for check in (budget.check_run, budget.check_time):
        with pytest.raises(BudgetSpent, match=r"the budget of 1\.5 minutes is spent"):
            check()
    assert RunBudget().left().sentence == "runs and minutes are not limited"


def test_without_the_extra_a_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    result = CliRunner().invoke(cli, ["mcp"])
    assert result.exit_code != 0
    assert (
        str(result.exception)
        == "`kernbench mcp` needs version 2 of the MCP Python SDK: `pip install 'kernbench[mcp]'` installs it"
    )


@pytest.mark.parametrize("words", [["--runs", "0"], ["--minutes", "0"], ["--device", "gpu"], ["nosuch"]])
def test_a_mistake_is_reported_before_anything_is_served(words: list[str], folder: Path) -> None:
    pytest.importorskip("mcp", reason="the MCP Python SDK is not installed (extra `mcp`)")
    assert CliRunner().invoke(cli, ["mcp", str(folder), *words]).exit_code != 0


def test_a_line_that_is_no_message_is_answered(folder: Path) -> None:
    pytest.importorskip("mcp", reason="the MCP Python SDK is not installed (extra `mcp`)")
    half = rb'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"arguments":{"text":"\ud800"}}}'
    words = [sys.executable, "-m", "kernbench", "mcp", str(folder)]
    lines = [half, b"no JSON", b'{"jsonrpc":"2.0","id":[1]}', b""]
    done = subprocess.run(words, input=b"\n".join(lines), stdout=subprocess.PIPE, check=True, timeout=60)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [
        (9, -32700),
        (None, -32700),
        (None, -32700),
    ]


@pytest.mark.parametrize(("how", "code"), [("stdin ends", 0), ("SIGTERM", 130), ("stdout ends", 141)])
def test_it_ends_at_once(folder: Path, how: str, code: int) -> None:
    pytest.importorskip("mcp", reason="the MCP Python SDK is not installed (extra `mcp`)")
    words = [sys.executable, "-m", "kernbench", "mcp", str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        process.stdin.flush()
        assert process.stdout.readline()
        if how == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        elif how == "stdout ends":
            process.stdout.close()
            process.stdin.write(b'{"jsonrpc":"2.0","id":2,"method":"ping"}\n')
        if how != "SIGTERM":
            process.stdin.close()
        assert process.wait(60) == code
