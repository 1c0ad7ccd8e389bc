"""From a key to a Profile: chooses the standby and the sides, and stores the result.

A Profiler keeps up to two standbys warm: one with the summary's metrics and, after the first summary, one with the full
set, so that a drilldown is warm too. Both start only while nothing is timed; a standby that is still importing when a
run begins is closed. `profile` returns the requested sides, the solution first; other sides come from stored profiles
if possible. If ncu cannot be used, `profile` raises NoProfile with the refusal and the compiler's facts.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from harness.shared.errors import UserError, Where
from harness.shared.lines import decode, to_dict
from harness.shared.results import RoofBound
from harness.shared.task import Task
from kernbench.diagnosis import occupancy
from kernbench.diagnosis.counters import Facts, Profile, TraceRow, read_csv
from kernbench.log import stored_sources
from kernbench.log.logbook import Logbook
from kernbench.ncu import drilldown, nsight, refusals
from kernbench.ncu import standby as ncu
from kernbench.ncu.profile_store import Profiles
from kernbench.ncu.refusals import Refusal
from kernbench.task.baseline import Baseline
from kernbench.task.snapshot import Source

SECONDS = 60.0
COMPILE_SECONDS = 180.0
"""If one of the sides uses torch.compile."""
MOST_FAILURES = 2
"""After this many standbys that died before they were ready, the next one starts only at a key."""


@dataclass(frozen=True)
class Side:
    """One function to profile: a file of a snapshot, or the reference, eager or compiled."""

    name: str
    """solution, baseline, best, or an iteration's number."""
    source: str
    """Key of stored profiles: a snapshot's hash, or a baseline's name and the task's hash."""
    kind: Literal["file", "eager", "compile"]
    folder: str
    file: str = "solution.py"

    def as_request(self) -> dict[str, str]:
        return {"name": self.name, "kind": self.kind, "source": self.folder, "file": self.file}


@dataclass(frozen=True)
class ProfileRequest:
    task: Task
    case: str
    sides: tuple[Side, ...]
    """The solution first."""
    device: str
    full: bool = False
    bound: RoofBound | None = None
    """What bounds the case, as its row says."""


class NoProfile(refusals.Refused):
    """Why there is no profile; `known` has the compiler's facts, if any."""

    def __init__(self, refusal: Refusal, where: Where | None = None, known: Profile | None = None) -> None:
        super().__init__(refusal)
        self.where, self.known = where, known


class Profiler:
    def __init__(
        self,
        state: Path,
        python: str,
        harness: Path | None = None,
        ncu_path: str | None = None,
        on_log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.kept = Profiles(state)
        self.refused: Refusal | None = None
        """Why ncu is no longer tried."""
        self._build = str(state / "build")
        self._python, self._harness, self._given, self._on_log = python, harness, ncu_path, on_log
        self._tool: Path | None = None
        self._version = ""
        self._standbys: dict[bool, ncu.Standby] = {}
        self._want_full = False
        self._failures = 0
        self._lock = asyncio.Lock()
        self._taking: asyncio.Task[Any] | None = None
        self._closed = False

    def is_warm(self, full: bool = False) -> bool:
        """Whether a standby is ready."""
        standby = self._standbys.get(full)
        return standby is not None and standby.ready

    @property
    def starting(self) -> bool:
        return any(standby.starting for standby in self._standbys.values())

    async def prepare(self, device: str) -> None:
        """Start the standbys that the next keys need. Call while nothing is timed; failures are silent."""
        with contextlib.suppress(UserError):
            await self._locate()
            for full in (False, *((True,) if self._want_full else ())):
                if full in self._standbys and not self._usable(full):
                    self._failures += 1
                if self._failures < MOST_FAILURES:
                    await self._ensure(device, full)

    async def make_way(self) -> None:
        """A run begins: close a standby that is still importing, since it would take a core from the run."""
        for full, standby in list(self._standbys.items()):
            if not standby.ready:
                await self._drop(full)

    async def profile(self, wanted: ProfileRequest) -> list[Profile]:
        """Profiles of all sides, in order. Call it holding the GPU slot, one call at a time."""
        if self._closed:
            raise NoProfile(refusals.refuse("task_left"))
        self._taking = asyncio.current_task()
        try:
            return await self._take(wanted)
        finally:
            self._taking = None

    async def _take(self, wanted: ProfileRequest) -> list[Profile]:
        try:
            await self._locate()
        except nsight.NoNcu as problem:
            raise NoProfile(problem.refusal, None, await self._facts(wanted)) from None
        standby = await self._claim(wanted)
        known = self._known(wanted, str(standby.gpu.get("name", "")))
        missing = [side for side in wanted.sides if side.name not in known]
        outcome = await self._ask(standby, wanted, missing)
        if outcome.problem is not None:
            await self._refuse(outcome, wanted)
        profiles = self._read(wanted, missing, outcome)
        self._want_full, self._failures = True, 0
        return [{**known, **profiles}[side.name] for side in wanted.sides]

    async def trace(self, wanted: ProfileRequest, path: Path) -> tuple[TraceRow, ...]:
        """Trace one call of the solution with torch's profiler; needs neither ncu nor a GPU."""
        standby = await ncu.Standby.start(self._setup(wanted.device, None), on_log=self._on_log)
        try:
            request = {**self._request(wanted, list(wanted.sides[:1])), "trace": str(path)}
            outcome = await standby.profile(request, SECONDS)
        finally:
            await standby.close()
        if outcome.problem is not None:
            raise NoProfile(outcome.problem, outcome.where)
        return tuple(decode(TraceRow, row) for row in outcome.trace)

    async def drilldown(self, profile: Profile) -> drilldown.Drilldown:
        """The sections, rules and hottest lines of a stored report."""
        if not profile.report or not Path(profile.report).is_file():
            return drilldown.Drilldown()
        with contextlib.suppress(UserError):
            await self._locate()
            snapshot = self.kept.folder.parent / "sources" / profile.source
            return await drilldown.read(self._tool or Path("ncu"), Path(profile.report), snapshot)
        return drilldown.Drilldown()

    async def close(self) -> None:
        """Close all standbys; a profile in progress is abandoned, e.g. when the user opens another task."""
        self._closed = True
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.wait([self._taking])
        for full in list(self._standbys):
            await self._drop(full)

    def _known(self, wanted: ProfileRequest, gpu: str) -> dict[str, Profile]:
        """Stored profiles of all sides except the solution, which is always profiled anew."""
        found = {}
        for side in wanted.sides[1:]:
            profile = self.kept.find(side.source, wanted.case, gpu, self._version)
            if profile is not None and profile.kernels:
                found[side.name] = replace(profile, side=side.name)
        return found

    async def _claim(self, wanted: ProfileRequest) -> ncu.Standby:
        """A standby for this request, ready or failed."""
        await self._ensure(wanted.device, wanted.full)
        standby = self._standbys.pop(wanted.full)
        try:
            await standby.wait_ready()
        except asyncio.CancelledError:  # no other reference to it is left
            await standby.close()
            raise
        return standby

    async def _ask(self, standby: ncu.Standby, wanted: ProfileRequest, sides: list[Side]) -> ncu.Outcome:
        try:
            outcome = await standby.profile(self._request(wanted, sides), _seconds(sides))
            if outcome.report is not None:  # closing the standby deletes its folder
                place = self.kept.folder / ".report.ncu-rep"
                place.parent.mkdir(parents=True, exist_ok=True)
                outcome = replace(outcome, report=Path(shutil.move(outcome.report, place)))
        finally:
            await standby.close()
        return outcome

    async def _refuse(self, outcome: ncu.Outcome, wanted: ProfileRequest) -> None:
        assert outcome.problem is not None
        if outcome.problem.code in refusals.LASTING:
            self.refused = outcome.problem
        known = _facts_only(wanted, outcome) if outcome.facts else None
        if known is None and outcome.where is None and outcome.problem.code != "exclusive":
            known = await self._facts(wanted)
        raise NoProfile(outcome.problem, outcome.where, known)

    def _read(self, wanted: ProfileRequest, sides: list[Side], outcome: ncu.Outcome) -> dict[str, Profile]:
        table = read_csv(outcome.text)
        parts = table.sides(len(sides))
        if parts is None or not parts[0]:
            why = refusals.refuse("mixed_sides" if parts is None else "no_kernel")
            raise NoProfile(why, None, _facts_only(wanted, outcome))
        found = {}
        for index, (side, kernels) in enumerate(zip(sides, parts, strict=True)):
            about = _about(wanted, side, outcome)
            profile = replace(about, kernels=kernels, ncu=self._version, full=wanted.full, skipped=table.skipped)
            found[side.name] = self.kept.keep(profile, outcome.report if index == 0 else None)
        return found

    async def _facts(self, wanted: ProfileRequest) -> Profile | None:
        """One call without ncu: the compiler's registers, spills and shared memory."""
        with contextlib.suppress(UserError):
            standby = await ncu.Standby.start(self._setup(wanted.device, None), on_log=self._on_log)
            try:
                outcome = await standby.profile(self._request(wanted, list(wanted.sides[:1])), SECONDS)
            finally:
                await standby.close()
            return _facts_only(wanted, outcome) if outcome.facts else None
        return None

    async def _locate(self) -> None:
        if self.refused is not None:
            raise nsight.NoNcu(self.refused)
        if self._tool is None:
            found = nsight.find(self._given)
            if not nsight.permitted():
                self.refused = refusals.refuse("permission")
                raise nsight.NoNcu(self.refused)
            self._version, self._tool = await nsight.version(found), found

    async def _ensure(self, device: str, full: bool) -> None:
        """Make sure that a standby is ready or starting."""
        async with self._lock:
            if not self._usable(full):
                await self._drop(full)
                setup = self._setup(device, self._tool)
                self._standbys[full] = await ncu.Standby.start(setup, full, self._on_log)

    async def _drop(self, full: bool) -> None:
        standby = self._standbys.pop(full, None)
        if standby is not None:
            await standby.close()

    def _usable(self, full: bool) -> bool:
        standby = self._standbys.get(full)
        return standby is not None and (standby.ready or standby.starting)

    def _setup(self, device: str, tool: Path | None) -> ncu.Setup:
        device = "cuda:0" if device in ("auto", "cuda") else device
        setup = ncu.Setup(self._python, device, tool)
        return setup if self._harness is None else replace(setup, harness=self._harness)

    def _request(self, wanted: ProfileRequest, sides: list[Side]) -> dict[str, Any]:
        return {
            "task": to_dict(wanted.task),
            "case": wanted.case,
            "build": self._build,
            "sides": [side.as_request() for side in sides],
        }


def sides(task: Task, source: Source, against: str | None, baseline: Baseline, logbook: Logbook) -> tuple[Side, ...]:
    """The solution and what to compare it with: `baseline`, `best`, an iteration, a hash, or nothing."""
    solution = Side("solution", source.sha, "file", str(source.folder))
    if against is None:
        return (solution,)
    if against == "baseline" and baseline.name != "best":
        return solution, _baseline_side(task, source, baseline)
    wanted = "best" if against == "baseline" else against
    point = stored_sources.find(task, logbook.journal, wanted, logbook.environment, logbook.l2)
    if point.summary is None:
        raise NoProfile(refusals.refuse("same_source", against=against))
    return solution, Side(against, point.summary.source, "file", str(point.folder))


def _baseline_side(task: Task, source: Source, baseline: Baseline) -> Side:
    key = f"{baseline.name}@{task.hash}"
    if baseline.name == "eager":
        return Side("baseline", key, "eager", str(source.folder))
    if baseline.name == "compile":
        return Side("baseline", key, "compile", str(source.folder))
    if baseline.file is not None:
        return Side("baseline", key, "file", str(baseline.file.parent), baseline.file.name)
    return Side("baseline", key, "file", str(source.folder), baseline.name)


def _seconds(sides: list[Side]) -> float:
    return COMPILE_SECONDS if any(side.kind == "compile" for side in sides) else SECONDS


def _about(wanted: ProfileRequest, side: Side, outcome: ncu.Outcome) -> Profile:
    """A profile without its counters."""
    said = outcome.facts.get(side.name, {})
    return Profile(
        side=side.name,
        case=wanted.case,
        label=wanted.task.case(wanted.case).label,
        source=side.source,
        gpu=str(outcome.gpu.get("name", "")),
        at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        facts=tuple(_fact(kernel, outcome.gpu) for kernel in said.get("kernels", ())),
        needed_bytes=said.get("needed_bytes"),
        bound=wanted.bound,
    )


def _facts_only(wanted: ProfileRequest, outcome: ncu.Outcome) -> Profile:
    return _about(wanted, wanted.sides[0], outcome)


def _fact(kernel: dict[str, Any], gpu: dict[str, Any]) -> Facts:
    names = ("name", "registers", "spills", "shared_bytes", "warps", "stages")
    fact = Facts(**{name: kernel.get(name) for name in names})  # type: ignore[arg-type]
    if fact.registers is None or fact.shared_bytes is None or fact.warps is None or not gpu.get("shared_bytes"):
        return fact
    sm = occupancy.limits(tuple(gpu["capability"]), gpu["registers"], gpu["shared_bytes"], gpu["threads"])
    found = occupancy.theoretical(sm, fact.registers, fact.shared_bytes, fact.warps)
    return fact if found is None else replace(fact, occupancy_pct=found.pct, limit=found.limit)


def as_json(profile: Profile, diagnosis: Any) -> dict[str, Any]:
    """One object for `profile --json`."""
    return {**profile.as_dict(), "diagnosis": asdict(diagnosis)}
