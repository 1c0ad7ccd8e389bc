"""A client connected to a desk in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest


@pytest.fixture
async def opens() -> AsyncIterator[Callable[[Any], Awaitable[Any]]]:
    """Connects a client to a desk, with the JSON-RPC messages that a pipe would carry."""
    from mcp import Client

    from kernbench.mcp_server.tools import make_server
    from tests.mcp_server.scripted import Script

    async with AsyncExitStack() as stack:

        async def connect(desk: Any) -> Script:
            stack.push_async_callback(desk.close)
            return Script(await stack.enter_async_context(Client(make_server(desk), mode="legacy")))

        yield connect
