"""Which cases a task is tried on, and which wrong answers it must refuse."""

from __future__ import annotations

import pytest
import torch

from harness.check import task_controls
from harness.shared.task import Case


def test_the_smallest_case_of_each_variant_and_no_point_of_the_grid() -> None:
    cases = (
        Case("big", "big", axes={"variant": "a", "x": [1, 4096, 64]}),
        Case("small", "small", kind="smoke", axes={"variant": "a", "x": [2, 8]}),
        Case("other", "other", axes={"variant": "b", "rows": 3}),
        Case("edge", "edge", kind="check", axes={"variant": "a", "x": [1, 1]}),
        Case("only", "only", kind="check", axes={"variant": "c", "x": [1]}),
    )
    assert {case.id for case in task_controls.smallest_cases(cases)} == {"small", "other", "only"}


def test_each_output_is_made_wrong_alone() -> None:
    expected = {"a": torch.arange(6.0), "b": torch.ones(2), "c": None}
    answers = list(task_controls._wrong_answers(expected))
    assert [(name, wrong) for name, wrong, _ in answers] == [
        ("a", "zeros"),
        ("a", "constant values"),
        ("a", "shuffled values"),
        ("b", "zeros"),  # a constant is what b should be
    ]
    assert all(not torch.equal(tensor, expected[name]) for name, _, tensor in answers)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (torch.zeros(4), []),
        (torch.full((4,), 3.0), ["zeros"]),
        (torch.tensor([1.0, 2.0]), ["zeros", "constant values"]),  # shuffled, they happen to stay
        (torch.tensor([1, 2, 3, 9]), ["zeros", "constant values", "shuffled values"]),
        (torch.tensor([1.0, 2.0, 3.0]).to(torch.float8_e4m3fn), ["zeros", "constant values", "shuffled values"]),
        (torch.tensor([1.0, 2.0, 3.0]).to(torch.float8_e5m2), ["zeros", "constant values", "shuffled values"]),
        (torch.tensor([1j, 2j, 3j]), ["zeros", "constant values", "shuffled values"]),
    ],
)
def test_what_equals_the_right_answer_is_not_a_wrong_one(right: torch.Tensor, wrong: list[str]) -> None:
    answers = list(task_controls._wrong_answers({"a": right}))
    assert [name for _, name, _ in answers] == wrong
    assert {tensor.dtype for *_, tensor in answers} <= {right.dtype}


def test_a_long_output_is_shuffled_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_controls, "PIECE", 10)
    row = torch.arange(25.0)
    mixed = task_controls._shuffled(row)
    assert sorted(mixed.tolist()) == row.tolist()
    assert mixed[:20].tolist() != row[:20].tolist()
    assert (mixed[:10] + 10).tolist() == mixed[10:20].tolist()
