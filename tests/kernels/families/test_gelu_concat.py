"""gelu_concat beyond its cases: what it refuses, other layouts, far values, torch.compile, and the CUDA path."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "gelu_concat"

TOOLS = """
import itertools
import torch
import reference
from solution import gelu_concat

def inputs_of(tokens, attended, mlp, dtype="float32", seed=0, spread=1.0, offset=0.0, **more):
    case = dict(tokens=tokens, attended=attended, mlp=mlp, dtype=dtype, **more)
    return tuple(reference.make_inputs(case, seed, device, spread, offset).values())

def right(attended, mlp, result=None):
    result = gelu_concat(attended, mlp) if result is None else result
    width = attended.shape[-1]
    assert result.shape == (*mlp.shape[:-1], width + mlp.shape[-1])
    assert result.dtype == mlp.dtype and result.is_contiguous()
    assert torch.equal(result[..., :width], attended)
    bound = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}[mlp.dtype]
    torch.testing.assert_close(result.double(), reference.truth(attended, mlp), atol=bound, rtol=bound)
"""

REFUSED = """
def refuses(words, attended, mlp):
    try:
        gelu_concat(attended, mlp)
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

rows = torch.zeros(2, 3, 8)
gelu_concat(rows, rows)  # a form that is known does not let others pass
refuses("attended must be rows of float32, bfloat16 or float16, not [2, 3, 8] of torch.float64", rows.double(), rows)
refuses("mlp must be rows of float32, bfloat16 or float16, not [2, 3, 8] of torch.int32", rows, rows.int())
refuses("mlp must be rows", rows, torch.zeros(()))
refuses("attended is torch.float16 on cpu, but mlp torch.float32 on cpu", rows.half(), rows)
refuses("attended of shape [2, 1, 8] and mlp of [2, 3, 8] have different rows", rows[:, :1], rows)
refuses("attended of shape [3, 8] and mlp of [2, 3, 8] have different rows", rows[0], rows)
"""

LAYOUTS = """
whole = torch.randn(12, 160, device=device)
stacked = whole.view(3, 4, 160)
views = [whole, whole[::2], whole[:, ::2], whole.t().contiguous().t(), whole[:1].expand(5, 160), stacked, whole[:1],
         stacked.transpose(0, 1), stacked.transpose(0, 1).contiguous().transpose(0, 1), whole[0], whole[3:3]]
for x in views:
    right(x[..., :32], x[..., 32:])  # both slices of one wider buffer
    right(x[..., 32:].contiguous(), x[..., :32]), right(x[..., 1:33], x[..., 40:47])
    right(x[..., :0], x), right(x, x[..., :0]), right(x, x)
"""

WIDTHS = """
for widths in ((1, 1), (3, 8), (8, 3), (100, 257), (257, 100)):
    for dtype in ("float32", "float16", "bfloat16"):
        right(*inputs_of(3, *widths, dtype))
"""

FAR = """
# From values that GELU shuts off to values that it lets pass: both tails, where x cubed is infinite, the zero between.
shut = [-3e38, -1e20, -1e13, -1e4, -20.0, -9.0, -8.0, -7.6, -7.5, -5.0]
near = [-2.0, -1.0, -0.5, -1e-30, -0.0, 0.0, 1e-30, 0.5, 1.0, 2.0]
far = torch.tensor(shut + near + [7.5, 1e13, 1e20, 3e38], device=device)
copied = torch.randn(2, 8, device=device)
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    mlp = far.clamp(-60000, 60000).to(dtype) if dtype == torch.float16 else far.to(dtype)
    mlp = mlp.expand(2, 24).contiguous()
    right(copied.to(dtype), mlp)
    result = gelu_concat(copied.to(dtype), mlp)[:, 8:]
    assert not result[:, :5].any() and torch.equal(result[:, -4:], mlp[:, -4:]), result
    lost = mlp.clone()
    lost[0, 13] = float("nan")
    assert torch.equal(gelu_concat(copied.to(dtype), lost).isnan().nonzero().cpu(), torch.tensor([[0, 21]]))
endless = torch.tensor([[float("inf"), -float("inf")] * 4], device=device)
assert torch.equal(gelu_concat(endless, endless).isnan(), reference.gelu_concat(endless, endless).isnan())  # as torch
for offset, spread in ((30.0, 1.0), (-30.0, 1.0), (0.0, 30.0)):
    right(*inputs_of(3, 64, 64, offset=offset, spread=spread))
"""

NEAR_THE_TRUTH = """
# No further from the truth than torch's GELU in the same dtype.
for dtype in dtypes:
    attended, mlp = inputs_of(64, 8, 4096, dtype, spread=2.0)
    exact, ours, torchs = (f(attended, mlp).double() for f in (reference.truth, gelu_concat, reference.gelu_concat))
    error, torchs_error = (ours - exact).abs(), (torchs - exact).abs()
    assert error.max() <= 1.05 * torchs_error.max(), (dtype, error.max(), torchs_error.max())
    assert error.square().mean() <= 1.05 * torchs_error.square().mean(), dtype
"""

COMPILED = """
import op

compiled = torch.compile(op.gelu_concat, fullgraph=True, backend="aot_eager")
wide = torch.randn(3, 2, 96).transpose(0, 1)
for given in (inputs_of(3, 64, 32), inputs_of(3, 8, 64, gap=8), (wide[..., :32], wide[..., 32:])):
    right(*given, compiled(*given))
    torch.library.opcheck(op.gelu_concat, given, test_utils=("test_schema", "test_faketensor"))
"""

ON_GPU = """
from tests.kernels.other_stream import on_another_stream

shapes = [(1, 3072, 12288), (16, 3072, 12288), (1030, 3072, 12288), (300, 100, 4100), (33, 131, 8), (9, 8, 8)]
for dtype, shape in itertools.product(("float32", "float16", "bfloat16"), [*shapes, (70001, 8, 16)]):
    right(*inputs_of(*shape, dtype))
for start, gap, batch in itertools.product((0, 1, 8), (0, 8, 3), (1, 2)):
    right(*inputs_of(33, 256, 1024, "bfloat16", start=start, gap=gap, batch=batch))

attended, mlp = inputs_of(2048, 3072, 12288, "bfloat16")
right(attended, mlp, on_another_stream(gelu_concat, {"attended": attended, "mlp": mlp}, "mlp"))
dtypes = ("float32", "float16", "bfloat16")
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words_and_any_layout_is_taken() -> None:
    run(REFUSED + LAYOUTS)


def test_odd_widths_and_values_far_from_zero() -> None:
    run(WIDTHS + FAR)


def test_it_is_no_further_from_the_truth_than_torch() -> None:
    run("dtypes = ('float32', 'float16')" + NEAR_THE_TRUTH)  # the interpreter truncates to bf16


def test_the_operator_goes_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_the_cuda_path_on_odd_shapes_layouts_and_another_stream() -> None:
    run(ON_GPU + LAYOUTS + WIDTHS + FAR + NEAR_THE_TRUTH, "cuda")
