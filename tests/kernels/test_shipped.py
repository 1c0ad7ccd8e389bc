"""Every shipped task, as a user's first run has it on a machine without a GPU: all smoke cases right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.shared import taskfile
from kernbench.log.entries import pulled_entries
from kernbench.task import snapshot
from tests import ROOT
from tests.harness.child import Child, results

KERNELS = ROOT / "kernels"
TASKS = sorted(path.parent.name for path in KERNELS.glob("*/task.toml"))


def events(*words: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "kernbench", "run", *words, "--device", "cpu", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr or done.stdout
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


@pytest.mark.parametrize("name", TASKS)
def test_a_smoke_case_is_right(child: Child, name: str, tmp_path: Path) -> None:
    smoke = next(case.id for case in taskfile.load(KERNELS / name).cases if case.kind == "smoke")
    row = results(child.run(KERNELS / name, cases=[smoke], build=str(tmp_path)))[smoke]
    assert (row["status"], row["detail"]) == ("ok" if name == "softmax_host" else "interpreted", None)


@pytest.mark.long
@pytest.mark.parametrize("name", TASKS)
def test_smoke_cases_are_right_as_a_user_runs_them(name: str, tmp_path: Path) -> None:
    wanted = [case.id for case in taskfile.load(KERNELS / name).cases if case.kind == "smoke"]
    assert wanted
    heard = events(str(KERNELS / name), "--case", "smoke*", "--state", str(tmp_path))
    landed = {event["id"]: event["status"] for event in heard if event["event"] == "case"}
    assert {case: landed.get(case) for case in wanted} == dict.fromkeys(wanted, landed[min(wanted)])
    assert landed[min(wanted)] in ("ok", "interpreted")


@pytest.mark.parametrize("name", TASKS)
def test_the_log_ends_with_what_is_shipped(name: str, tmp_path: Path) -> None:
    """A kernel comes with the entries that led to it, written by the tool, and the last that was kept is its source.

    What was tried after it and came out slower or wrong was taken back, and stays in the log.
    """
    log = KERNELS / name / "ITERATIONS.md"
    assert "\n- result: geomean " in log.read_text(encoding="utf-8")
    kept = [entry for entry in pulled_entries.read(log) if entry.right and entry.outcome != "slower"]
    found = kept[-1].source  # whole, or its first digits
    assert len(found) >= 8
    assert snapshot.take(KERNELS / name, tmp_path).sha.startswith(found)


def test_the_table_names_every_task() -> None:
    table = (KERNELS / "README.md").read_text(encoding="utf-8")
    for name in TASKS:
        assert f"`{name}`" in table
