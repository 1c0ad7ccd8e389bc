"""What a task may say about right answers, and what a real worker makes of it: rows, notes and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.child import REFERENCE, SOLUTION, TASK, Child, results, write_task

SMALL = ("small",)
HALF = REFERENCE.replace('return {"x": x * spread + offset', 'return {"x": (x * spread + offset).half()')
TIGHT = TASK.replace("float32 = { atol = 1e-5, rtol = 1e-5 }", "float16 = { atol = 1e-8, rtol = 1e-5 }")
THIRD = HALF.replace("return x * factor", "return x / 3")


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


def with_keys(task: str, *keys: str) -> str:
    return task.replace('device = "cpu"\n', "\n".join(['device = "cpu"', *keys, ""]))


def events(child: Child, folder: Path, task: str, reference: str, source: str, **more: Any) -> list[dict[str, Any]]:
    files = {"task_toml": task, "reference_py": reference, "solution_py": source, **more.pop("files", {})}
    return child.run(write_task(folder, **files), cases=SMALL, **more)


def row(child: Child, folder: Path, task: str, reference: str, source: str, **more: Any) -> dict[str, Any]:
    said = events(child, folder, task, reference, source, **more)
    assert said[-1]["event"] == "finished", said[-1]
    return results(said)["small"]


def codes(result: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in result["findings"]]


def test_a_tolerance_that_the_reference_misses_is_refused_and_the_way_out_said(child: Child, tmp_path: Path) -> None:
    last = events(child, tmp_path, TIGHT, THIRD, "def scale(x, factor): return x / 3", controls=True)[-1]
    assert (last["event"], last["status"]) == ("failed", "bad_task")
    assert last["message"].startswith("[tolerance] is too tight for case small: the reference fails (output 0 differs")
    assert last["message"].endswith('set judge = "reference"')


def test_the_reference_may_be_what_outputs_are_compared_with(child: Child, tmp_path: Path) -> None:
    task = with_keys(TIGHT, 'judge = "reference"')
    right = row(child, tmp_path, task, THIRD, "def scale(x, factor): return x / 3", controls=True)
    assert (right["status"], right["checked"], right["exact"]) == ("ok", 2, 1.0)
    assert right["error"]["max"] == 0.0
    nearer = "def scale(x, factor): return (x.double() * 0.3334).half()"
    wrong = row(child, tmp_path / "wrong", task, THIRD, nearer)
    assert wrong["status"] == "wrong"
    assert wrong["detail"].startswith("output 0 differs at [")
    assert 0 < wrong["exact"] < 1


def test_the_errors_of_both_sides_are_not_compared_where_the_reference_judges(child: Child, tmp_path: Path) -> None:
    """The reference itself has none, so that every other order of sums would be called less accurate."""
    task = with_keys(TASK, 'judge = "reference"')
    source = "def scale(x, factor): return x * 2.00001"
    assert row(child, tmp_path, task, REFERENCE, source)["error"]["baseline_max"] is None
    nearer = row(child, tmp_path / "truth", TASK, REFERENCE, source)
    assert nearer["error"]["baseline_max"] < nearer["error"]["max"] / 2
    assert codes(nearer) == []  # within the tolerance: a figure, not a finding


ROOT = REFERENCE.replace("return x * factor", "return x.abs().sqrt()") + (
    "\ndef check(axes, inputs, outputs):\n"
    "    assert axes['rows'] == 8\n"
    "    error = (outputs * outputs - inputs['x'].abs()).abs().max().item()\n"
    "    return [('square', error, 1e-5 * inputs['x'].abs().max().item())]\n"
)
NEGATIVE = "def scale(x, factor): return -x.abs().sqrt()"


def test_a_check_alone_may_decide(child: Child, tmp_path: Path) -> None:
    task = with_keys(TASK, 'judge = "check"')
    right = row(child, tmp_path / "right", task, ROOT, NEGATIVE, controls=True)
    assert (right["status"], right["checked"], right["error"]) == ("ok", 2, None)
    assert right["speedup"] is not None
    assert right["exact"] == 0.0
    judged = row(child, tmp_path / "truth", TASK, ROOT, NEGATIVE)
    assert (judged["status"], judged["detail"][:15]) == ("wrong", "output 0 differ")


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        ("def scale(x, factor): return x", "check 'square': error "),
        ("def scale(x, factor): return x.abs().sqrt().double()", "output 0 is float64, expected float32"),
        (
            "n = []\ndef scale(x, factor):\n    n.append(1)\n    return x.abs().sqrt() if len(n) < 4 else x",
            "(in a timed call)",
        ),
        ("def scale(x, factor): return x.abs().sqrt().clamp(max=5)", "(seed 8, spread 64)"),
    ],
)
def test_what_a_check_refuses_is_wrong(child: Child, tmp_path: Path, source: str, detail: str) -> None:
    result = row(child, tmp_path, with_keys(TASK, 'judge = "check"'), ROOT, source)
    assert result["status"] == "wrong"
    assert detail in result["detail"]


def test_values_that_the_reference_does_not_survive_prove_nothing_to_a_check(child: Child, tmp_path: Path) -> None:
    """64 and 4 times as wide values are too much for the reference's own check, so a source may fail it there."""
    narrow = ROOT.replace("return [(", "error += 9 * (inputs['x'].abs().max().item() > 6)\n    return [(")
    source = "def scale(x, factor): return x.abs().sqrt().clamp(max=2.45)"
    assert row(child, tmp_path, with_keys(TASK, 'judge = "check"'), narrow, source)["status"] == "ok"


INDEXED = ROOT.replace("    error =", "    [0] * 9 if outputs.min().item() >= 0 else [][5]\n    error =")


@pytest.mark.parametrize("judge", ["truth", "check"])
def test_a_check_that_fails_for_some_outputs_only_blames_the_source(child: Child, tmp_path: Path, judge: str) -> None:
    source = "def scale(x, factor): return x.abs().sqrt() * -1e-9" if judge == "check" else NEGATIVE
    loose = with_keys(TASK, f'judge = "{judge}"').replace("atol = 1e-5", "atol = 100")
    result = row(child, tmp_path, loose, INDEXED, source)
    words = "check() in reference.py raised an error for these outputs: IndexError: list index out of range"
    assert (result["status"], result["detail"]) == ("wrong", words)


@pytest.mark.parametrize("judge", ["truth", "check"])
def test_a_check_that_fails_for_the_reference_too_is_the_tasks_fault(child: Child, tmp_path: Path, judge: str) -> None:
    broken = ROOT.replace("axes['rows'] == 8", "axes['lines']")
    last = events(child, tmp_path, with_keys(TASK, f'judge = "{judge}"'), broken, NEGATIVE.replace("-x", "x"))[-1]
    assert (last["event"], last["status"]) == ("failed", "bad_task")
    assert last["message"] == "check() in reference.py raised an error for case small: KeyError: 'lines'"


def test_a_check_that_refuses_the_reference_is_the_tasks_fault(child: Child, tmp_path: Path) -> None:
    strict = ROOT.replace("'].abs().max().item())]", "'].abs().max().item() * -1)]")
    last = events(child, tmp_path, with_keys(TASK, 'judge = "check"'), strict, NEGATIVE, controls=True)[-1]
    assert last["message"].startswith(
        "check() in reference.py refuses the reference's own result for case small: check 'square': error "
    )


def test_a_check_of_a_mutating_task_gets_the_outputs_by_name(child: Child, tmp_path: Path) -> None:
    task = with_keys(TASK, 'judge = "check"', 'mutates = ["x"]')
    reference = REFERENCE.replace("return x * factor", "x.mul_(factor)\n    return x.sum()") + (
        "\ndef check(axes, inputs, outputs):\n"
        "    assert inputs['x'].data_ptr() == outputs['x'].data_ptr()\n"
        "    return [('sum', abs(outputs['x'].sum() - outputs['output 0']).item(), 1e-3)]\n"
    )
    source = "def scale(x, factor):\n    x.mul_(-factor)\n    return x.sum()"
    assert row(child, tmp_path / "right", task, reference, source)["status"] == "ok"
    source = "def scale(x, factor):\n    x.mul_(factor)\n    return x.sum() + 1"
    assert row(child, tmp_path / "wrong", task, reference, source)["detail"].startswith("check 'sum': error 1, allowed")


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        ("def scale(x, factor): return x * (1 / 3)", "ok: None"),
        ("def scale(x, factor): return (x * (1 / 3)).clamp(-2, 2)", "(seed 8, spread 4)"),
    ],
)
def test_the_reference_judges_no_wide_values_that_are_too_much_for_it(
    child: Child, tmp_path: Path, source: str, outcome: str
) -> None:
    """64 times as wide, the rounding of any source is above the tolerance, though not for usual values."""
    task = with_keys(TASK, 'judge = "reference"').replace("atol = 1e-5, rtol = 1e-5", "atol = 1e-6, rtol = 0")
    result = row(child, tmp_path, task, REFERENCE.replace("return x * factor", "return x / 3"), source)
    assert f"{result['status']}: {result['detail']}".endswith(outcome)


def test_wide_values_count_where_the_reference_is_never_near_truth(child: Child, tmp_path: Path) -> None:
    task = with_keys(TIGHT, 'judge = "reference"')
    result = row(child, tmp_path, task, THIRD, "def scale(x, factor): return (x / 3).clamp(-5, 5)")
    assert result["detail"].endswith("(seed 8, spread 64)")


def test_a_masked_zero_does_not_win_a_maximum(child: Child, tmp_path: Path) -> None:
    """As `tl.load(..., other=0.0)` does, unless some row has nothing but negative values."""
    largest = REFERENCE.replace("return x * factor", "return x.amax(-1)")
    source = "import torch\ndef scale(x, factor): return torch.nn.functional.pad(x, (0, 1)).amax(-1)"
    assert row(child, tmp_path, TASK, largest, source)["detail"].endswith("(seed 9, spread 0.25, offset -3)")


def test_a_reference_that_cannot_compute_in_float64_may_still_judge(child: Child, tmp_path: Path) -> None:
    picky = THIRD.replace("return x / 3", "assert x.dtype == torch.float16\n    return x / 3")
    task = with_keys(TIGHT, 'judge = "reference"')
    result = row(child, tmp_path, task, picky, "def scale(x, factor): return x / 3", controls=True)
    assert (result["status"], result["checked"]) == ("ok", 2)


@pytest.mark.parametrize("mode", ["truth", "reference", "check"])
def test_wrong_answers_that_pass_are_a_note_on_every_run(child: Child, tmp_path: Path, mode: str) -> None:
    loose = with_keys(TASK, f'judge = "{mode}"').replace("atol = 1e-5", "atol = 100.0")
    reference = (
        REFERENCE + "\ndef check(axes, inputs, outputs):\n    return [('size', abs(outputs.numel() - 264), 0)]\n"
    )
    for number in range(2):
        said = events(child, tmp_path / str(number), loose, reference, SOLUTION, controls=True)
        assert said[-1]["event"] == "finished"
        found = [event["finding"] for event in said if event["event"] == "finding"]
        assert [(finding["code"], finding["red"]) for finding in found] == [("degenerate", False)]
        assert found[0]["help"].startswith(
            "zeros, constant values and shuffled values pass as output 0 of case small: this problem cannot tell"
        )
        assert [event["passed"] for event in said if event["event"] == "controls"] == [False]


def test_a_result_of_zeros_is_not_degenerate(child: Child, tmp_path: Path) -> None:
    reference = REFERENCE.replace("return x * factor", "return x * factor, x * 0")
    source = "def scale(x, factor): return x * factor, x * 0"
    said = events(child, tmp_path, TASK, reference, source, controls=True)
    assert [event["passed"] for event in said if event["event"] == "controls"] == [True]
    assert [event for event in said if event["event"] == "finding"] == []
    assert results(said)["small"]["status"] == "ok"


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("judge", ["truth", "reference"])
def test_small_formats_go_in_and_out(child: Child, tmp_path: Path, dtype: str, judge: str) -> None:
    reference = REFERENCE.replace('"x": x * spread + offset', f'"x": (x * spread + offset).to(torch.{dtype})')
    reference = reference.replace('case["columns"]', 'case["rows"]')  # square, as a symmetric one would be
    reference = reference.replace("return x * factor", f"return (x.float() / 2).to(torch.{dtype})")
    source = f"import torch\ndef scale(x, factor): return (x.float() * {{}}).to(torch.{dtype})"
    task = with_keys(TASK, f'judge = "{judge}"')
    right = row(child, tmp_path / "right", task, reference, source.format(0.5), controls=True)
    assert (right["status"], right["checked"], right["exact"]) == ("ok", 2, 1.0)
    wrong = row(child, tmp_path / "wrong", task, reference, source.format(0.7))
    assert wrong["detail"].startswith("output 0 differs at [")


def test_a_baseline_outside_the_tolerance_is_timed_with_a_note(child: Child, tmp_path: Path) -> None:
    files = {"baseline_py": "def scale(x, factor): return x * 2.01\n"}
    for mode in ("truth", "reference"):
        task = with_keys(TASK, f'judge = "{mode}"', 'baseline = "baseline.py"')
        result = row(child, tmp_path / mode, task, REFERENCE, SOLUTION, files=files, baseline="baseline.py")
        assert result["status"] == "ok"
        assert result["speedup"] is not None
        assert codes(result) == ["baseline_inexact"]
        assert "the baseline itself would be wrong here (output 0 differs at [" in result["findings"][0]["help"]


def test_outputs_may_have_another_dtype_where_the_task_says_so(child: Child, tmp_path: Path) -> None:
    source = "def scale(x, factor): return x.double() * factor"
    assert row(child, tmp_path / "no", TASK, REFERENCE, source)["status"] == "wrong"
    result = row(child, tmp_path / "yes", with_keys(TASK, 'dtype = "any"'), REFERENCE, source)
    assert (result["status"], result["checked"], result["exact"]) == ("ok", 2, None)
    assert result["error"]["bound"] == pytest.approx(1e-5 + 1e-5 * abs(result["error"]["expected"]))


def test_a_case_may_have_its_own_tolerance_and_some_values_be_off(child: Child, tmp_path: Path) -> None:
    source = "def scale(x, factor):\n    y = x * factor\n    y[0, 0] += 0.5\n    return y"
    own = TASK.replace('id = "small"', 'id = "small"\ntolerance = { float32 = { atol = 1e-5, matched = 0.99 } }')
    assert row(child, tmp_path / "own", own, REFERENCE, source)["status"] == "ok"
    wrong = row(child, tmp_path / "tasks", TASK, REFERENCE, source)
    assert (wrong["status"], wrong["exact"]) == ("wrong", 263 / 264)
    capped = own.replace("matched = 0.99", "matched = 0.99, cap = 0.25")
    wrong = row(child, tmp_path / "capped", capped, REFERENCE, source)
    assert wrong["detail"].startswith("output 0 differs at [0, 0]: got ")
    assert wrong["detail"].endswith("(allowed 0.25)")
