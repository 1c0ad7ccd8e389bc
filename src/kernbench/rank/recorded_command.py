"""Runs a command with the recorder in each of its Python processes, and reads what they wrote.

The recorder gets in through a folder on PYTHONPATH, so processes that the command spawns are recorded too.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.shared import format as fmt
from harness.shared.errors import UserError
from kernbench.programs import echoed_run, injected
from kernbench.rank import chrome_trace
from kernbench.rank.python_frames import Names
from kernbench.rank.recording import Recording
from kernbench.worker.process import exit_text

RECORDER = "injection.stack_recorder"
NOT_LOADED = (
    "no Python of the command imported torch with the recorder in it; Python's -I and -E switch it off, and so does a"
    " command that clears PYTHONPATH"
)
NO_MODULE = "the command called no torch.nn.Module, so nothing was recorded; --whole starts with the import of torch"
KILLED = "the command ended before its recording was written; a shorter --for writes it earlier"


@dataclass(frozen=True)
class RecordOptions:
    for_s: float
    skip_s: float = 0.0
    whole: bool = False
    stop: bool = False
    """End the command once its recording is written."""


async def record(
    command: Sequence[str], options: RecordOptions, echo: Callable[[bytes], None]
) -> tuple[Recording, Names]:
    """Runs the command again if it called no module, this time from the import of torch on."""
    folder = Path(tempfile.mkdtemp(prefix="kernbench-rank-"))
    given = {"for_s": options.for_s, "skip_s": options.skip_s, "whole": options.whole}
    try:
        inside, out = folder / "inside", folder / "out"
        inside.mkdir()
        out.mkdir()
        injected.write(inside, RECORDER, {"folder": str(out), **given})
        variables = injected.variables(inside, os.environ)
        code = await echoed_run.run(command, variables, echo, lambda: options.stop and _is_written(out))
        if code or options.whole or options.skip_s or {state["state"] for state in states(out)} != {"imported"}:
            return collected(out, command, code)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    echo(b"kernbench: the command called no torch.nn.Module; running it again with --whole\n")
    return await record(command, replace(options, whole=True), echo)


def _is_written(folder: Path) -> bool:
    found = [state["state"] for state in states(folder)]
    return "recording" not in found and bool({"written", "failed"} & set(found))


def states(folder: Path) -> list[dict[str, Any]]:
    """What every process said last."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def collected(folder: Path, command: Sequence[str], code: int | None) -> tuple[Recording, Names]:
    """All processes together; a sentence if there is nothing."""
    said = states(folder)
    traces = sorted(folder.glob("*.trace"))
    ended = f"the command {exit_text(code)}" if code else ""
    if not traces:
        raise UserError(f"{ended} before anything was recorded" if ended else why_nothing(said))
    recordings = [chrome_trace.read(trace) for trace in traces]
    whole = next((one for one in recordings if one.on_gpu), recordings[0])
    for other in recordings:
        if other is not whole and other.on_gpu == whole.on_gpu:
            whole.merge(other)
    whole.source = fmt.plural(len(traces), "recorded process", "recorded processes")
    whole.unknown += [f"{ended} after its recording."] if ended else []
    whole.unknown += [f"One process {state['note']}." for state in said if state["note"]]
    lost = [state for state in said if state["state"] in ("recording", "failed")]
    if lost:
        whole.unknown.append(f"{fmt.plural(len(lost), 'process', 'processes')} could not be recorded: {why_lost(lost)}")
    written = [state for state in said if state["state"] == "written"]
    path = dict.fromkeys(Path(place) for state in written for place in state["path"])
    return whole, Names([*path], next((state["main"] for state in written), ""))


def why_nothing(said: Sequence[dict[str, Any]]) -> str:
    if not said:
        return NOT_LOADED
    lost = [state for state in said if state["state"] in ("recording", "failed")]
    return why_lost(lost) if lost else NO_MODULE


def why_lost(lost: Sequence[dict[str, Any]]) -> str:
    problem = next((state["problem"] for state in lost if state["problem"]), "")
    return f"torch.profiler failed in it: {problem}" if problem else KILLED
