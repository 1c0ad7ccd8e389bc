"""A client that plays a script: calls of tools, each with what it answers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mcp import Client
from mcp.types import TextContent

from kernbench.engine.jobs import Options
from kernbench.mcp_server.desk import Desk
from kernbench.mcp_server.run_budget import RunBudget
from kernbench.mcp_server.served_tasks import ServedTasks
from tests import FAKE
from tests.sessions import PATIENT

LOOP = "import torch\n\ndef softmax(x):\n    for _ in range(10): out = torch.softmax(x, dim=-1)\n    return out\n"
"""A softmax that takes ten times as long as it needs to."""
CACHED = """import torch

known = {}

def softmax(x):
    if x.shape not in known:
        known[x.shape] = torch.softmax(x, dim=-1)
    return known[x.shape]
"""
"""One that remembers what it returned."""


class Script:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.progress: list[tuple[float, float | None, str | None]] = []

    async def call(self, tool: str, **arguments: Any) -> SimpleNamespace:
        """Its answer by name; fails if it refuses."""
        result = await self.client.call_tool(tool, arguments, progress_callback=self._note)
        assert not result.is_error, _text(result.content)
        assert isinstance(result.structured_content, dict)
        return SimpleNamespace(**result.structured_content)

    async def refusal(self, tool: str, **arguments: Any) -> str:
        """The sentence with which it refuses."""
        result = await self.client.call_tool(tool, arguments, progress_callback=self._note)
        assert result.is_error, result.structured_content
        said = _text(result.content)
        assert "\n" not in said
        return said.removeprefix(f"Error executing tool {tool}: ")

    async def save(self, text: str, path: str = "solution.py", **arguments: Any) -> SimpleNamespace:
        return await self.call("write_source", path=path, text=text, **arguments)

    async def _note(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append((progress, total, message))


def _text(content: list[Any]) -> str:
    return "\n".join(item.text for item in content if isinstance(item, TextContent))


def desk_on(*folders: Path, runs: int | None = None, **options: Any) -> Desk:
    """Over the fake harness."""
    return Desk(ServedTasks(folders), Options(**{"harness": FAKE, "deadlines": PATIENT, **options}), RunBudget(runs))
