"""Which cases a task is tried on, and which wrong answers it must refuse."""

from __future__ import annotations

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
    answers = task_controls._wrong_answers(expected)
    assert [(name, wrong) for name, wrong, _ in answers] == [
        ("a", "zeros"),
        ("a", "constant values"),
        ("a", "shuffled values"),
        ("b", "zeros"),  # a constant is what b should be
    ]
    for name, _, outputs in answers:
        assert all(outputs[other] is expected[other] for other in expected if other != name)
