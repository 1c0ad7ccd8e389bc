"""ernie_adaln_residual_gate beyond its cases: what it refuses, eager torch's bits, odd widths, operators, CUDA."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "ernie_adaln_residual_gate"

TOOLS = """
import torch
import reference
import solution
from solution import ernie_adaln_residual_gate

VARIANTS = (reference.SELF, reference.RESIDUAL, reference.GATE)

def inputs_of(variant, tokens, cols, dtype="bfloat16", seed=0, spread=1.0, offset=0.0, **more):
    case = dict(variant=variant, tokens=tokens, cols=cols, dtype=dtype, **more)
    return reference.make_inputs(case, seed, device, spread, offset)

def check(inputs, results=None):
    results = ernie_adaln_residual_gate(**inputs) if results is None else results
    wanted = reference.ernie_adaln_residual_gate(**inputs)
    results, wanted = (item if isinstance(item, tuple) else (item,) for item in (results, wanted))
    first = inputs["x" if "x" in inputs else "residual"]
    for got, right in zip(results, wanted, strict=True):
        assert got.shape == first.shape and got.dtype == first.dtype and got.is_contiguous()
        if first.dtype == torch.float32:
            torch.testing.assert_close(got, right, atol=1e-5, rtol=1e-5)
            continue
        other = int((got != right).sum())  # a sum of squares in another order may turn a rounding, rarely
        assert other <= max(1, got.numel() // 200), (inputs["variant"], first.shape, other)
        torch.testing.assert_close(got, right, atol=5e-2, rtol=5e-2)
    if inputs["variant"] != reference.SELF:
        assert torch.equal(results[-1], wanted[-1]), "the gated sum has to be bit for bit eager's"
"""

REFUSED = """
def refuses(words, of, **change):
    inputs = inputs_of(of, 3, 64, "float32")
    ernie_adaln_residual_gate(**inputs)  # a plan that is known must hide nothing
    try:
        ernie_adaln_residual_gate(**{**inputs, **change})
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

own, both, gate = VARIANTS
refuses("variant 'adaln'", own, variant="adaln")
refuses("needs weight", own, weight=None)
refuses("needs residual", gate, residual=None)
refuses("[3, 64]", own, x=torch.zeros(3, 64))
refuses("torch.float64", own, x=torch.zeros(1, 3, 64, dtype=torch.float64))
refuses("weight has shape [63]", own, weight=torch.ones(63))
refuses("scale has shape [1, 3, 64]", both, scale=torch.ones(1, 3, 64))
refuses("shift has shape [64]", both, shift=torch.ones(64))
refuses("update has shape [1, 2, 64]", gate, update=torch.ones(1, 2, 64))
refuses("gate is torch.bfloat16", gate, gate=torch.ones(1, 1, 64, dtype=torch.bfloat16))
refuses("update has strides", both, update=torch.ones(1, 64, 3).transpose(1, 2))
refuses("weight has strides", both, weight=torch.ones(128)[::2])
refuses("65536 bytes", own, x=torch.zeros(1, 1, 16385))
"""

SIZES = """
for variant in VARIANTS:
    for dtype in ("bfloat16", "float16", "float32"):
        for tokens, cols in ((3, 256), (5, 100), (2, 131), (1, 8), (4, 1)):
            check(inputs_of(variant, tokens, cols, dtype))
    check(inputs_of(variant, 3, 128, batch=2, chunks=6))
    for start in (1, 4, 8):
        check(inputs_of(variant, 3, 128, start=start))
    check(inputs_of(variant, 4, 256, spread=30.0))
    check(inputs_of(variant, 4, 256, offset=16.0))
    check(inputs_of(variant, 0, 64))
same = inputs_of(reference.GATE, 3, 64)
check({**same, "update": same["residual"]})
for eps in (1e-6, 1.0):
    check({**inputs_of(reference.SELF, 3, 64), "eps": eps})
"""

COMPILED = """
import op

for variant in VARIANTS:
    inputs = inputs_of(variant, 4, 64, "float32")
    given = {name: value for name, value in inputs.items() if name != "variant"}
    operator = getattr(op, variant)
    check(inputs, torch.compile(operator, fullgraph=True, backend="aot_eager")(**given))
    torch.library.opcheck(operator, (), given, test_utils=("test_schema", "test_faketensor"))
"""

ON_GPU = """
from tests.kernels.other_stream import on_another_stream

for variant in VARIANTS:
    for dtype in ("bfloat16", "float16", "float32"):
        for tokens, cols in ((1, 8), (33, 4096), (300, 1000), (301, 4096), (513, 5128), (270, 8192), (280, 16384)):
            check(inputs_of(variant, tokens, cols, dtype, chunks=6))
assert any(launch is not None for alike in solution._plans.values() for _, launch, *_ in alike)

inputs = inputs_of(reference.RESIDUAL, 300, 4096)
check(inputs, on_another_stream(ernie_adaln_residual_gate, inputs, "residual"))
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words() -> None:
    run(REFUSED)


def test_every_step_is_rounded_as_in_eager_torch_at_every_width() -> None:
    run(SIZES)


def test_the_operators_go_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_the_cuda_paths_on_odd_shapes_and_another_stream() -> None:
    run(ON_GPU + SIZES, "cuda")
