"""A campaign's server has one client at a time; another one is told so."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.shared.errors import UserError
from kernbench.campaign import agent_run
from kernbench.campaign.agent_run import AgentOptions, AgentRun
from kernbench.campaign.process_tree import Streams
from kernbench.mcp_server import joining

pytestmark = pytest.mark.anyio


class Server:
    """Has the client's connection, as the process that serves it would, until it is ended."""

    def __init__(self, streams: Streams) -> None:
        assert isinstance(streams.given, int)
        self._own, self.over = os.dup(streams.given), asyncio.Event()

    async def wait(self) -> None:
        await self.over.wait()

    async def end(self) -> None:
        os.close(self._own)


async def test_a_second_connection_is_closed_and_a_later_one_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: list[Server] = []

    async def start(self: AgentRun, words: list[str], streams: Streams) -> Any:
        servers.append(Server(streams))
        return servers[-1]

    monkeypatch.setattr(AgentRun, "_start_bench", start)
    monkeypatch.setattr(agent_run, "TURN", 0.1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 30)))
    tree: Any = SimpleNamespace(place=tmp_path, folder=tmp_path)
    async with AgentRun(tree, AgentOptions("", 9, 5.0))._served() as address, asyncio.timeout(60):
        first, first_out = await asyncio.open_unix_connection(str(address))
        second, second_out = await asyncio.open_unix_connection(str(address))
        assert await second.read() == b""
        assert (len(servers), first.at_eof()) == (1, False)
        servers[0].over.set()
        assert await first.read() == b""
        _third, third_out = await asyncio.open_unix_connection(str(address))
        while len(servers) < 2:
            await asyncio.sleep(0.01)
        for out in (first_out, second_out, third_out):
            out.close()


def test_joining_says_why_nothing_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_send", lambda *_given: None)
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail(f"it ended with {code}"))
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/mcp")
        listener.listen()
        closing = threading.Thread(target=lambda: listener.accept()[0].close())
        closing.start()
        with pytest.raises(UserError, match="it serves one client at a time"):
            joining.pass_on(f"{folder}/mcp")
        closing.join()


@pytest.mark.parametrize(("numbers", "cut"), [(300, False), (100_000, True)])
async def test_the_middle_of_an_endless_output_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: int, cut: bool
) -> None:
    monkeypatch.setattr(agent_run, "KEPT", 1000)
    places: dict[str, Any] = {"place": tmp_path, "folder": tmp_path, "root": tmp_path}
    tree: Any = SimpleNamespace(**places, state=tmp_path, git_file=tmp_path / ".git")
    end = await AgentRun(tree, AgentOptions(f"seq {numbers}; exit 3", 9, 5.0)).run()
    assert end.code == 3
    lines = (tmp_path / "agent.log").read_text().splitlines()
    assert (lines[0], lines[-1]) == ("1", str(numbers))
    assert ("... the middle of the output is left out here ..." in lines) == cut
    assert (len(lines) < numbers) == cut
    before = (tmp_path / "agent.log").stat()
    assert before.st_size < 3100
    agent_run.bound(tmp_path / "agent.log")
    assert (tmp_path / "agent.log").stat().st_mtime_ns == before.st_mtime_ns  # what was cut once is left alone
