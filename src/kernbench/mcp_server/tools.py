"""The tools of the MCP server: names, descriptions and arguments as a client sees them; desk.py does the work.

Only the SDK's ToolError keeps its words on the way to the client, so every problem becomes one. The SDK reads the
annotations of each function, so here they are objects, not strings. The SDK is imported only when it is asked for.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from harness.shared.errors import UserError
from kernbench import crash_report
from kernbench.mcp_server import source_writing, sweep_tool, task_answers, transfer_tool
from kernbench.mcp_server.answers import (
    DiffAnswer,
    LogAnswer,
    ProfileAnswer,
    RestoreAnswer,
    RunAnswer,
    StatusAnswer,
    SweepAnswer,
    TaskAnswer,
    TransferAnswer,
    WriteAnswer,
    compact,
)
from kernbench.mcp_server.desk import Desk
from kernbench.version import __version__

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from mcp.types import CallToolResult

INSTRUCTIONS = """\
kernbench checks and times kernels. Work in rounds: read_task, write_source, run with a hypothesis, then read the rows.
A row is right or not, and faster, same, slower or unclear with an interval; do not read more into unclear rows.
kernbench decides what is best, only after a second worker has confirmed it, and writes the log. When it says that the
work is stalled, profile, read the log, or change direction. Runs may be limited; status says what is left.
"""
TASK = "The task's name, as in status; may be omitted if there is only one."
REFERENCE = "An entry's number, best, last, or the start of a source hash"


async def answered(work: Awaitable[Any]) -> "CallToolResult":
    """The answer as a record and, for a model, as a line without what is empty; a ToolError if anything goes wrong."""
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import CallToolResult, TextContent

    try:
        answer = await work
    except UserError as problem:
        raise ToolError(str(problem)) from None
    except OSError as problem:
        place = f"{problem.filename}: " if problem.filename else ""
        raise ToolError(f"{place}{problem.strerror or problem}") from None
    except Exception as problem:
        raise ToolError(crash_report.sentence(problem)) from problem
    return CallToolResult(content=[TextContent(text=compact(answer))], structured_content=asdict(answer))


def make_server(desk: Desk) -> "MCPServer[Any]":
    from mcp.server.mcpserver import MCPServer

    server: MCPServer[Any] = MCPServer(
        "kernbench", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR", subscriptions=False
    )
    _add_reading(server, desk)
    _add_writing(server, desk)
    _add_running(server, desk)
    _add_trying(server, desk)
    return server


def _add_reading(server: "MCPServer[Any]", desk: Desk) -> None:
    from mcp.types import CallToolResult, ToolAnnotations
    from pydantic import Field

    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)

    @server.tool(annotations=reads)
    async def status() -> Annotated[CallToolResult, StatusAnswer]:
        """The tasks with their best and last result, what is running, and what is left of the budget."""
        return await answered(asyncio.to_thread(desk.status))

    @server.tool(annotations=reads)
    async def read_task(task: Annotated[str, Field(description=TASK)] = "") -> Annotated[CallToolResult, TaskAnswer]:
        """A task: its reference and cases, which say what is right, and the solution's files as they are now."""
        return await answered(desk.on_task(task, task_answers.about))

    @server.tool(annotations=reads)
    async def diff(
        task: Annotated[str, Field(description=TASK)] = "",
        old: Annotated[str, Field(description=f"{REFERENCE}, or now, the files as they are.")] = "best",
        new: Annotated[str, Field(description="The same.")] = "now",
    ) -> Annotated[CallToolResult, DiffAnswer]:
        """What changed between two sources, as a unified diff; from the best to the files as they are if not given."""
        return await answered(desk.on_task(task, task_answers.difference, old, new))

    @server.tool(annotations=reads)
    async def log(
        task: Annotated[str, Field(description=TASK)] = "",
        count: Annotated[int, Field(description="How many entries, the last ones.")] = task_answers.LONGEST_LOG,
    ) -> Annotated[CallToolResult, LogAnswer]:
        """What was tried before: each iteration with its hypothesis and outcome, and which is the best now."""
        return await answered(desk.on_task(task, task_answers.logged, count))


def _add_writing(server: "MCPServer[Any]", desk: Desk) -> None:
    from mcp.types import CallToolResult, ToolAnnotations
    from pydantic import Field

    writes = ToolAnnotations(destructive_hint=False, idempotent_hint=True, open_world_hint=False)

    @server.tool(annotations=writes)
    async def write_source(
        path: Annotated[str, Field(description="Relative to the task's folder, such as solution.py.")],
        text: Annotated[str, Field(description="The whole file.")],
        task: Annotated[str, Field(description=TASK)] = "",
    ) -> Annotated[CallToolResult, WriteAnswer]:
        """Write a file of the solution. The task's own files, links and anything outside its folder are refused."""
        return await answered(desk.on_task(task, source_writing.write, path, text))

    @server.tool(annotations=writes)
    async def restore(
        source: Annotated[str, Field(description=f"{REFERENCE}.")], task: Annotated[str, Field(description=TASK)] = ""
    ) -> Annotated[CallToolResult, RestoreAnswer]:
        """Make the solution's files those of an earlier source. The files as they were are kept."""
        return await answered(desk.on_task(task, task_answers.restored, source))


def _add_running(server: "MCPServer[Any]", desk: Desk) -> None:
    from mcp.server.mcpserver import Context
    from mcp.types import CallToolResult, ToolAnnotations
    from pydantic import Field

    runs = ToolAnnotations(destructive_hint=False, open_world_hint=False)

    @server.tool(annotations=runs)
    async def run(
        ctx: Context[Any, Any],
        hypothesis: Annotated[str, Field(description="What this change should do, and why; the log keeps it.")],
        task: Annotated[str, Field(description=TASK)] = "",
        next_step: Annotated[str, Field(description="What to try after this; the log keeps it.")] = "",
    ) -> Annotated[CallToolResult, RunAnswer]:
        """Check and time the solution on every case, confirm it if it would be best, and log it as an iteration."""
        return await answered(desk.run(task, hypothesis, next_step, ctx.report_progress))

    @server.tool(annotations=runs)
    async def profile(
        ctx: Context[Any, Any],
        case: Annotated[str, Field(description="A timed case's id, from read_task.")],
        task: Annotated[str, Field(description=TASK)] = "",
        against: Annotated[str, Field(description="Also profile baseline, best or an entry's number.")] = "",
    ) -> Annotated[CallToolResult, ProfileAnswer]:
        """What limits a case, by Nsight Compute: a sentence, the numbers behind it, what to try. Needs a GPU."""
        return await answered(desk.profile(task, case, against or None, ctx.report_progress))


def _add_trying(server: "MCPServer[Any]", desk: Desk) -> None:
    from mcp.server.mcpserver import Context
    from mcp.types import CallToolResult, ToolAnnotations
    from pydantic import Field

    runs = ToolAnnotations(destructive_hint=False, open_world_hint=False)

    @server.tool(annotations=runs)
    async def sweep(
        ctx: Context[Any, Any],
        sets: Annotated[list[str], Field(description="NAME=A,B,C for each constant; several: all combinations.")],
        task: Annotated[str, Field(description=TASK)] = "",
        sample: Annotated[int | None, Field(description="Try only so many of the combinations.")] = None,
        write: Annotated[bool, Field(description="Write the winner to the solution if it is faster.")] = False,
        hypothesis: Annotated[str, Field(description="For the winner's entry in the log.")] = "",
    ) -> Annotated[CallToolResult, SweepAnswer]:
        """Try values of constants in the solution: screen all, time the best in full, log the winner. Up to 5 runs."""
        work = sweep_tool.sweep(desk, task, sets, sample, write, hypothesis, ctx.report_progress)
        return await answered(work)

    @server.tool(annotations=runs)
    async def transfer(
        ctx: Context[Any, Any],
        model: Annotated[str, Field(description="A model's name, such as mini.")],
        task: Annotated[str, Field(description="Put in only this task; otherwise all that the model uses.")] = "",
        source: Annotated[
            Literal["best", "now"] | None, Field(description="Which source. Default: best, else the files now.")
        ] = None,
        sides: Annotated[list[str] | None, Field(description="Ways to run the step, such as eager, ours.")] = None,
        rounds: Annotated[int | None, Field(description="Steps of every side, 72 by default.")] = None,
    ) -> Annotated[CallToolResult, TransferAnswer]:
        """Time one step of a model as it is and with the kernels in it: whether they help there, and why not."""
        work = transfer_tool.transfer(desk, model, task, source, tuple(sides or ()), rounds, ctx.report_progress)
        return await answered(work)
