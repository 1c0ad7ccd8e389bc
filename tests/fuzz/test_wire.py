"""Whatever the worker's lines say: a run ends, and what it shows and logs can be shown and logged."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.shared import taskfile
from harness.shared.lines import UNREADABLE, decode, decode_checked, encode
from harness.shared.results import CaseResult, Finding
from harness.shared.run_request import Environment, RunRequest
from harness.shared.task import Task
from kernbench import render, report
from kernbench.engine.conversation.run_progress import RunProgress
from kernbench.events import BuildFailed, CaseLanded, Progress, RunStarted, Summary
from kernbench.log.runs import comparison
from kernbench.worker.process import WorkerLost
from tests.fuzz.user_files import VALUES, fuzzed, nearly
from tests.sessions import PATIENT, TASK, Watched

RUN = "20261114T000000-abc"
RATIO = {"speedup": 2.0, "low": 1.9, "high": 2.1, "verdict": "faster"}
ERROR = {"max": 1e-7, "baseline_max": 1e-7, "bound": 1e-5, "output": "o", "index": [1, 2], "got": 1.0, "expected": 1.0}
INPUT = {"name": "x", "shape": [3], "strides": [1], "dtype": "float32"}
FINDING = {"name": "events", "help": "look", "red": True, "code": "event_pairs"}
ROW = {
    "id": "a", "status": "ok", "clock": "wall", "baseline_us": 100.0, "solution_us": 50.0, "best_us": 60.0, **RATIO,
    "vs_best": RATIO, "wall": {"baseline_us": 1.0, "solution_us": 2.0, "speedup": 0.5}, "light": 0.5, "error": ERROR,
    "inputs": [INPUT], "kernels": 1, "blocks": 8, "dropped": 0, "findings": [FINDING], "checked": 2, "floor": 0.01,
    "ledger": [{"name": "k", "stream": 7, "us": 1.0}], "samples": {"solution": [1.0, 2.0]}, "detail": "words",
    "where": {"file": "solution.py", "line": 3, "text": "x"}, "traceback": "...", "reason": None,
}  # fmt: skip
MESSAGES: list[dict[str, Any]] = [
    {"event": "case", "result": ROW},
    {"event": "case", "result": {"id": "b", "status": "wrong", "detail": "out differs", "checked": 2}},
    {"event": "step", "step": "check", "case": "a", "index": 0, "count": 3},
    {"event": "started", "environment": {"device": "cpu", "device_name": "x", "threads": 1, "l2": "", "sm_mhz": None}},
    {"event": "finding", "finding": FINDING},
    {"event": "failed", "status": "build_error", "message": "no", "where": {"file": "a", "line": 1}, "traceback": "t"},
    {"event": "controls", "passed": True},
    {"event": "cancelled"},
    {"event": "compiling", "compiler": "nvcc"},
]


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder = tmp_path_factory.mktemp("toy")
    (folder / "task.toml").write_text(TASK)
    (folder / "reference.py").write_text("def make_inputs(case, seed, device): ...\ndef toy(): ...\n")
    (folder / "solution.py").write_text("def toy(): ...\n")
    return taskfile.load(folder)


LINES = st.lists(st.one_of(*map(nearly, MESSAGES)), min_size=1, max_size=4)


@fuzzed(150)
@given(messages=LINES)
@example(messages=[{"event": "case", "result": 3}])
@example(messages=[{"event": "case", "result": {"id": "a", "status": "ok", "speedup": "fast"}}])
@example(messages=[{"event": "case", "result": {"id": "zork", "status": "ok"}}])
@example(messages=[{"event": "step", "step": [], "case": {}}])
@example(messages=[{"event": "failed", "status": [], "message": "x"}])
def test_a_run_is_made_of_any_lines(task: Task, messages: list[dict[str, Any]]) -> None:
    started = RunStarted(
        RUN, "ab" * 32, "save", tuple(case.id for case in task.cases), "2026-11-14T21:03:00+00:00", "eager"
    )
    progress = RunProgress(task, started, "/snapshot", 0)
    shown = [event for message in messages if isinstance(message, dict) for event in progress.on_message(message)]
    shown += progress.on_worker_lost(WorkerLost("crashed", "check", "a", "exited with code 1"))
    for event in shown:
        if isinstance(event, CaseLanded):
            json.loads(encode("case", event.result, run=RUN))
        elif isinstance(event, Progress):
            assert render.progress(event)
    if isinstance(progress.failure, BuildFailed):
        json.loads(encode("failed", progress.failure))
    inputs = comparison.SummaryInputs(
        progress.environment or Environment(), (), complete=True, findings=progress.findings
    )
    summary = comparison.summarise(task, started, progress.results, inputs)
    assert isinstance(summary, Summary)
    json.loads(encode("finished", summary))
    assert report.outcome(summary)
    assert report.table(task, progress.results)


@fuzzed(150)
@given(data=st.one_of(nearly(ROW), nearly(MESSAGES[3]["environment"]), VALUES))
def test_data_of_the_wrong_kind_is_refused_by_an_exception_that_readers_expect(data: Any) -> None:
    for kind in (CaseResult, Environment, Finding, RunRequest):
        with contextlib.suppress(*UNREADABLE):
            decode(kind, data)
        with contextlib.suppress(*UNREADABLE):
            found = decode_checked(kind, data)
            assert decode_checked(kind, json.loads(encode("x", found))) == found


def test_what_the_worker_writes_has_the_right_types() -> None:
    for message in MESSAGES:
        if message["event"] == "case":
            row = decode_checked(CaseResult, message["result"])
            assert decode_checked(CaseResult, json.loads(encode("case", row))) == row
    with pytest.raises(TypeError, match="not a Finding"):
        decode_checked(Finding, {"name": 3, "help": "x"})


SPOILED = st.one_of(
    st.binary(max_size=60).map(lambda data: data.replace(b"\n", b"") + b"\n"),
    st.sampled_from(
        [b"[" * 200_000 + b"\n", b"{}\n", b"null\n", b"\xff\n", b'{"event":"warm"}\n', b"9" * 5000 + b"\n"]
    ),
    st.one_of(*map(nearly, MESSAGES)).map(lambda data: json.dumps(data).encode() + b"\n"),
)


@pytest.mark.anyio
@pytest.mark.timeout(3600)  # `make fuzz` plays 2,500 lines, and most of them cost a worker
async def test_a_session_outlives_any_lines(folder: Path, watched: Callable[..., Watched]) -> None:
    """On the pipe itself: each run is answered, and the next good source is right."""
    session = watched(deadlines=PATIENT, spares=False).session
    lines: list[bytes] = []

    @fuzzed(25)
    @given(data=SPOILED)
    def collect(data: bytes) -> None:
        lines.append(data)

    collect()
    for data in lines:
        (folder / "lines.hex").write_text(data.hex())
        (folder / "solution.py").write_text(f'def toy(): ...\nDO = "raw"\nNUMBER = {len(data)}\n')
        assert await session.run_once(iteration=False) is not None
    (folder / "solution.py").write_text("def toy(): ...\nTIME_US = 40.0\n")
    last = await session.run_once(iteration=False)
    assert isinstance(last, Summary)
    assert last.right
