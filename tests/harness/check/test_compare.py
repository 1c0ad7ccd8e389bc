"""The judge: form, tolerance, what is not finite."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.check import compare, elements
from harness.shared.task import Task, Tolerance
from harness.shared.taskfile import load
from tests.harness.child import write_task


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return load(write_task(tmp_path))


def problem(got: torch.Tensor, truth: torch.Tensor, task: Task, fresh: bool = False) -> str | None:
    return compare.compare({"output 0": got}, {"output 0": truth}, task.tolerance, fresh=fresh).problem


def test_the_worst_element_is_named(task: Task) -> None:
    truth = torch.full((4, 20), 0.75, dtype=torch.float64)
    got = truth.float().clone()
    got[3, 17] = 1.25
    assert problem(got, truth, task) == "output 0 differs at [3, 17]: got 1.25, expected 0.75 (allowed 1.8e-05)"


def test_errors_within_the_tolerance_are_measured(task: Task) -> None:
    truth = torch.tensor([1.0, 2.0], dtype=torch.float64)
    verdict = compare.compare({"a": torch.tensor([1.0, 2.0 + 2**-20])}, {"a": truth}, task.tolerance)
    assert verdict.problem is None
    assert verdict.error is not None
    assert verdict.error.max == pytest.approx(2**-20)
    assert verdict.error.index == (1,)
    assert verdict.error.bound == pytest.approx(3e-5)


def test_elements_beyond_the_first_chunk_count(task: Task) -> None:
    truth = torch.zeros(elements.CHUNK + 10)
    got = truth.clone()
    got[elements.CHUNK + 3] = 1
    assert problem(got, truth, task) == f"output 0 differs at [{elements.CHUNK + 3}]: got 1, expected 0 (allowed 1e-05)"


@pytest.mark.parametrize(
    ("got", "truth", "words"),
    [
        (math.nan, 1.0, "output 0 is nan at [0], expected 1"),
        (math.inf, 1.0, "output 0 is inf at [0], expected 1"),
        (math.inf, math.inf, None),
        (math.nan, math.nan, None),
        (-math.inf, math.inf, "output 0 differs at [0]: got -inf, expected inf (allowed inf)"),
        (1.0, math.nan, "output 0 differs at [0]: got 1, expected nan (allowed nan)"),
    ],
)
def test_what_is_not_finite_must_be_expected(got: float, truth: float, words: str | None, task: Task) -> None:
    assert problem(torch.tensor([got]), torch.tensor([truth], dtype=torch.float64), task) == words


def test_overflow_of_the_output_dtype_is_right(task: Task) -> None:
    got, truth = torch.tensor([math.inf], dtype=torch.float16), torch.tensor([1e6], dtype=torch.float64)
    assert problem(got, truth, task) is None


def test_integers_are_exact(task: Task) -> None:
    truth = torch.tensor([1, 2**40, 3])
    assert problem(truth.clone(), truth, task) is None
    assert problem(truth + torch.tensor([0, 1, 0]), truth, task) is not None
    assert problem(torch.tensor([True]), torch.tensor([False]), task) is not None


def test_memory_that_was_never_written_has_its_own_words(task: Task) -> None:
    blank = torch.full((4,), -1, dtype=torch.int32).view(torch.float32)
    assert problem(blank, torch.ones(4), task, fresh=True) == "output 0 was never written"
    partly = torch.ones(4)
    partly[2:] = blank[2:]
    assert problem(partly, torch.ones(4), task, fresh=True) == "output 0 was not written at [2]"


class Odd(torch.Tensor):
    pass


@pytest.mark.parametrize(
    ("got", "words"),
    [
        ({"a": torch.ones(2, 3), "b": None}, "2 outputs, expected 1"),
        ({"a": None}, "a is None, expected a tensor"),
        ({"a": torch.ones(3, 2)}, "a has shape [3, 2], expected [2, 3]"),
        ({"a": torch.ones(2, 3, dtype=torch.float64)}, "a is float64, expected float32"),
        ({"a": torch.ones(3, 2).t()}, "a has strides [1, 2], expected [3, 1] (layout in task.toml)"),
        ({"a": torch.ones(2, 3).as_subclass(Odd)}, "a is of type Odd, not a plain torch.Tensor"),
        ({"a": torch.zeros(2, 3)}, None),
    ],
)
def test_form(got: compare.Outputs, words: str | None, task: Task) -> None:
    assert compare.form(got, {"a": torch.ones(2, 3)}, task) == words


def test_any_layout_may_be_allowed_and_single_dimensions_have_none(task: Task) -> None:
    loose = replace(task, layout="any")
    assert compare.form({"a": torch.ones(3, 2).t()}, {"a": torch.ones(2, 3)}, loose) is None
    assert compare.form({"a": torch.ones(4, 2)[:, :1]}, {"a": torch.ones(1, 4).t()[:, :1]}, task) is not None
    assert compare.form({"a": torch.ones(9).as_strided((1, 3), (9, 1))}, {"a": torch.ones(1, 3)}, task) is None


def test_every_output_has_an_error_of_its_own(task: Task) -> None:
    truth = {"y": torch.zeros(4, dtype=torch.float64), "z": torch.ones(4, dtype=torch.float64)}
    outputs = {"y": torch.zeros(4), "z": torch.ones(4)}
    outputs["y"][1], outputs["z"][2] = 1e-6, 3.0
    verdict = compare.compare(outputs, truth, task.tolerance)
    assert verdict.problem is not None
    assert verdict.problem.startswith("z differs at [2]")
    assert [(error.output, error.index) for error in verdict.errors] == [("y", (1,)), ("z", (2,))]


def test_an_output_that_is_still_being_written_is_called_so(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong when it was compared, right when the sentence is made: `got 1, expected 1` would help nobody."""
    got, wanted = torch.zeros(4), torch.ones(4, dtype=torch.float64)
    distance = elements.distance

    def late(*words: Any) -> Any:
        found = distance(*words)
        got.fill_(1.0)
        return found

    monkeypatch.setattr(elements, "distance", late)
    problem = compare.compare({"out": got}, {"out": wanted}, task.tolerance).problem
    assert problem is not None
    assert problem.startswith("out changed at [0] while it was being checked; is work still running in a thread")


def test_truth_that_is_gone_is_not_agreement() -> None:
    found = compare.compare({"output 0": torch.ones(2), "output 1": torch.ones(2)}, {"output 0": torch.ones(2)}, {})
    assert found.problem == "2 outputs, but truth has 1"
    assert compare.compare({"output 0": torch.ones(2)}, {}, {}).problem == "1 output, but truth has 0"


def test_a_tensor_that_brings_methods_along_is_no_plain_one(task: Task) -> None:
    wanted, got = {"output 0": torch.ones(2)}, torch.ones(2)
    got.note = "a name that torch does not use"  # type: ignore[attr-defined]
    assert compare.form({"output 0": got}, wanted, task) is None
    got.detach = got.to = lambda *_: torch.ones(2)  # type: ignore[method-assign, assignment]
    assert compare.form({"output 0": got}, wanted, task) == "output 0 has its own detach and to, not torch.Tensor's"


def judged(got: torch.Tensor, wanted: torch.Tensor, **bounds: Any) -> str | None:
    tolerance = {"float32": Tolerance(**{"atol": 0.1, "rtol": 0.0, **bounds}), "int8": Tolerance(0.0, 0.0, 0.9, 1.0)}
    return compare.compare({"out": got}, {"out": wanted}, tolerance).problem


def test_a_share_of_the_elements_may_be_off() -> None:
    got, wanted = torch.zeros(200), torch.zeros(200, dtype=torch.float64)
    got[7], got[9] = 0.5, 0.7
    assert judged(got, wanted) == "out differs at [9]: got 0.7, expected 0 (allowed 0.1)"
    assert judged(got, wanted, matched=0.99) is None
    assert judged(got, wanted, matched=0.995) == (
        "out: 99% of the values are within the tolerance, 99.5% must be; the worst at [9]: got 0.7, expected 0"
    )


def test_a_share_is_counted_over_all_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "CHUNK", 10)
    got, wanted = torch.zeros(100), torch.zeros(100, dtype=torch.float64)
    got[5::10] = 1.0
    assert judged(got, wanted, matched=0.9) is None
    got[93] = 2.0
    assert judged(got, wanted, matched=0.9) == (
        "out: 89% of the values are within the tolerance, 90% must be; the worst at [93]: got 2, expected 0"
    )


def test_no_element_may_exceed_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the one that is furthest past its own tolerance, but the one with the largest error is named."""
    monkeypatch.setattr(elements, "CHUNK", 10)
    got, wanted = torch.ones(100) * 1000, torch.ones(100, dtype=torch.float64) * 1000
    wanted[3], got[3] = 0.0, 1.5
    got[77] = 1005.0
    bounds = {"atol": 0.1, "rtol": 0.001, "matched": 0.9}
    assert judged(got, wanted, **bounds, cap=6.0) is None
    assert judged(got, wanted, **bounds, cap=4.0) == "out differs at [77]: got 1005, expected 1000 (allowed 4)"


@pytest.mark.parametrize(("got", "wanted"), [(math.nan, 0.0), (math.inf, 0.0), (0.0, math.nan), (-math.inf, math.inf)])
def test_what_is_not_finite_is_wrong_whatever_the_share(got: float, wanted: float) -> None:
    values, right = torch.zeros(100), torch.zeros(100, dtype=torch.float64)
    values[4] = 1e30  # finite, and further off than anything that is allowed
    assert judged(values, right, matched=0.5) is None
    values[50], right[50] = got, wanted
    assert "at [50]" in (judged(values, right, matched=0.5) or "")


def test_integers_may_be_off_in_a_share_and_by_a_cap() -> None:
    wanted = torch.arange(20, dtype=torch.int8)
    got = wanted.clone()
    got[4] += 1
    assert judged(got, wanted) is None
    got[4] += 1
    assert judged(got, wanted) == "out differs at [4]: got 6, expected 4 (allowed 1)"


def test_another_dtype_may_be_allowed_and_keeps_the_references_tolerance(task: Task) -> None:
    loose, like = replace(task, dtype="any"), {"a": torch.ones(4, dtype=torch.bfloat16)}
    got, truth = {"a": torch.full((4,), 1.04)}, {"a": torch.ones(4, dtype=torch.float64)}
    assert compare.form(got, like, task) == "a is float32, expected bfloat16"
    assert compare.form(got, like, loose) is None
    assert compare.compare(got, truth, task.tolerance, like).problem is None
    assert compare.compare(got, truth, task.tolerance).problem is not None
    whole = {"a": torch.ones(4, dtype=torch.int32)}
    half = {"a": torch.full((4,), 1.5, dtype=torch.float64)}
    assert compare.compare(whole, half, {}, like).problem is not None  # not cut off to 1 before it is compared


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_small_formats_are_compared(dtype: torch.dtype, task: Task) -> None:
    truth = torch.tensor([0.3, -7.0, 100.0], dtype=torch.float64)
    assert problem(truth.to(dtype), truth, task) is None
    wrong = torch.tensor([0.3, -7.0, 300.0]).to(dtype)
    assert (problem(wrong, truth, task) or "").startswith("output 0 differs at [2]")
    assert problem(torch.tensor([0.3, math.nan, 100.0]).to(dtype), truth, task) == "output 0 is nan at [1], expected -7"


def test_the_share_of_equal_bits() -> None:
    nan, zero = torch.tensor([math.nan, 0.0]), torch.tensor([math.nan, -0.0])
    assert elements.equal_share({"a": nan}, {"a": nan.clone()}) == 1.0
    assert elements.equal_share({"a": nan}, {"a": zero}) == 0.5
    several = {"a": torch.ones(3, 4).t(), "b": torch.tensor([1j, 2j]), "c": None, "d": torch.tensor([True, False])}
    other = {**several, "b": torch.tensor([1j, 2 + 2j]), "a": torch.ones(4, 3)}
    assert elements.equal_share(several, other) == 15 / 16
    small = torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn)
    assert elements.equal_share({"a": small}, {"a": small.clone()}) == 1.0
    assert elements.equal_share({"a": small}, {"a": small.float()}) is None
    assert elements.equal_share({}, {}) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn, torch.complex64, torch.int32, torch.bool])
def test_sums_that_are_too_large_are_not_infinite_values(dtype: torch.dtype) -> None:
    assert elements.are_finite({"a": torch.full((1000,), 400).to(dtype), "b": None})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.float8_e5m2, torch.complex64])
def test_values_that_are_not_finite_are_seen(dtype: torch.dtype) -> None:
    assert not elements.are_finite({"a": torch.tensor([1.0, math.inf]).to(dtype)})
    assert not elements.are_finite({"a": torch.tensor([math.inf, -math.inf]).to(dtype)})
