"""ltx2_rms_adaln beyond its cases: refusals, layouts, its one rounding, torch.compile, and the CUDA path."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "ltx2_rms_adaln"

TOOLS = """
import torch
import reference
import solution
from solution import ltx2_rms_adaln

def inputs_of(tokens=3, cols=128, dtype="bfloat16", batch=2, seed=0, spread=1.0, offset=0.0, **more):
    case = dict(batch=batch, tokens=tokens, cols=cols, dtype=dtype, eps=1e-6, **more)
    return reference.make_inputs(case, seed, device, spread, offset)

def check(inputs, result=None):
    result = ltx2_rms_adaln(**inputs) if result is None else result
    assert result.shape == inputs["x"].shape and result.dtype == torch.float32 and result.is_contiguous()
    torch.testing.assert_close(result.double(), reference.truth(**inputs), atol=1e-5, rtol=1e-5)
"""

REFUSED = """
def refuses(words, **change):
    try:
        ltx2_rms_adaln(**{**inputs_of(), **change})
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

refuses("x must be [B, S, D]", x=torch.zeros(3, 128))
refuses("torch.float64", x=torch.zeros(2, 3, 128, dtype=torch.float64))
refuses("32769 columns", x=torch.zeros(1, 1, 32769))
refuses("0 columns", x=torch.zeros(1, 1, 0))
refuses("scale must be a float tensor", scale=torch.zeros(128, dtype=torch.int32))
refuses("scale of shape [64]", scale=torch.zeros(64))
refuses("shift of shape [3, 128]", shift=torch.zeros(3, 128))
refuses("shift of shape [2, 2, 128]", shift=torch.zeros(2, 2, 128))
refuses("scale of shape [1, 2, 3, 128]", scale=torch.zeros(1, 2, 3, 128))
"""

LAYOUTS = """
for dtype in ("bfloat16", "float16", "float32"):
    for layout in ("BSD", "B1D", "BD", "D"):
        for _ in range(2):  # the second call finds what the first worked out
            check(inputs_of(dtype=dtype, layout=layout))
    for tokens, cols in ((1, 1), (5, 100), (2, 131), (4, 1026), (7, 3)):
        check(inputs_of(tokens, cols, dtype))
for mixed in (("bfloat16", "float32"), ("float32", "bfloat16"), ("float16", "bfloat16")):
    check(inputs_of(dtype=mixed[0], modulation_dtype=mixed[1]))
inputs = inputs_of()
check({**inputs, "shift": inputs["shift"].float()})
check({**inputs, "scale": inputs["x"], "shift": inputs["x"]})
check({**inputs, "scale": inputs["scale"][:1], "shift": inputs["shift"][:, :1]})
for start in (1, 2, 4, 0):
    check(inputs_of(start=start))
for gap in (1, 2, 8):
    check(inputs_of(gap=gap))
wide = torch.randn(4, 6, 256, device=device).bfloat16()
for x in (wide[::2, :3, :128], wide[:2, ::2, 128:], wide[:2, :3, ::2], wide[:2, :1, :128].expand(2, 3, 128)):
    check({**inputs, "x": x})
    check({**inputs, "scale": x})
check(inputs_of(0))
check(inputs_of(batch=0))
"""

VALUES = """
check(inputs_of(spread=100.0))
check(inputs_of(dtype="float32", offset=1e3))
check(inputs_of(offset=16.0))
for name in ("x", "scale", "shift"):  # NaN and infinity spread as far as in the expression
    inputs = inputs_of(dtype="float32")
    inputs[name].view(-1)[[0, 200, 300]] = torch.tensor([float("nan"), float("inf"), -float("inf")], device=device)
    wanted = reference.ltx2_rms_adaln(**inputs)
    torch.testing.assert_close(ltx2_rms_adaln(**inputs), wanted, atol=1e-5, rtol=1e-5, equal_nan=True)

# Where the sum of squares is exact, so is everything: 1 + scale is rounded to bf16, and nothing else before fp32.
inputs = inputs_of(cols=256)
inputs["x"] = torch.where(inputs["x"] < 0, -2.0, 2.0).to(torch.bfloat16)
inputs["eps"] = 0.0
assert torch.equal(ltx2_rms_adaln(**inputs), reference.ltx2_rms_adaln(**inputs))
"""

COMPILED = """
import op

inputs = inputs_of()
check(inputs, torch.compile(op.ltx2_rms_adaln, fullgraph=True, backend="aot_eager")(**inputs))
torch.library.opcheck(op.ltx2_rms_adaln, tuple(inputs.values()), test_utils=("test_schema", "test_faketensor"))
"""

ON_GPU = """
from tests.kernels.other_stream import on_another_stream

for dtype in ("bfloat16", "float16", "float32"):
    for tokens, cols in ((1, 8), (126, 2048), (300, 1000), (301, 4096), (513, 5128), (270, 8192), (140, 32768)):
        check(inputs_of(tokens, cols, dtype))
    for tokens, cols in ((33, 127), (300, 3071), (300, 3074), (150, 8191)):
        check(inputs_of(tokens, cols, dtype, layout="B1D"))
for shape, alike in solution._plans.items():
    assert shape[-1] > 16384 or all(launch is not None for _, launch, *_ in alike), shape

inputs = inputs_of(300, 4096)
check(inputs, on_another_stream(ltx2_rms_adaln, inputs))
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words() -> None:
    run(REFUSED)


def test_every_layout_dtype_and_width_is_taken() -> None:
    run(LAYOUTS)


def test_one_plus_scale_is_rounded_and_nothing_else() -> None:
    run(VALUES)


def test_the_operator_goes_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_the_cuda_path_on_odd_shapes_and_another_stream() -> None:
    run(ON_GPU + LAYOUTS + VALUES, "cuda")
