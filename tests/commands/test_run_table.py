"""What `run` prints: at most 100 columns, no keys of the screen, and a clean line after ctrl+c."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.shared import taskfile
from harness.shared.results import CaseResult, Finding, OutputError, Ratio
from harness.shared.task import Task
from kernbench import render, report
from kernbench.events import Summary
from kernbench.task import lookup
from tests import FAKE, ROOT
from tests.terminal.pane import Pane

WIDE = Ratio(0.1234, 0.0001, 1.5, "unclear")
ERROR = OutputError(1.2e-05, 1.1e-05, 1e-3, 0, (0, 0), 1.0, 1.0)
FINDINGS = tuple(Finding(f"finding {number}", "what it means, and what to look at next; " * 4) for number in range(2))


def widest(task: Task) -> dict[str, CaseResult]:
    """A row for every case, with the longest of every cell."""
    numbers = {"baseline_us": 123456.0, "solution_us": 1234567.0, "speedup": 0.1234, "low": 0.0001, "high": 1.5}
    timed = CaseResult(
        "",
        "ok",
        verdict="unclear",
        vs_best=WIDE,
        roofline=1.0,
        bound="compute",
        error=ERROR,
        findings=FINDINGS,
        **numbers,
    )
    rows = {case.id: replace(timed, id=case.id) for case in task.cases}
    memory = task.cases[0].id
    rows[memory] = replace(rows[memory], bound="memory")  # so that every row names its bound
    failed = task.cases[-1].id
    rows[failed] = CaseResult(failed, "runtime_error", detail="a sentence of the compiler's about a template " * 5)
    return rows


@pytest.mark.parametrize("name", sorted(lookup.shipped_tasks()))
def test_the_table_of_a_shipped_task_fits_100_columns(name: str) -> None:
    task = taskfile.load(lookup.shipped_tasks()[name])
    lines = report.table(task, widest(task))
    assert max(map(len, lines)) <= 100
    width = lines[0].index("base us") - 2
    rows = [line[:width] for line in lines[1:] if line[width:].lstrip()[:1].isdigit()]
    assert len(rows) >= len(task.timed)
    assert len(set(rows)) == len(rows)  # shortened labels still tell the cases apart


@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_long_id_gives_way_and_its_ends_stay(ascii_only: bool) -> None:
    task = taskfile.load(lookup.shipped_tasks()["softmax_host"])
    name = "attention_forward_" + "of_a_very_long_name_" * 5 + "bf16"
    cases = (replace(task.cases[0], id=name, label=name), *task.cases[1:])
    task = replace(task, cases=cases)
    lines = report.table(task, widest(task), ascii_only)
    assert max(map(len, lines)) <= 100
    long = lines[1].split()[0]
    assert long.startswith("attention_")
    assert long.endswith("_bf16")
    assert ("..." if ascii_only else "…") in long


def test_a_finding_is_explained_once_and_names_its_rows() -> None:
    task = taskfile.load(lookup.shipped_tasks()["softmax_host"])
    rows = widest(task)
    rows["softmax_2048x64"] = replace(rows["softmax_2048x64"], findings=())
    text = "\n".join(report.table(task, rows))
    assert text.count("finding 0") == 1
    assert "finding 0 (19x3072, 96x3072, 256x1000 and 4 more): what it means" in text


def test_the_outcome_breaks_between_its_parts() -> None:
    summary = Summary("r", "s", "2026-11-17T00:00:00", True, geomean=1.0, low=1.0, high=1.0, counts={"ok": 35})
    summary = replace(summary, verdict="same", not_best=" ".join(["a long reason"] * 8), iteration=12, seconds=3.0)
    lines = report.folded(report.outcome(summary), " · ")
    assert len(lines) > 1
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("geomean 1.00x ±0.0% · 35/35 passed")
    assert lines[1].startswith("not best: a long reason")
    assert lines[-1].endswith("entry 12 · 3 s  (baseline )")


@pytest.mark.parametrize(
    ("counts", "word", "said"),
    [
        ({"skipped": 2}, "not run", "nothing was checked: without a GPU, a [[smoke]] case"),
        ({"skipped": 2, "wrong": 1}, "wrong", "failed: speedup withheld"),
        ({"skipped": 2, "ok": 1}, "wrong", "failed: speedup withheld"),  # something failed besides the rows
    ],
)
def test_a_run_without_a_case_that_ran_is_not_called_wrong(counts: dict[str, int], word: str, said: str) -> None:
    summary = Summary("r", "s", "2026-11-17T00:00:00", False, counts=counts)
    assert render.outcome(summary) == word
    assert report.outcome(summary).startswith(said)


@pytest.mark.tmux
@pytest.mark.parametrize("command", ["run", "watch"])
def test_ctrl_c_leaves_a_clean_line(folder: Path, command: str) -> None:
    (folder / "solution.py").write_text('def toy(): ...\nDO = "hang"\n')
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    program = f"cd {folder}; PYTHONPATH={paths} KERNBENCH_HARNESS={FAKE} {sys.executable} -m kernbench {command}"
    pane = Pane(f"kernbench-ctrl-c-{os.getpid()}", 100, 12, f"trap : INT; {program}; echo left with $?; sleep 60")
    try:
        pane.until("checking|loading|building")
        pane.press("C-c")
        assert pane.until("left with").splitlines()[1] == "left with 130"
    finally:
        pane.close()
