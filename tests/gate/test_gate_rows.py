"""What the gate says about a row: the interval decides, and noise never passes."""

from __future__ import annotations

from typing import Any

import pytest

from harness.shared import findings
from harness.shared.results import CaseResult
from harness.shared.task import Case
from kernbench.gate.gate_rows import GateRow, Judge, TaskOutcome, exit_code

CASE, CHECK = Case("a", "a 16x16"), Case("grid:1", "1", kind="check")


def timed(low: float, high: float, clock: str = "device", **more: Any) -> CaseResult:
    middle = (low + high) / 2
    times = {"baseline_us": 10.0 * middle, "solution_us": 10.0, "speedup": middle, "low": low, "high": high}
    return CaseResult("a", "ok", clock=clock, verdict="unclear", **times, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low", "high", "tolerance", "word"),
    [
        (0.999, 1.001, None, "pass"),
        (1.2, 1.3, None, "pass"),
        (0.981, 0.999, None, "pass"),  # slower, but clearly by less than counts
        (0.968, 0.972, None, "slower"),  # three percent, on a GPU
        (0.968, 0.972, 0.05, "pass"),
        (0.979, 1.02, None, "cannot tell"),
        (0.5, 1.9, None, "cannot tell"),
        (0.5, 0.999, None, "slower"),
        (0.96, 1.02, 0.03, "cannot tell"),
    ],
)
def test_the_interval_decides(low: float, high: float, tolerance: float | None, word: str) -> None:
    assert Judge(tolerance).row(CASE, timed(low, high)).word == word


def test_a_cpu_s_clock_has_a_wider_default() -> None:
    assert Judge().row(CASE, timed(0.96, 1.01, "wall")).word == "pass"
    assert Judge().row(CASE, timed(0.94, 1.01, "wall")).word == "cannot tell"
    assert Judge().row(CASE, timed(0.89, 0.91, "wall")).word == "slower"


def test_why_it_cannot_tell() -> None:
    busy = findings.make("busy_machine", busy="1.5", cpus=2)
    row = Judge().row(CASE, timed(0.9, 1.1, findings=(busy,)))
    assert row.why.startswith(
        "the interval, 0.900x to 1.100x, has room for no change and for 2.0% slower; other programs"
    )
    missing = CaseResult("a", "ok", detail="baseline: failed (solution.py:3: no)", reason="baseline_fails")
    row = Judge().row(CASE, missing)
    assert (row.word, row.why, row.is_doubtful) == ("cannot tell", "baseline: failed (solution.py:3: no)", False)


def test_wrong_and_untrusted_rows_fail() -> None:
    row = Judge().row(CASE, CaseResult("a", "wrong", detail="out differs"))
    assert (row.word, row.why) == ("wrong", "WRONG: out differs")
    untrusted = timed(1.0, 1.001, findings=(findings.make("process_changed", names="torch.softmax"),))
    assert Judge().row(CASE, untrusted).word == "wrong"


def test_what_was_wrong_there_is_not_compared() -> None:
    row = Judge().row(CASE, timed(0.5, 0.51, findings=(findings.make("baseline_inexact", problem="off"),)))
    assert (row.word, row.why) == ("pass", "it was wrong there, so its speed is not compared")


def test_rows_that_are_not_timed() -> None:
    assert Judge().row(CHECK, CaseResult("grid:1", "ok")).word == "pass"
    assert Judge().row(CHECK, CaseResult("grid:1", "interpreted")).word == "pass"
    assert Judge().row(CASE, CaseResult("a", "skipped", reason="needs_gpu")).word == "not timed"
    assert Judge().row(CASE, CaseResult("a", "skipped", reason="out_of_memory")).word == "cannot tell"
    new = Judge(compares=False).row(CASE, timed(0.5, 0.6))
    assert (new.word, new.ratio) == ("pass", None)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 0),
        (("pass", "not timed"), 0),
        (("pass", "cannot tell"), 4),
        (("cannot tell", "slower"), 1),
        (("pass", "wrong"), 1),
    ],
)
def test_the_worst_row_decides(words: tuple[Any, ...], code: int) -> None:
    rows = tuple(GateRow(str(place), "", word) for place, word in enumerate(words))
    assert exit_code([TaskOutcome("toy", rows)]) == code
