"""The launch path of solutions: plans by form, and outputs that a checking mode still sees."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from harness import cuda
from harness.check.guard import Guard
from harness.cuda import plans, torch_internals

Same = Callable[..., bool]


def by_guards(*tensors: torch.Tensor) -> Same:
    return cuda.same_form_as(*tensors)


def by_comparing(*tensors: torch.Tensor) -> Same:
    with pytest.MonkeyPatch.context() as without:
        without.setattr(torch_internals, "find", lambda path: None)
        return cuda.same_form_as(*tensors)


@pytest.mark.parametrize("form", [by_guards, by_comparing])
def test_a_form_is_dtype_shape_and_strides_of_every_tensor(form: Callable[..., Same]) -> None:
    x, weight = torch.zeros(4, 6), torch.zeros(6)
    same = form(x, weight)
    assert same(torch.ones(4, 6), torch.ones(6))
    assert not same(torch.ones(4, 6, dtype=torch.float64), weight)
    assert not same(torch.ones(5, 6), weight)
    assert not same(torch.ones(6, 4).t(), weight)
    assert not same(x, torch.ones(12)[::2])
    assert not same(x.to("meta"), weight)


@pytest.mark.parametrize("form", [by_guards, by_comparing])
def test_one_tensor_given_twice_has_a_form_too(form: Callable[..., Same]) -> None:
    x = torch.zeros(4, 6)
    assert form(x, x)(x, x)
    assert not form(x, x)(x, torch.zeros(6, 4))


def test_a_tensor_that_is_negated_lazily_is_refused() -> None:
    """Its memory holds the opposite, and memory is all that a kernel gets."""
    sine = torch.view_as_complex(torch.ones(4, 2)).conj().imag
    with pytest.raises(ValueError, match="resolve_neg"):
        cuda.Plans().keep("key", (sine,), ())
    assert not by_comparing(sine.resolve_neg())(sine)


def test_plans_are_found_by_key_and_form() -> None:
    kept = cuda.Plans()
    wide, narrow = torch.zeros(4, 6), torch.zeros(6, 4).t()
    kept.keep("key", (wide,), ("wide", 1))
    kept.keep("key", (narrow,), ("narrow", 2))
    assert [plan for same, *plan in kept["key"] if same(torch.ones(4, 6))] == [["wide", 1]]
    assert [plan for same, *plan in kept["key"] if same(torch.ones(6, 4).t())] == [["narrow", 2]]
    assert not kept.get("another")


def test_plans_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST_KEYS", 4)
    kept = cuda.Plans()
    for number in range(50):
        kept.keep(number, (torch.zeros(number + 1),), (number,))
        assert len(kept) <= 4
    for number in range(50):
        kept.keep("same key", (torch.zeros(number + 1),), (number,))
        assert [plan for _, plan in kept["same key"]] == list(range(number + 1))[-plans.MOST_FORMS :]


LAYOUTS = [
    torch.empty(2, 8, 3, 5).to(memory_format=torch.channels_last),
    torch.empty(5, 8)[:, ::2],
    torch.empty(4, 6, dtype=torch.bfloat16).t(),
    torch.empty(0, 3),
]


@pytest.mark.parametrize("x", LAYOUTS, ids=lambda x: str(tuple(x.shape)))
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_an_output_is_what_empty_like_makes(x: torch.Tensor, device: str) -> None:
    x = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)
    made, like = cuda.outputs_like(x)(), torch.empty_like(x)
    assert (made.shape, made.stride(), made.dtype, made.device) == (like.shape, like.stride(), like.dtype, like.device)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_outputs_lie_between_borders_while_a_call_is_checked(device: str) -> None:
    output = cuda.outputs_like(torch.empty(3, 4, device=device))
    guard = Guard()
    with guard:
        made = output()
    assert made.isnan().all()
    torch.as_strided(made, (1,), (1,), made.storage_offset() + 12).fill_(1.0)
    assert guard.breach({"output": made}) is not None
