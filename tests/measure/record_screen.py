"""Records the workbench at work, for a picture: python -m tests.measure.record_screen TASK_FOLDER OUT.jsonl [CASE]

Opens the task as `kernbench TASK_FOLDER` does: the session runs its source and confirms it. On a GPU with ncu it then
profiles a case as the key `n` does: the one with the id CASE, or the row with the lowest speedup. OUT.jsonl gets all
that the main screen would have shown meanwhile, and nothing that identifies this machine; draw_screen.py draws it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from harness.shared import taskfile
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from kernbench.engine.session import Session
from kernbench.events import (
    BuildFailed,
    Confirmed,
    Event,
    ProfileFailed,
    ProfileReady,
    ProfileStarted,
    RunFinished,
)
from kernbench.machine.telemetry import MachineReader, Sample, Telemetry
from kernbench.tui.actions.editor import solution
from kernbench.tui.panes import trajectory
from tests.measure.draw_screen import Opened, Tagged, name_of

RUN_SECONDS, CONFIRMATION_SECONDS, REST_SECONDS = 300.0, 120.0, 2.0
NEWEST = 40
"""Entries of the log that are kept."""
LEFT_OUT = {CaseResult: {"samples", "ledger"}, ProfileReady: {"diagnosis"}, Environment: {"host", "uuid"}}
"""Fields that the main screen does not show, that draw_screen.py makes anew, or that name this machine."""

_T = TypeVar("_T")


class Recorder:
    """What a session says and what the machine's meters show, in order."""

    def __init__(self) -> None:
        self.said: list[Event | Sample] = []

    def take(self, sample: Sample) -> None:
        """Called in the telemetry's thread. Drops the GPUs' uuids: draw_screen.py finds the GPU in use by its index."""
        gpus = tuple(dataclasses.replace(gpu, uuid="") for gpu in sample.gpus)
        self.said.append(dataclasses.replace(sample, gpus=gpus))

    def newest(self, kind: type[_T]) -> _T | None:
        return next((said for said in reversed(self.said) if isinstance(said, kind)), None)


async def wait(seconds: float, holds: Callable[[], object]) -> None:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        await asyncio.sleep(0.05)


async def work(session: Session, recorder: Recorder, case: str | None) -> None:
    """The run of opening the task, its confirmation and a profile."""
    await session.start()
    await wait(RUN_SECONDS, lambda: session.problem or recorder.newest(RunFinished) or recorder.newest(BuildFailed))
    finished = recorder.newest(RunFinished)
    if finished is None:
        raise SystemExit(f"no run finished: {session.problem or recorder.newest(BuildFailed)}")
    if finished.summary.is_unsettled:
        await wait(CONFIRMATION_SECONDS, lambda: recorder.newest(Confirmed))
        if recorder.newest(Confirmed) is None:
            print(f"recorded without a confirmation: there was none within {CONFIRMATION_SECONDS:.0f} s")
    worst = finished.summary.worst
    if session.environment and session.environment.device.startswith("cuda") and (case or worst):
        answer = await session.profile(case or (worst.id if worst else ""))
        if isinstance(answer, ProfileFailed):
            print(f"recorded without a profile: {answer.message}")
            recorder.said[:] = [said for said in recorder.said if not isinstance(said, ProfileStarted | ProfileFailed)]
    await asyncio.sleep(REST_SECONDS)  # the end of a confirmation is said after its result


async def record(session: Session, case: str | None = None) -> str:
    """Opens the session, closes it, and returns the recording."""
    recorder, folder = Recorder(), Path(session.task.folder)
    session.archive.read()
    before, results, profiles = session.last_summary(), session.last_results(), session.archive.profiles()
    session.selected = session.task.cases[0].id
    session.listen(recorder.said.append)
    telemetry = Telemetry(MachineReader(), recorder.take)
    telemetry.start()
    try:
        await work(session, recorder, case)
        said, entries = tuple(recorder.said), session.logbook.iterations()
        newest, compared = entries[-NEWEST:], trajectory.comparable(entries)[-NEWEST:]
        best = session.logbook.best_now()
        opened = Opened(
            now=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            task=session.task,
            baseline=session.baseline,
            solution=solution(folder),
            before=tagged(before) if before else None,
            results=tuple(results.values()),
            entries=tuple(map(tagged, newest)),
            rows={name_of(entry): tuple(map(bare, session.archive.rows(entry).values())) for entry in compared},
            series=entries.series,
            best=tagged(best) if best else None,
            tried={name: tuple(lines) for name, lines in (await session.archive.tried()).items()},
            profiles=tuple(map(tagged, profiles.values())),
        )
    finally:
        telemetry.stop()
        await session.close()
    lines = [json.dumps(tagged(item), ensure_ascii=False, separators=(",", ":")) for item in (opened, *said)]
    return "\n".join(lines).replace(str(folder), f"/home/dev/kernels/{folder.name}") + "\n"


def bare(row: CaseResult) -> CaseResult:
    """What the heat map shows of a row."""
    return CaseResult(row.id, row.status, speedup=row.speedup)


def tagged(record: Any) -> Tagged:
    return {"event": type(record).__name__, **plain(record)}


def plain(value: Any) -> Any:
    """As JSON data, without fields at their default, with six digits of a number."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        left_out = LEFT_OUT.get(type(value), ())
        fields = [(item, getattr(value, item.name)) for item in dataclasses.fields(value) if item.name not in left_out]
        kept = [(item, found) for item, found in fields if found != item.default]
        return {item.metadata.get("key", item.name): plain(found) for item, found in kept}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


async def main(folder: Path, out: Path, case: str | None = None) -> None:
    out.write_text(await record(Session(taskfile.load(folder), folder / ".kernbench"), case), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]), *sys.argv[3:4]))
