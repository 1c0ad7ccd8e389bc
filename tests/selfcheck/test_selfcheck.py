"""selfcheck on the host demo: what it prints must have been measured, and it must say where nothing could be."""

from __future__ import annotations

import asyncio
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from kernbench.engine.jobs import Options
from kernbench.ncu.refusals import refuse
from kernbench.selfcheck import Report, accuracy, agreement
from kernbench.selfcheck.task_copy import TaskCopy
from tests import FAKE, ROOT

DEMO = ROOT / "kernels" / "softmax_host"
ONE_CASE = ("--case", "19x3072", "--baseline", "eager")


def selfcheck(part: str, task: Path, *words: str, code: int = 0) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "kernbench", "selfcheck", str(task), "--only", part, "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    assert f"{part}: run 1: " in done.stderr  # it takes minutes: one hears of every run
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.long
def test_edits_are_built_timed_and_compared_with_a_cold_start() -> None:
    *rows, part = selfcheck("latency", DEMO, "--repeats", "8", *ONE_CASE)
    assert [row["what"] for row in rows] == ["warm edit", "warm edit", "started cold", "started cold"]
    assert all(row["first_row_s"] > 0 for row in rows)
    assert " s warm, " in part["notes"][0]


def test_an_edit_that_cannot_be_timed_is_said(tmp_path: Path) -> None:
    task = tmp_path / "softmax_host"
    shutil.copytree(DEMO, task, ignore=shutil.ignore_patterns(".kernbench"))
    source = task / "solution.cpp"
    source.write_text(source.read_text() + "\n#define typedef 1 +\n")  # breaks what an edit appends
    (part,) = selfcheck("latency", task, *ONE_CASE, code=1)
    assert part["notes"][0].startswith("an edited solution was not timed (build_error: ")


@pytest.mark.long
def test_good_saves_are_served_after_crashes() -> None:
    command = [sys.executable, "tests/measure/measure_crashes.py", str(DEMO), "--rounds", "2", *ONE_CASE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    first, second, *figures = done.stdout.splitlines()
    assert re.match(r"first row after os._exit +[\d.]+ s +crashed: ", first)
    assert re.match(r"first row after segfault in a host call +[\d.]+ s +crashed: ", second)
    found = dict(re.split(r" {2,}", line, maxsplit=1) for line in figures)
    assert found["good saves served after a bad one"] == "2/2"
    assert found["processes left behind"] == "0"


def test_a_path_that_leads_upwards_leaves_what_lies_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(DEMO, tmp_path / "softmax_host", ignore=shutil.ignore_patterns(".kernbench"))
    for name in ("work", "temporary"):
        (tmp_path / name).mkdir()
    other = tmp_path / "temporary" / "of somebody else"
    other.touch()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))

    async def use() -> None:
        async with TaskCopy("../softmax_host", Options(), print):
            pass

    asyncio.run(use())
    assert list((tmp_path / "temporary").iterdir()) == [other]
    assert (tmp_path / "softmax_host" / "solution.cpp").exists()


@pytest.mark.gpu
def test_an_edit_of_a_cuda_file_is_timed() -> None:
    *rows, part = selfcheck("latency", DEMO.parent / "norm_infer", "--repeats", "4", "--case", "heads 1320x128")
    assert rows, part
    assert all(row["first_row_s"] > 0 for row in rows), part


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, "no false verdicts; every row within its limits"),
        ({"row_ms": 100.5}, "no false verdicts; over the time limit (100 ms; 200 ms for calls over 300 us): 4096x128"),
        ({"row_ms": 180.0, "us": 400.0}, "no false verdicts; every row within its limits"),
        ({"worst_percent": 0.6}, "no false verdicts; off by more than 0.5% (1.5% under 5 us): 4096x128"),
        ({"said": "19 same 1 slower"}, "false verdicts on 4096x128; every row within its limits"),
        ({"said": "1 disqualified 20 same"}, "false verdicts on 4096x128; every row within its limits"),
    ],
)
def test_a_row_outside_any_mark_is_named(found: dict[str, Any], said: str) -> None:
    row = {"case": "4096x128", "us": 12.0, "worst_percent": 0.4, "said": "20 same", "row_ms": 99.0}
    assert accuracy._sum_up(Report("aa", rows=[{**row, **found}]), 100.0) == said


@pytest.mark.parametrize(("budget_ms", "named"), [(math.inf, False), (300.0, False), (20.0, True)])
def test_a_row_may_take_the_budget_that_it_is_given(budget_ms: float, named: bool) -> None:
    row = {"case": "19x3072", "us": 260.0, "worst_percent": 0.4, "said": "20 same", "row_ms": 250.0}
    assert ("over the time limit" in accuracy._sum_up(Report("aa", rows=[row]), budget_ms)) is named


def test_the_state_of_the_l2_that_ncu_times_with_is_named() -> None:
    row = {"case": "a", "ncu_us": 20.0, "cold_us": 20.2, "cold_percent": 1.0, "dirty_percent": 2.0, "warm_percent": 9.0}
    said = "every row within the limits; times with a cold L2 are closest to ncu's (mean difference 1.0%)"
    assert agreement._sum_up(Report("ncu", rows=[row])) == said


def test_others_methods_work_on_the_gpu_that_was_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DEVICE", "cuda:3")

    async def asked() -> dict[str, object]:
        async with TaskCopy("rms_norm", Options(harness=FAKE, device="cuda:3"), print) as shop:
            await shop.session.supervisor.ready()
            await shop.run()
            return shop.contrasted()

    assert asyncio.run(asked())["device"] == "cuda:3"


def test_the_ncu_to_compare_with_is_the_one_that_a_profile_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(given: str | None = None) -> Path:
        raise agreement.nsight.NoNcu(refuse("not_a_program", path=given))

    monkeypatch.setattr(agreement.nsight, "find", find)
    report = asyncio.run(agreement.with_ncu("rms_norm", Options(ncu="/opt/ncu"), print))
    assert report.notes == [f"nothing to compare with: {refuse('not_a_program', path='/opt/ncu').text}"]
