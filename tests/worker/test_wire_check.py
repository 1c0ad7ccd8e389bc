"""A worker's lines against its request: an impossible one ends the worker with a sentence, an honest one never."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.shared import taskfile
from kernbench.engine.jobs import Options
from kernbench.engine.session import Session
from kernbench.events import BuildFailed, CaseLanded, LogLine, Summary
from kernbench.worker.wire_check import GARBLED, Refused, WireCheck
from tests.harness.child import write_task
from tests.sessions import PATIENT, Watched, gone, reached, write

Line = dict[str, Any]
RATIO = {"speedup": 2.0, "low": 1.9, "high": 2.1, "verdict": "faster"}
SAMPLES = {"baseline": [100.0] * 8, "best": [60.0] * 8, "solution": [50.0] * 8}
ROW = {
    "id": "a", "status": "ok", "clock": "wall", "baseline_us": 100.0, "solution_us": 50.0, "best_us": 60.0, **RATIO,
    "vs_best": {"speedup": 1.2, "low": 1.1, "high": 1.3, "verdict": "faster"}, "blocks": 8, "dropped": 0, "checked": 1,
    "samples": SAMPLES, "wall": {"baseline_us": 100.0, "solution_us": 50.0, "speedup": 2.0},
}  # fmt: skip
COLD = {"name": "throttled", "help": "let it cool down", "red": False, "code": "throttled"}
STRAY = {"name": "other stream", "help": "wait for it", "red": True, "code": "other_stream"}
CASES = [{"id": name, "kind": "case"} for name in ("a", "b", "z")] + [{"id": "g", "kind": "check"}]
RUN: Line = {"request": "run", "run": "r", "cases": ["a", "b", "g"], "task": {"cases": CASES}, "controls": True,
             "best": "/best", "floors": {}}  # fmt: skip
FLOOR: Line = {**RUN, "request": "floor", "cases": ["a"]}
STARTED: Line = {"event": "started", "environment": {"device": "cpu"}}
STEP: Line = {"event": "step", "step": "check", "case": "a", "index": 0, "count": 3}
FAILED: Line = {"event": "failed", "status": "build_error", "message": "no", "where": None, "traceback": ""}
WROTE: Line = {"event": "wrote", "files": ["x.py"], "task_files": [], "unseen": False}
FINISHED: Line = {"event": "finished"}
WRONG: Line = {"event": "case", "result": {"id": "a", "status": "wrong", "detail": "no", "checked": 1}}
GRID: Line = {"event": "case", "result": {"id": "g", "status": "ok", "checked": 2}}


def row(name: str = "a", **fields: Any) -> Line:
    return {"event": "case", "result": {**ROW, "id": name, **fields}}


def said(lines: list[Line], request: Line = RUN, passed_s: float = 1.0, asked: tuple[Line, ...] = ()) -> str:
    """What the check says about lines that arrive so long after the request; each has a true time unless it brings
    its own."""
    times = iter([0.0])
    wire = WireCheck(7, lambda: next(times, passed_s))
    numbered = [{"event": "hello"}, {"event": "ready"}, {"event": "warm"}]
    wire_lines = [*numbered, *({"run": "r", "at_ms": passed_s * 1000, **line} for line in lines)]
    for line in (request, *asked):
        wire.asked(line)
    try:
        for number, line in enumerate(wire_lines):
            wire.check({"pid": 7, "seq": number + 1, **line})
    except Refused as problem:
        return str(problem)
    return ""


OTHER = {"name": "fast.py", "us": 40.0, "speedup": 0.8, "low": 0.79, "high": 0.81}
COMPARING: Line = {**RUN, "task": {**RUN["task"], "compare": ["fast.py"]}}
CANCEL, HOLD = {"request": "cancel", "run": "r"}, {"request": "hold", "run": "r"}
COMPILING = {**dict.fromkeys(("baseline_us", *RATIO)), "reason": "baseline_compiling", "detail": "baseline: compiling"}
ALONE = {name: SAMPLES[name] for name in ("best", "solution")}
HONEST: dict[str, tuple[list[Line], dict[str, Any]]] = {
    "a whole run": (
        [STARTED, {**STEP, "step": "load", "case": None}, {**STEP, "case": "z"}, {"event": "controls", "passed": True},
         STEP, {"event": "built", "case": "a", "ms": 3.0}, row(), row("b"), GRID, row(checked=2),
         row("b", checked=2, findings=[COLD]), {"event": "finding", "finding": COLD}, FINISHED], {},
    ),
    "a file that a thread of the run before writes": ([WROTE], {}),
    "a source that does not build": ([STARTED, FAILED], {}),
    "an error in the harness before the start": ([{**FAILED, "status": "bad_task"}], {}),
    "an error while it tidies up": ([STARTED, WRONG, row("b"), GRID, row("b", checked=2), FINISHED, FAILED], {}),
    "a baseline that was compiling": (
        [STARTED, row(samples=ALONE, **COMPILING), row("b"), GRID, row(), row(checked=2)], {}
    ),
    "a row with its share of equal values": ([STARTED, row(exact=0.5)], {}),
    "a task with a degenerate problem": ([STARTED, {"event": "controls", "passed": False}, row()], {}),
    "a case that does not fit": ([STARTED, {"event": "case", "result": {"id": "a", "status": "skipped"}}], {}),
    "a slow check that fails": ([STARTED, row(), {**WRONG, "result": {**WRONG["result"], "checked": 2}}], {}),
    "a cancelled run": ([STARTED, {"event": "cancelled"}], {"asked": (CANCEL,)}),
    "a run that pauses twice": (
        [STARTED, row(), {"event": "held"}, row("b"), {"event": "held"}], {"asked": (HOLD, HOLD)}
    ),
    "samples that overlap on a GPU": (
        [STARTED, row(clock="device", findings=[STRAY], samples={**SAMPLES, "solution": [50.0] * 7 + [9e5]})],
        {"passed_s": 0.002},
    ),
    "sides that overlap on a GPU": ([STARTED, row(clock="device")], {"passed_s": 0.0008}),
    "a side for comparison, after the slow checks": (
        [STARTED, row(), row("b"), GRID, row(checked=2, others=[OTHER])], {"request": COMPARING}
    ),
    "a floor": ([{**STEP, "count": 1}, {"event": "floor", "case": "a", "floor": 0.002}, FINISHED], {"request": FLOOR}),
    "times of one millisecond's digits": ([{**STARTED, "at_ms": 1000.0004}], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_line_is_taken(name: str) -> None:
    lines, more = HONEST[name]
    assert said(lines, **more) == ""


REFUSED: dict[str, tuple[list[Line], dict[str, Any]]] = {
    GARBLED: ([{**STARTED, "seq": 9}], {}),
    "it sent an unknown event (zork)": ([{"event": "zork"}], {}),
    "it reported its start out of order (ready)": ([{"event": "ready"}], {}),
    "it answered a run that was not asked for (other)": ([{**STARTED, "run": "other"}], {}),
    "it sent an event of another request (floor)": ([STARTED, {"event": "floor", "case": "a", "floor": 0.1}], {}),
    "it sent an event of another request (case)": ([row()], {"request": FLOOR}),
    "it sent an event before the start (case)": ([row()], {}),
    "it sent an event twice (started)": ([STARTED, STARTED], {}),
    "it sent an event after the end of the run (case)": ([STARTED, FAILED, row()], {}),
    "its times ran backwards": ([{**STARTED, "at_ms": 5}, {**STEP, "at_ms": 4}], {}),
    "it reported a time that has not passed yet": ([{**STARTED, "at_ms": 1002}], {}),
    "it sent a malformed line (started)": ([{"event": "started", "environment": {"device": 5}}], {}),
    "it sent a malformed line (step)": ([STARTED, {**STEP, "index": 4}], {}),
    "it sent a malformed line (finding)": ([STARTED, {"event": "finding", "finding": "x"}], {}),
    "it reported a finding with another meaning (throttled)": ([STARTED, row(findings=[{**COLD, "red": True}])], {}),
    "it sent a malformed line (failed)": ([STARTED, {**FAILED, "status": "ok"}], {}),
    "it sent a malformed line (wrote)": ([STARTED, {**WROTE, "task_files": [3]}], {}),
    "it sent a malformed line (loaded)": ([STARTED, {"event": "loaded", "compiler": 3}], {}),
    "it sent a malformed line (case)": ([STARTED, row(solution_us=float("nan"))], {}),
    "it sent a malformed line (floor)": ([{"event": "floor", "case": "a", "floor": -1}], {"request": FLOOR}),
    "it reported a floor that was not asked for (b)": (
        [{"event": "floor", "case": "b", "floor": 0.1}], {"request": FLOOR}
    ),
    "it reported controls that were not asked for": (
        [STARTED, {"event": "controls", "passed": True}], {"request": {**RUN, "controls": False}}
    ),
    "it cancelled a run by itself": ([STARTED, {"event": "cancelled"}], {}),
    "it paused without being asked to": ([STARTED, row(), {"event": "held"}], {}),
    "it reported a step of a case that was not asked for (x_19)": ([STARTED, {**STEP, "case": "x_19"}], {}),
    "it reported a step of a case that was not asked for (z)": (
        [STARTED, {"event": "controls", "passed": True}, {**STEP, "case": "z"}], {}
    ),
    "it built a case that was not asked for (z)": ([STARTED, {"event": "built", "case": "z", "ms": 1.0}], {}),
    "it reported a row that was not asked for (x_19)": ([STARTED, row("x_19")], {}),
    "it reported the row of b out of order": ([STARTED, row("b")], {}),
    "it reported the end of the run before the row of g": ([STARTED, row(), row("b"), FINISHED], {}),
    "it reported the end of the run before the last check of a": ([STARTED, row(), row("b"), GRID, FINISHED], {}),
    "it reported the end of the run before the row of a": ([FINISHED], {"request": FLOOR}),
    "it changed the row of a after it was done": ([STARTED, WRONG, row()], {}),
    "it reported an impossible share of equal values for a": ([STARTED, row(exact=1.01)], {}),
    "it reported times for g, which was not timed": ([STARTED, row(), row("b"), row("g")], {}),
    "it reported a row of a without all of its times": ([STARTED, row(samples=ALONE)], {}),
    "it reported a with too few or too many samples": ([STARTED, row(blocks=9)], {}),
    "it reported a time of a that its samples contradict": ([STARTED, row(solution_us=5.0)], {}),
    "it reported a speedup of a that nothing was measured for": ([STARTED, row()], {"request": {**RUN, "best": None}}),
    "it reported an impossible speedup of a": ([STARTED, row(speedup=-2.0)], {}),
    "it reported a side of a that the task does not name": ([STARTED, row(others=[OTHER])], {}),
    "it reported more time for a than has passed": ([STARTED, row()], {"passed_s": 0.0005}),
    "it reported more time for b than has passed": ([STARTED, row(), row("b")], {"passed_s": 0.002}),
}  # fmt: skip


@pytest.mark.parametrize("sentence", REFUSED)
def test_an_impossible_line_is_refused_with_a_sentence(sentence: str) -> None:
    lines, more = REFUSED[sentence]
    assert said(lines, **more) == sentence


@pytest.mark.parametrize(
    "fields",
    [
        {"low": 2.1},
        {"high": 1.9},
        {"verdict": "slower"},
        {"speedup": 20.0, "high": 21.0},
        {"vs_best": {**RATIO, "low": 0.0}},
    ],
)
def test_a_speedup_must_fit_its_interval_its_verdict_and_its_samples(fields: Line) -> None:
    assert said([STARTED, row(**fields)]) == "it reported an impossible speedup of a"


@pytest.mark.parametrize(
    "fields", [{"solution_us": 49.9995}, {"findings": []}, {"checked": 1}, {"samples": {**SAMPLES, "best": [61.0] * 8}}]
)
def test_the_slow_checks_change_no_time_and_drop_no_finding(fields: Line) -> None:
    again = row(**{"checked": 2, "findings": [COLD], **fields})
    assert said([STARTED, row(findings=[COLD]), again]) == "it changed the row of a after it was done"


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        ([OTHER, OTHER], "it reported a side of a that the task does not name"),
        ([{**OTHER, "low": 0.9}], "it reported an impossible speedup of a"),
        ([{**OTHER, "us": 0.0}], "it reported an impossible speedup of a"),
    ],
)
def test_sides_for_comparison_are_named_once_and_possible(others: list[Line], sentence: str) -> None:
    assert said([STARTED, row(others=others)], COMPARING) == sentence


def test_late_lines_of_an_earlier_run_are_not_judged() -> None:
    wire = WireCheck(7)
    for name in ("first", "second"):
        wire.asked({**RUN, "run": name})
    wire.check({"event": "hello", "pid": 7, "seq": 1})
    wire.check({"event": "failed", "run": "first", "pid": 7, "seq": 2})


LONG = {"baseline": [0.02, 9e9] * 4, "solution": [0.01] * 8}
BRIEF = {"baseline": [0.02] * 8, "solution": [0.01] * 8}
SHORT: Line = {"baseline_us": 0.02, "solution_us": 0.01, "best_us": None, "vs_best": None}
LIES: dict[str, tuple[str, Line]] = {
    "it sent an event before the start (case)": ("first", row()),
    "it sent an event twice (started)": ("load", STARTED),
    "it reported a time that has not passed yet": ("load", {**STEP, "at_ms": 1e9}),
    "it reported its start out of order (ready)": ("load", {"event": "ready", "environment": {}}),
    "it sent an unknown event (compiling)": ("load", {"event": "compiling", "compiler": "nvcc"}),
    "it reported the end of the run before the row of a": ("load", FINISHED),
    "it paused without being asked to": ("row", {"event": "held"}),
    "it reported a row that was not asked for (x_19)": ("row", row("x_19")),
    "it sent a malformed line (case)": ("row", {"event": "case", "result": {"id": "a", "status": "fine"}}),
    "it reported more time for a than has passed": ("row", row(**SHORT, samples=LONG)),
    "it changed the row of a after it was done": ("row", row(**SHORT, samples=BRIEF, checked=2)),
}


async def answered(it: Watched, folder: Path, lie: tuple[str, Line] | None) -> tuple[object, str]:
    """How a run ends if its worker tells this lie, and what the failure says."""
    (folder / "lies.json").write_text(json.dumps({lie[0]: [lie[1]]} if lie else {}))
    before = len(it.events)
    outcome = await it.session.run_once(iteration=False)
    rows = [event.result for event in it.events[before:] if isinstance(event, CaseLanded)]
    crashed = [row.detail or "" for row in rows if row.status == "crashed"]
    return outcome, outcome.message if isinstance(outcome, BuildFailed) else "".join(crashed)


@pytest.mark.anyio
@pytest.mark.parametrize("sentence", LIES)
async def test_a_refused_line_ends_the_worker_and_the_next_run_is_answered(
    watched: Callable[..., Watched], folder: Path, sentence: str
) -> None:
    it = watched(spares=False)
    write(folder, "TIME_US = 50.0")
    first, _ = await answered(it, folder, None)
    assert isinstance(first, Summary)
    (pid,) = it.session.supervisor.pids
    _, words = await answered(it, folder, LIES[sentence])
    assert words.startswith(f"the worker was stopped: {sentence} while ")
    assert gone(pid)
    last, words = await answered(it, folder, None)
    assert isinstance(last, Summary)
    assert (last.right, words) == (True, "")


@pytest.mark.anyio
async def test_a_line_after_the_end_stops_the_idle_worker_and_the_log_says_so(
    watched: Callable[..., Watched], folder: Path
) -> None:
    it = watched(spares=False)
    outcome, _ = await answered(it, folder, ("end", row("b")))
    assert isinstance(outcome, Summary)
    stopped = LogLine("the worker was stopped: it sent an event after the end of the run (case)")
    await it.until(lambda: stopped in it.events)
    await reached(lambda: not it.session.supervisor.pids)
    outcome, _ = await answered(it, folder, None)
    assert isinstance(outcome, Summary)


@pytest.mark.anyio
async def test_no_line_of_the_real_worker_is_refused(tmp_path: Path) -> None:
    """Over a session: controls, a first best, a source compared with it, wrong ones, one that does not load."""
    folder = write_task(tmp_path)
    session = Session(taskfile.load(folder), folder / ".kernbench", Options(deadlines=PATIENT, spares=False))
    it = Watched(session)
    try:
        pids = set()
        for text in ("return x * 2", "return torch.mul(x, 2)", "return x * 3", "raise ValueError"):
            (folder / "solution.py").write_text(f"import torch\ndef scale(x, factor):\n    {text}\n")
            assert isinstance(await session.run_once(iteration=False), Summary)
            pids.update(session.supervisor.pids)
        (folder / "solution.py").write_text("import nothing_at_all\n")
        assert isinstance(await session.run_once(iteration=False), BuildFailed)
        assert pids == set(session.supervisor.pids)
        assert len(pids) == 1
    finally:
        await session.close()
    assert not [event for event in it.of(LogLine) if "was stopped" in event.text]  # type: ignore[attr-defined]
