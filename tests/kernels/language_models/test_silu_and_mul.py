"""silu_and_mul beyond its cases: what it refuses, other layouts, far values, torch.compile, and the CUDA path."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "silu_and_mul"

TOOLS = """
import torch
import reference
from solution import silu_and_mul

def x_of(tokens, d, dtype="float32", seed=0, spread=1.0, offset=0.0, **more):
    return reference.make_inputs(dict(tokens=tokens, d=d, dtype=dtype, **more), seed, device, spread, offset)["x"]

def right(x, result=None, bound=None):
    result = silu_and_mul(x) if result is None else result
    assert result.shape == (*x.shape[:-1], x.shape[-1] // 2) and result.dtype == x.dtype and result.is_contiguous()
    bound = bound or {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}[x.dtype]
    torch.testing.assert_close(result.double(), reference.truth(x), atol=bound, rtol=bound)
"""

REFUSED = """
def refuses(words, x):
    try:
        silu_and_mul(x)
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

silu_and_mul(torch.zeros(3, 8))  # a form that is known does not let others pass
refuses("torch.float64", torch.zeros(3, 8, dtype=torch.float64))
refuses("torch.int32", torch.zeros(3, 8, dtype=torch.int32))
refuses("x must be rows", torch.zeros(()))
refuses("7 columns", torch.zeros(3, 7))
"""

LAYOUTS = """
whole = x_of(12, 64)
stacked = whole.view(3, 4, 128)
for x in (whole[::2], whole[:, :64], whole[:, ::2], whole.t().contiguous().t(), whole[:1].expand(5, 128), stacked,
          stacked.transpose(0, 1), whole[0], whole[3:3], whole[:, :0], whole[:, 1:3]):
    right(x)
"""

WIDTHS = """
for d in (1, 3, 8, 100, 257):
    for dtype in ("float32", "float16", "bfloat16"):
        right(x_of(3, d, dtype))
"""

FAR = """
# From gates that SiLU lets pass to gates that it shuts: both tails, and the zero between.
shut = [-3e38, -1e4, -200.0, -104.0, -90.0, -88.0, -45.0, -43.0]
opened = [-20.0, -1.0, -0.0, 0.0, 1e-30, 1.0, 20.0, 1e30]
far = torch.tensor(shut + opened + [1.0] * 16, device=device).expand(2, 32).contiguous()
right(far)
lost = far.clone()
lost[0, 13] = float("nan")
assert torch.equal(silu_and_mul(lost).isnan().nonzero().cpu(), torch.tensor([[0, 13]]))  # its neighbours stay
right(x_of(3, 64, offset=30.0)), right(x_of(3, 64, offset=-30.0)), right(x_of(3, 64, spread=30.0))
"""

COMPILED = """
import op

compiled = torch.compile(op.silu_and_mul, fullgraph=True, backend="aot_eager")
for x in (x_of(3, 64), x_of(6, 64).view(2, 3, 128).transpose(0, 1), x_of(3, 64, gap=8)):
    right(x, compiled(x))
    torch.library.opcheck(op.silu_and_mul, (x,), test_utils=("test_schema", "test_faketensor"))
"""

ON_GPU = """
import itertools
from tests.kernels.other_stream import on_another_stream

shapes = [(1, 4096), (1, 28672), (16, 14336), (128, 11008), (1030, 8192), (300, 4100), (33, 131), (9, 8), (70001, 8)]
for dtype, (tokens, d) in itertools.product(("float32", "float16", "bfloat16"), shapes):
    right(x_of(tokens, d, dtype))
for start, gap in itertools.product((0, 1, 8), (0, 8, 3)):
    right(x_of(33, 1024, "bfloat16", start=start, gap=gap))
right(x_of(33, 64, "bfloat16").view(3, 11, 128).transpose(0, 1))

x = x_of(4096, 4096, "bfloat16")
right(x, on_another_stream(silu_and_mul, {"x": x}))
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words_and_any_layout_of_x_is_taken() -> None:
    run(REFUSED + LAYOUTS)


def test_odd_widths_and_gates_far_from_zero() -> None:
    run(WIDTHS + FAR)


def test_the_operator_goes_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_the_cuda_path_on_odd_shapes_layouts_and_another_stream() -> None:
    run(ON_GPU + LAYOUTS + WIDTHS + FAR, "cuda")
