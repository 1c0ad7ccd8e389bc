"""bias_residual_add beyond its cases: refusals, layouts, odd sizes, a convolution's end, operators, CUDA."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "bias_residual_add"

TOOLS = """
import itertools
import torch
import reference
import solution
from solution import bias_residual_add

bounds = {"float32": 2e-6, "bfloat16": 8e-3, "float16": 1e-3}

def inputs_of(x, layout="contiguous", dtype="float32", **more):
    return reference.make_inputs(dict(x=x, layout=layout, dtype=dtype, **more), 1, device)

def check(inputs, result=None):
    result = bias_residual_add(**inputs) if result is None else result
    x, right = inputs["x"], reference.truth(**inputs)
    assert result.shape == x.shape and result.dtype == x.dtype and result.stride() == x.stride()
    error, bound = (result.double() - right).abs(), bounds[str(x.dtype).split(".")[1]]
    assert bool((error <= bound * (1 + right.abs())).all()), (x.shape, x.dtype, float(error.max()))
"""

REFUSED = """
def refuses(words, **change):
    inputs = inputs_of("2x8x4x6")
    bias_residual_add(**inputs)  # a plan that is known must hide nothing
    try:
        bias_residual_add(**{**inputs, **change})
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

refuses("[N, C, ...]", x=torch.zeros(8))
refuses("torch.float64", x=torch.zeros(2, 8, 4, 6, dtype=torch.float64))
refuses("residual has shape [2, 8, 4, 5]", residual=torch.zeros(2, 8, 4, 5))
refuses("bias of shape [6]: 8 channels", bias=torch.zeros(6))
refuses("bias of shape [8, 1, 1]", bias=torch.zeros(8, 1, 1))
refuses("bias is torch.bfloat16", bias=torch.zeros(8, dtype=torch.bfloat16))
refuses("residual is torch.float32 on meta", residual=torch.zeros(2, 8, 4, 6, device="meta"))
refuses("divisor is zero", divisor=0.0)
refuses("pass it contiguous or channels-last", x=torch.zeros(2, 8, 6, 4).transpose(2, 3))
"""

SIZES = """
shapes = ("2x24x5x8", "1x7x3x11", "3x9x3x3", "2x2x2", "5x16", "1x1x4x4", "2x1x1x1", "1x64x1x1", "0x8x3x3", "1x100x7x9")
for x, layout, dtype in itertools.product(shapes, ("contiguous", "last"), bounds):
    for divisor in (1.0, 1.4, 1.0, 2):  # the plan of one divisor is there when another comes
        check(inputs_of(x, layout, dtype, divisor=divisor))
for start in (1, 3, 8):
    check(inputs_of("1x16x4x8", dtype="bfloat16", start=start))
    check(inputs_of("1x16x4x8", "last", "bfloat16", start=start))
for layout in ("contiguous", "last"):  # a bias that is not at a vector's address
    inputs = inputs_of("2x24x6x8", layout, "bfloat16")
    check({**inputs, "bias": torch.randn(25, device=device).bfloat16()[1:]})
inputs = inputs_of("2x24x6x8", dtype="bfloat16")
for other in (inputs["residual"].to(memory_format=torch.channels_last), inputs["residual"][:1].expand(2, 24, 6, 8)):
    check({**inputs, "residual": other})
check({**inputs, "bias": torch.randn(48, device=device).bfloat16()[::2]})
check({**inputs, "residual": inputs["x"]})
wide = torch.randn(2, 6, 24, 16, device=device).bfloat16()
odd = {**inputs, "x": inputs["x"][:, :, :1], "residual": wide.permute(0, 2, 1, 3)[:, :, :1, :8]}
odd["x"] = odd["x"].contiguous()
check(odd)
"""

A_BLOCKS_END = """
torch.manual_seed(0)
convolution = torch.nn.Conv2d(16, 16, 3, padding=1, device=device)
x, skip = torch.randn(2, 1, 16, 10, 12, device=device)
with torch.no_grad():
    bare = torch.nn.functional.conv2d(x, convolution.weight, padding=1)
    torch.testing.assert_close(bias_residual_add(bare, convolution.bias, skip, 2.0), (skip + convolution(x)) / 2.0)
"""

COMPILED = """
import op

for layout in ("contiguous", "last"):
    inputs = inputs_of("2x8x4x6", layout)
    check(inputs, torch.compile(op.bias_residual_add, fullgraph=True, backend="aot_eager")(**inputs))
    torch.library.opcheck(op.bias_residual_add, tuple(inputs.values()), test_utils=("test_schema", "test_faketensor"))
odd = inputs_of("1x8x5x6")
odd["x"] = odd["x"].as_strided((1, 8, 5, 6), (1, 30, 6, 1))
torch.library.opcheck(op.bias_residual_add, tuple(odd.values()), test_utils=("test_schema", "test_faketensor"))
"""

ON_GPU = """
from tests.kernels.other_stream import on_another_stream

def launch_of(inputs):
    x, bias, residual, divisor = inputs.values()
    alike = solution._plans[x.shape, divisor]
    return next(launch for same_form, launch, *_ in alike if same_form(x, bias, residual))

shapes = ("1x128x64x64", "2x37x31x13", "1x96x4x15x26", "3x131x9x9", "1x16x3x3", "300x512", "2x1x33x31", "1x64x257x129")
for x, layout, dtype in itertools.product(shapes, ("contiguous", "last"), bounds):
    for divisor in (1.0, 1.4):
        inputs = inputs_of(x, layout, dtype, divisor=divisor)
        check(inputs)
        assert launch_of(inputs) is not None, (x, layout, dtype)
for x in ("1x7x3x1", "2x2x1x3"):
    inputs = inputs_of(x)
    check(inputs)
    assert launch_of(inputs) is None, x

inputs = inputs_of("1x128x256x256", dtype="bfloat16")
check(inputs, on_another_stream(bias_residual_add, inputs))
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words() -> None:
    run(REFUSED)


def test_every_size_layout_and_address_is_taken() -> None:
    run(SIZES)


def test_it_ends_a_residual_block() -> None:
    run(A_BLOCKS_END)


def test_the_operator_goes_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_the_cuda_paths_and_another_stream() -> None:
    run(ON_GPU + SIZES + A_BLOCKS_END, "cuda")
