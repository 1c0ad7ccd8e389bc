"""Serves a client on stdin and stdout, as the SDK does, and answers lines that are not messages.

The SDK drops such a line, and its client waits until its own time is up. Models do write half of a surrogate pair,
which JSON allows and the SDK's parser does not.
"""

import contextlib
import json
from typing import Any


async def serve(server: Any) -> None:
    import anyio
    from mcp.server.stdio import stdio_server
    from mcp.shared.message import SessionMessage

    async def pass_on() -> None:
        async with write:
            async for message in lines:
                is_unread = isinstance(message, Exception)
                await (answers.send(SessionMessage(_refusal(message))) if is_unread else write.send(message))

    about, (write, read) = server._lowlevel_server, anyio.create_memory_object_stream[Any]()
    async with stdio_server() as (lines, answers), anyio.create_task_group() as group:
        group.start_soon(pass_on)
        await about.run(read, answers, about.create_initialization_options())


def _refusal(problem: Any) -> Any:
    """With the number of the request, if it can be read."""
    from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError

    (first, *_), number = problem.errors(), None
    with contextlib.suppress(ValueError, TypeError, KeyError):
        number = json.loads(first["input"])["id"]
    number = number if type(number) in (int, str) else None
    return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=PARSE_ERROR, message=first["msg"]))
