"""`port --verify`: the file in the other repository, as it is now, timed against the source that was ported.

Both get today's task. The run is in no log; what came of it is a `verified` line of runs.jsonl.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from harness.shared import format as fmt
from harness.shared.lines import encode
from harness.shared.results import CaseResult
from harness.shared.task import Task
from kernbench.events import Summary
from kernbench.log import stored_sources
from kernbench.log.runs.runs_file import RunsFile
from kernbench.task import snapshot
from kernbench.upstream.port import Port, PortError


@dataclass(frozen=True)
class Sources:
    """Two folders to run: the file of the other repository among the source's others, and the source."""

    theirs: Path
    ours: Path


def sources(task: Task, port: Port, place: Path) -> Sources:
    """Makes them below `place`."""
    their_file = port.old
    if their_file is None:
        raise PortError(f"{port.target} does not exist: port it first")
    own = {name: data for name, data in snapshot.read(Path(task.folder)).items() if name in stored_sources.frozen(task)}
    files = {name: data for name, data in snapshot.read(port.folder).items() if name not in own}
    file = port.source.relative_to(port.folder).as_posix()
    snapshot.store({**own, **files, file: their_file}, place / "theirs")
    snapshot.store({**own, **files}, place / "ours")
    return Sources(place / "theirs", place / "ours")


def verdict(port: Port, summary: Summary | None, rows: Mapping[str, CaseResult]) -> str:
    """Whether the file still has the win, in one sentence."""
    if summary is None or not summary.right:
        return f"{port.target.name} does not do what {port.name} does: see above"
    if summary.ratio is None:
        return f"{port.target.name} was checked, not timed: whether it is as fast as {port.name} is open"
    slower = [row.id for row in rows.values() if row.verdict == "slower"]
    over = f"{fmt.geomean(summary.ratio)} over {port.name}"
    if slower:
        return f"{port.target.name} has lost speed: {over}, slower in {fmt.plural(len(slower), 'row')}"
    return f"{port.target.name} has kept its speed: {over}, {summary.ratio.verdict}"


def note(state: Path, port: Port, summary: Summary | None, rows: Mapping[str, CaseResult]) -> None:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    found = {
        "geomean": summary.geomean if summary else None,
        "low": summary.low if summary else None,
        "high": summary.high if summary else None,
        "rows": {row.id: row.verdict or row.status for row in rows.values()},
    }
    line = encode("verified", at=now, source=port.source_hash, target=port.target.name, **found)
    RunsFile(state / "runs.jsonl").append(line)
