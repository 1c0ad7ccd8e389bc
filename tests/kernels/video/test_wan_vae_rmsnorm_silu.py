"""wan_vae_rmsnorm_silu beyond its cases: refusals, layouts, its distance from the exact result, operators, CUDA."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "wan_vae_rmsnorm_silu"

TOOLS = """
import itertools
import torch
import reference
import solution
from solution import wan_vae_rmsnorm_silu

def inputs_of(x, layout="channels_last_3d", dtype="bfloat16", seed=0, spread=1.0, offset=0.0, **more):
    return reference.make_inputs(dict(x=x, layout=layout, dtype=dtype, **more), seed, device, spread, offset)

def check(inputs, result=None):
    # No further from the exact result than the production chain is, but for fp32's last bits.
    x = inputs["x"]
    result = wan_vae_rmsnorm_silu(**inputs) if result is None else result
    produced = reference.wan_vae_rmsnorm_silu(**inputs)
    exact = reference.truth(**inputs)
    assert result.dtype == x.dtype and result.shape == x.shape and result.stride() == torch.empty_like(x).stride()
    if x.dtype == torch.float32:
        torch.testing.assert_close(result.double(), exact, atol=1e-5, rtol=1e-5, equal_nan=True)
        return
    assert torch.equal(result.isnan(), produced.isnan())
    own, theirs = ((side.double() - exact).nan_to_num().abs() for side in (result, produced))
    if not x.numel():
        return
    assert own.max() <= theirs.max() and own.mean() <= theirs.mean(), (x.shape, x.stride(), own.max(), theirs.max())
"""

REFUSED = """
def refuses(words, **change):
    inputs = inputs_of("1x16x1x3x4", dtype="float32")
    check(inputs)  # a plan that is known must hide nothing
    try:
        wan_vae_rmsnorm_silu(**{**inputs, **change})
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

refuses("[16]", x=torch.zeros(16))
refuses("torch.float64", x=torch.zeros(1, 16, 1, 3, 4, dtype=torch.float64))
refuses("32769 channels", x=torch.zeros(1, 32769, 1, 1, 1))
refuses("0 channels", x=torch.zeros(1, 0, 1, 1, 1))
refuses("gamma of shape [15]", gamma=torch.ones(15))
refuses("gamma of shape [1, 16]", gamma=torch.ones(1, 16))
refuses("bias of shape [16, 2]", bias=torch.ones(16, 2))
refuses("gamma is torch.bfloat16", gamma=torch.ones(16, dtype=torch.bfloat16))
"""

LAYOUTS = """
SHAPES = ("1x96x2x6x5", "2x37x3x4x4", "1x384x1x4x6", "2x1x2x30x8")
for layout, dtype, bias in itertools.product(reference.ORDERS, ("bfloat16", "float16", "float32"), (False, True)):
    for x in SHAPES:
        check(inputs_of(x, layout, dtype, bias=bias))
for layout in reference.ORDERS:
    for start in (1, 4, 8):
        check(inputs_of("1x64x2x4x8", layout, start=start, bias=True))
    check(inputs_of("2x64x2x4x8", layout, spread=1e4))
    check(inputs_of("2x64x2x4x8", layout, spread=1e-6, offset=1e-5))
    check(inputs_of("2x64x0x4x8", layout))
x = torch.randn(2, 64, 3, 4, 16, device=device).bfloat16()
gamma = torch.randn(64, 2, device=device).bfloat16()
last = x.to(memory_format=torch.channels_last_3d)
views = [x[:, :, :0, :, ::2], x[:0, ..., ::2]]
views += [x[:, :, 1:], x[:, :, ::2], x[..., ::2], x.transpose(3, 4), last[..., 1:], last[:, :, 1:], x[0], x[0, :, 0, 0]]
for view in views:
    wide = view if view.dim() > 2 else view.mT
    wide = wide.unsqueeze(0) if wide.dim() == 4 else wide
    for gain in (gamma[:, 0], gamma[:, 0].clone()):
        check({"x": wide, "gamma": gain.view(64, *[1] * (wide.dim() - 2)), "bias": None})
"""

EDGES = """
for layout, dtype in itertools.product(reference.ORDERS, ("bfloat16", "float32")):
    inputs = inputs_of("1x64x2x4x8", layout, dtype, bias=True)
    x = inputs["x"]
    x[0, :, 0, 0] = 0.0  # nothing to normalize: the bias alone
    x[0, 3, 0, 1, 0], x[0, 3, 0, 2, 0], x[0, 5, 1, 3, 3] = float("nan"), float("inf"), -float("inf")
    x[0, :, 1, 0], x[0, :, 1, 1] = 1e-14, 1e-30
    result, produced = wan_vae_rmsnorm_silu(**inputs), reference.wan_vae_rmsnorm_silu(**inputs)
    assert torch.equal(result.isnan(), produced.isnan()) and bool(result[0, :, 0, 1, 0].isnan().all())
    torch.testing.assert_close(result, produced, atol=2e-2, rtol=2e-2, equal_nan=True)
    inputs = {**inputs_of("1x64x2x4x8", layout, dtype), "gamma": inputs["gamma"] * 300}  # far into both ends of SiLU
    result, produced = wan_vae_rmsnorm_silu(**inputs), reference.wan_vae_rmsnorm_silu(**inputs)
    torch.testing.assert_close(result, produced, atol=2e-2, rtol=2e-2)
"""

COMPILED = """
import op

for layout, bias in itertools.product(reference.ORDERS, (False, True)):
    inputs = inputs_of("1x16x2x3x5", layout, "float32", bias=bias)
    check(inputs, torch.compile(op.wan_vae_rmsnorm_silu, fullgraph=True, backend="aot_eager")(**inputs))
    torch.library.opcheck(op.wan_vae_rmsnorm_silu, (), inputs, test_utils=("test_schema", "test_faketensor"))
"""

ON_GPU = """
from tests.kernels.other_stream import on_another_stream

forms = itertools.cycle(itertools.product(("bfloat16", "float16", "float32"), (False, True)))
for x in ("1x96x4x24x40", "2x160x1x31x24", "1x384x2x48x80", "1x13x3x9x8", "3x1024x1x9x8", "1x2048x1x3x3"):
    for layout, (dtype, bias) in zip(reference.ORDERS, forms):
        check(inputs_of(x, layout, dtype, bias=bias))
in_cuda = [launch for alike in solution._plans.values() for _, launch, *_ in alike if launch is not None]
assert len(in_cuda) > 20, len(in_cuda)

inputs = inputs_of("1x192x2x96x160")
check(inputs, on_another_stream(wan_vae_rmsnorm_silu, inputs))
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words() -> None:
    run(REFUSED)


def test_every_layout_is_no_further_from_the_exact_result_than_production() -> None:
    run(LAYOUTS)


def test_zeros_and_what_is_no_number_come_out_as_in_production() -> None:
    run(EDGES)


def test_the_operator_goes_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_the_cuda_paths_on_odd_shapes_and_another_stream() -> None:
    run(LAYOUTS + EDGES + ON_GPU, "cuda")
