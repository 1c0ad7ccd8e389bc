"""The judge of a confirmation: it makes a call's inputs again, and goes by what the task says is right."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from harness.inputs import variation
from harness.inputs.reference import BadOutput, named_outputs
from harness.judging.cases import NOT_SOUND, Judging, described, rebuilt
from harness.shared.results import Verdict
from harness.shared.run_request import RunRequest
from harness.shared.taskfile import load
from tests.harness.child import REFERENCE, TASK, write_task

CHECK = """
def check(axes, inputs, outputs):
    return [('square', (outputs ** 2 - inputs['x'] ** 2 * 4).abs().max().item(), 1e-4)]
"""
PICKY = REFERENCE.replace("return x * factor", "assert x.dtype == torch.float32\n    return x * factor")


def judged(folder: Path, judge: str, factor: float, reference: str = REFERENCE) -> str | None:
    """The problem with a call that returned its input times a factor."""
    task_toml = TASK.replace('device = "cpu"', f'device = "cpu"\njudge = "{judge}"')
    place = write_task(folder, task_toml=task_toml, reference_py=reference + CHECK)
    request = RunRequest("r", load(place), str(place), cases=("small",), seed=5)
    judging = Judging(request, "cpu")
    case, masters, names = judging._known(request.task.case("small"))
    x = variation.varied(masters[6].inputs, 77, names)["x"]
    form, tensors = described(x * factor)
    judging.take({"case": case, "seed": 6, "lot": 77, "mutated": [], "result": form}, tensors)
    calls, problem = judging.results()["small"]
    assert calls == 1
    return problem


@pytest.mark.parametrize(
    ("judge", "factor", "problem"),
    [
        ("truth", 2.0, None),
        ("truth", -2.0, "output 0 differs at ["),
        ("reference", 2.0, None),
        ("reference", -2.0, "output 0 differs at ["),
        ("check", -2.0, None),
        ("check", 2.1, "check 'square': error "),
    ],
)
def test_a_call_is_judged_as_the_task_says(tmp_path: Path, judge: str, factor: float, problem: str | None) -> None:
    found = judged(tmp_path, judge, factor)
    assert (found is None) if problem is None else (found or "").startswith(problem)


def test_the_reference_judges_where_there_is_no_truth(tmp_path: Path) -> None:
    assert judged(tmp_path / "right", "reference", 2.0, PICKY) is None
    assert (judged(tmp_path / "wrong", "reference", 2.1, PICKY) or "").startswith("output 0 differs at [")


def test_a_judge_that_takes_nonsense_for_right_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if another process had made the tolerances in its memory larger."""
    monkeypatch.setattr("harness.check.compare.compare", lambda *values: Verdict())
    assert judged(tmp_path, "truth", 2.1) == NOT_SOUND


def test_the_same_inputs_twice_are_not_two_calls(tmp_path: Path) -> None:
    place = write_task(tmp_path)
    request = RunRequest("r", load(place), str(place), cases=("small",), seed=5)
    judging = Judging(request, "cpu")
    case, masters, names = judging._known(request.task.case("small"))
    form, tensors = described(variation.varied(masters[6].inputs, 77, names)["x"] * 2.0)
    for _ in range(2):
        judging.take({"case": case, "seed": 6, "lot": 77, "mutated": [], "result": form}, tensors)
    assert judging.results()["small"] == (2, "two calls with the same inputs were handed over")


class Pair(NamedTuple):
    y: torch.Tensor
    rest: Any


class Several(dict[Any, Any]):
    pass


X, Z = torch.ones(3), torch.zeros(2)


def changed_behind_its_back() -> OrderedDict[str, Any]:
    result = OrderedDict(x=X, z=Z)
    dict.pop(result, "x")
    return result


@pytest.mark.parametrize(
    "result",
    [
        X,
        (X, [Z, None]),
        Pair(X, {"z": Z, "n": 3}),
        OrderedDict(z=Z, y=Pair(X, True)),
        Several({3: X, "z": (2.5, Z)}),
        torch.sort(X),
        [X, torch.Size((3, 4))],
        {1: X, "1": Z, "z": X},
        changed_behind_its_back(),
    ],
)
def test_the_judge_names_the_outputs_of_any_result_as_the_run_does(result: Any) -> None:
    form, tensors = described(result)
    there = rebuilt(json.loads(json.dumps(form)), tensors)
    outputs, expected = (named_outputs(value, {}, ()) for value in (there, result))
    assert list(outputs) == list(expected)
    for value, wanted in zip(outputs.values(), expected.values(), strict=True):
        assert (value is wanted) or (value is not None and wanted is not None and torch.equal(value, wanted))


def test_what_the_run_does_not_take_is_named() -> None:
    form, tensors = described(Pair(X, object()))
    with pytest.raises(BadOutput, match="it returned a object, not a tensor"):
        rebuilt(form, tensors)
