"""Guarded memory: what was written outside, and what was never written."""

from __future__ import annotations

import ctypes

import pytest
import torch

from harness.check import guard
from harness.check.guard import Guard
from harness.inputs import tensor_layout
from harness.inputs.reference import named_outputs


def poke(tensor: torch.Tensor, element: int, value: bytes) -> None:
    """Writes one element through the raw pointer, as a kernel without bounds checks would."""
    ctypes.memmove(tensor.data_ptr() + element * tensor.element_size(), value, tensor.element_size())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.int8, torch.bool])
@pytest.mark.parametrize(("element", "words"), [(12, "1 element past the end"), (-1, "1 element before the start")])
def test_one_element_outside_an_output_is_found(dtype: torch.dtype, element: int, words: str) -> None:
    watch = Guard()
    with watch:
        out = torch.empty(3, 4, dtype=dtype)
    poke(out, element, bytes(out.element_size()))
    found = watch.breach({"output 0": out})
    assert found is not None
    assert (found.finding.code, found.finding.disqualifying) == ("out_of_bounds_write", True)
    assert found.problem == f"the call wrote {words} of output 0"
    assert found.finding.help == f"{found.problem}; check the bounds of the last block or row"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
def test_copying_one_element_too_many_is_found(dtype: torch.dtype) -> None:
    watch = Guard()
    placed = watch.place({"x": torch.ones(8, dtype=dtype)}, ())
    with watch:
        out = torch.empty_like(placed["x"])
    ctypes.memmove(out.data_ptr(), placed["x"].data_ptr(), 9 * out.element_size())
    assert watch.breach({"output 0": out}) is not None


def test_one_element_outside_an_input_or_a_temporary_is_found() -> None:
    watch = Guard()
    placed = watch.place({"x": torch.ones(5), "n": 5}, ())
    with watch:
        scratch = torch.zeros(2, 3)
    poke(scratch, 6, b"\1\1\1\1")
    found = watch.breach({})
    assert found is not None
    assert "a temporary of shape [2, 3]" in found.problem
    watch = Guard()
    placed = watch.place({"x": torch.ones(5)}, ())
    poke(placed["x"], 5, b"\1\1\1\1")
    found = watch.breach({})
    assert found is not None
    assert "past the end of x" in found.problem


def test_nothing_is_found_where_nothing_happened() -> None:
    watch = Guard()
    placed = watch.place({"x": torch.arange(6.0).view(2, 3)[:, 1:]}, ("x",))
    with watch:
        out = torch.empty_like(placed["x"]).copy_(placed["x"])
        out = out + torch.ones_like(out)
    placed["x"].mul_(2)
    assert watch.breach({"output 0": out}) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.empty(3, 5),
        lambda x: torch.empty_like(x),
        lambda x: x.new_empty(4),
        lambda x: torch.empty_strided((2, 3), (1, 2)),
        lambda x: x.new_empty_strided((2, 3), (1, 2)),
        lambda x: torch.empty_permuted((2, 3), (1, 0)),
        lambda x: torch.empty((2, 3), dtype=torch.bfloat16),
    ],
)
def test_fresh_memory_is_nan(make: object) -> None:
    x = torch.ones(2, 2)
    with Guard():
        made = make(x)  # type: ignore[operator]
    assert bool(made.isnan().all())
    mask = guard.never_written(made)
    assert mask is not None
    assert bool(mask.all())


def test_filled_memory_keeps_its_values_and_layout() -> None:
    x = torch.ones(3, 2).t()
    with Guard():
        made = [torch.zeros(2), torch.ones_like(x), x.new_full((2,), 7.0), torch.full((1,), 3)]
    assert [tensor.flatten().tolist() for tensor in made] == [[0, 0], [1] * 6, [7, 7], [3]]
    assert made[1].stride() == x.stride()


def test_the_body_of_a_custom_operator_is_guarded_too() -> None:
    @torch.library.custom_op("kernbench_test::blank", mutates_args=())
    def blank(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    with Guard():
        out = blank(torch.ones(4))
    assert bool(out.isnan().all())


def test_a_read_outside_a_float_input_spoils_the_result() -> None:
    placed = Guard().place({"x": torch.ones(4)}, ())
    beyond = torch.as_strided(placed["x"], (5,), (1,), placed["x"].storage_offset())
    assert beyond.sum().isnan()


def sliced() -> torch.Tensor:
    return torch.arange(60.0).view(6, 10)[1:5, 3:9:2]


@pytest.mark.parametrize(
    "tensor",
    [
        sliced(),
        torch.arange(12.0).view(3, 4).t(),
        torch.arange(3.0).expand(4, 3),
        torch.arange(8.0).as_strided((3, 4), (2, 1)),
        torch.tensor(3.0),
        torch.empty(0, 3),
        torch.tensor([True, False]),
        torch.ones(3, dtype=torch.complex64),
    ],
)
def test_copies_keep_layout_values_and_alignment(tensor: torch.Tensor) -> None:
    for copied in (tensor_layout.copy(tensor), Guard().place({"x": tensor}, ())["x"]):
        assert copied.stride() == tensor.stride()
        assert torch.equal(copied, tensor)
        assert not tensor.numel() or copied.data_ptr() != tensor.data_ptr()
        assert not tensor.numel() or (copied.data_ptr() - tensor.data_ptr()) % tensor_layout.ALIGNMENT == 0


def test_outputs_are_named_in_order() -> None:
    x = torch.ones(1)
    assert list(named_outputs(x, {}, ())) == ["output 0"]
    assert list(named_outputs((x, None), {}, ())) == ["output 0", "output 1"]
    assert list(named_outputs({"mean": x}, {}, ())) == ["mean"]
    assert named_outputs(None, {"x": x}, ("x",)) == {"x": x}
