"""ltx2_qknorm_split_rope beyond its cases: refusals, layouts, its roundings, torch.compile, and the CUDA path."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "ltx2_qknorm_split_rope"

TOOLS = """
import torch
import reference
from solution import ltx2_qknorm_split_rope

BOUNDS = {torch.bfloat16: 8e-2, torch.float16: 1e-2, torch.float32: 1e-5}

def inputs_of(q_tokens=3, k_tokens=2, heads=4, head_dim=64, dtype="bfloat16", batch=2, seed=0, spread=1.0, **more):
    sizes = dict(batch=batch, q_tokens=q_tokens, k_tokens=k_tokens, heads=heads, head_dim=head_dim)
    return reference.make_inputs(dict(**sizes, dtype=dtype, eps=1e-6, **more), seed, device, spread)

def right(inputs, results=None):
    results = ltx2_qknorm_split_rope(**inputs) if results is None else results
    for x, result, wanted in zip((inputs["q"], inputs["k"]), results, reference.truth(**inputs), strict=True):
        assert result.shape == x.shape and result.dtype == x.dtype and result.is_contiguous()
        if result.numel() and float((result.double() - wanted).abs().max()) >= BOUNDS[x.dtype]:
            return False
    return True
"""

REFUSED = """
def refuses(words, **change):
    try:
        ltx2_qknorm_split_rope(**{**inputs_of(dtype="float32"), **change})
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

refuses("q must be [B, S, H]", q=torch.zeros(3, 256))
refuses("torch.float64", q=torch.zeros(2, 3, 256, dtype=torch.float64))
refuses("k is [2, 2, 128]", k=torch.zeros(2, 2, 128))
refuses("k is torch.bfloat16", k=torch.zeros(2, 2, 256, dtype=torch.bfloat16))
refuses("q_norm_weight must be of shape [256], not [64]", q_norm_weight=torch.zeros(64))
refuses("k_norm_weight is torch.float16", k_norm_weight=torch.zeros(256, dtype=torch.float16))
refuses("q_cos must be [B, heads, S, half]", q_cos=torch.zeros(2, 4, 3))
refuses("q_cos of shape [2, 4, 3, 16]", q_cos=torch.zeros(2, 4, 3, 16))
refuses("q_sin of shape [2, 4, 2, 32]", q_sin=torch.zeros(2, 4, 2, 32))
refuses("k_cos of shape [1, 4, 2, 32]", k_cos=torch.zeros(1, 4, 2, 32))
refuses("k_sin is torch.bfloat16", k_sin=torch.zeros(2, 4, 2, 32, dtype=torch.bfloat16))
"""

LAYOUTS = """
for dtype in ("bfloat16", "float16", "float32"):
    for table in ("tokens_first", "head_first", "sliced"):
        for _ in range(2):  # the second call finds what the first worked out
            assert right(inputs_of(dtype=dtype, table=table)), (dtype, table)
for heads, head_dim in ((1, 2), (3, 40), (5, 96), (2, 256)):
    assert right(inputs_of(1, 2, heads, head_dim)), (heads, head_dim)
for start in (1, 8, 0):
    assert right(inputs_of(start=start))
inputs = inputs_of(dtype="float32")
wide = torch.randn(4, 6, 512, device=device)
for q in (wide[::2, :3, :256], wide[:2, ::2, 256:], wide[:2, :3, ::2], wide[:2, :1, :256].expand(2, 3, 256)):
    assert right({**inputs, "q": q}), q.stride()
assert right({**inputs, "q_norm_weight": torch.ones(512, device=device)[::2]})
assert right({**inputs, "q_sin": inputs["q_sin"].contiguous()})
assert right(inputs_of(0, 2, dtype="float32")) and right(inputs_of(2, 0, dtype="float32"))
same = inputs_of(2, 2)
assert right({**same, "k": same["q"], "k_cos": same["q_cos"], "k_sin": same["q_sin"]})
assert right(inputs_of(spread=100.0))
"""

ROUNDED = """
# Where the sum of squares is exact, so is everything: rounded as the eager expression does, bit for bit.
inputs = inputs_of(heads=2, head_dim=64)
for name in ("q", "k"):
    inputs[name] = torch.where(inputs[name] < 0, -2.0, 2.0).to(torch.bfloat16)
inputs["eps"] = 0.0
for result, wanted in zip(ltx2_qknorm_split_rope(**inputs), reference.ltx2_qknorm_split_rope(**inputs), strict=True):
    assert torch.equal(result, wanted)
"""

COMPILED = """
import op

inputs = inputs_of()
taken = torch.compile(op.ltx2_qknorm_split_rope, fullgraph=True, backend="aot_eager")(**inputs)
assert right(inputs, taken)
arguments = tuple(inputs.values())
torch.library.opcheck(op.ltx2_qknorm_split_rope, arguments, test_utils=("test_schema", "test_faketensor"))
"""

ON_GPU = """
inputs = inputs_of(2, 2, 32, 128, batch=1)
far = torch.empty(2**31 + 2**13, dtype=torch.bfloat16, device=device)  # its last columns begin beyond 2^31
assert right({**inputs, "q": far.as_strided((1, 2, 4096), (2, 1, 524_417)).copy_(inputs["q"])})
del far
for heads in (1, 7, 8, 24, 32):
    for head_dim in (16, 64, 128, 256):
        assert right(inputs_of(33, 5, heads, head_dim)), (heads, head_dim)
for head_dim in (64, 128):  # the eager expression; torch adds up in another order, which turns a rounding, rarely
    for table in ("tokens_first", "head_first", "sliced"):
        inputs = inputs_of(126, 64, 32, head_dim, table=table)
        wanted = reference.ltx2_qknorm_split_rope(**inputs)
        for result, like in zip(ltx2_qknorm_split_rope(**inputs), wanted, strict=True):
            assert int((result != like).sum()) <= result.numel() // 200, (head_dim, table)
            torch.testing.assert_close(result, like, atol=8e-2, rtol=1e-2)
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words() -> None:
    run(REFUSED)


def test_every_layout_and_width_is_taken_and_rounded_as_production_does() -> None:
    run(LAYOUTS + ROUNDED)


def test_the_operator_goes_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_the_cuda_path_on_odd_shapes_and_against_eager() -> None:
    run(ON_GPU + LAYOUTS + ROUNDED, "cuda")
