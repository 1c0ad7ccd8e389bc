"""The real target, without ncu, on the CPU: loads, calls, traces, and blames the right line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.shared import taskfile
from harness.shared.lines import to_dict
from kernbench.ncu import standby as ncu
from kernbench.ncu.refusals import Refusal

pytestmark = [pytest.mark.anyio]
TASK = """
name = "toy"
entry = "toy"
device = "cpu"
[tolerance]
float32 = { atol = 1e-5, rtol = 1e-5 }
[[case]]
id = "a"
axes = { rows = 64 }
"""
REFERENCE = """
import torch
def make_inputs(case, seed, device):
    return {"x": torch.ones(case["rows"], 1024, device=device)}
def toy(x):
    return x * 2
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "task.toml").write_text(TASK)
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "solution.py").write_text("def toy(x):\n    return x.exp() + x.sin()\n")
    return tmp_path


async def asked(folder: Path, **more: Any) -> ncu.Outcome:
    side = {"name": "solution", "kind": "file", "file": "solution.py", "source": str(folder)}
    standby = await ncu.Standby.start(ncu.Setup(sys.executable, "cpu", None))
    try:
        task = to_dict(taskfile.load(folder))
        return await standby.profile({"task": task, "case": "a", "build": "", "sides": [side], **more})
    finally:
        await standby.close()


async def test_what_a_call_spends_is_ranked_and_written_as_a_trace(folder: Path) -> None:
    place = folder / "trace.json"
    outcome = await asked(folder, trace=str(place))
    assert outcome.problem is None
    assert {"aten::exp", "aten::sin", "aten::add"} <= {row["name"] for row in outcome.trace}
    assert outcome.facts["solution"]["needed_bytes"] == 2 * 64 * 1024 * 4
    assert json.loads(place.read_text())["traceEvents"]


async def test_a_source_that_fails_is_blamed_by_its_line(folder: Path) -> None:
    (folder / "solution.py").write_text("def toy(x):\n    return y\n")
    outcome = await asked(folder)
    assert outcome.problem == Refusal("side_failed", "the solution failed: NameError: name 'y' is not defined")
    assert str(outcome.where) == "solution.py:2"


async def test_a_task_that_fails_is_a_sentence_too(folder: Path) -> None:
    (folder / "reference.py").write_text("def make_inputs(case, seed, device):\n    return 3\ndef toy(x): ...\n")
    outcome = await asked(folder)
    assert outcome.problem is not None
    assert "make_inputs must return a dict of arguments; for case a it returned int" in outcome.problem.text
