"""residual_gate_add beyond its cases: what it refuses, every gate and width, odd addresses, operators, CUDA."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "residual_gate_add"

TOOLS = """
import torch
import reference
import solution
from solution import residual_gate_add

bounds = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 2e-3}

def gated(tokens, cols, gate, dtype="float32", batch=1, **more):
    case = dict(variant="residual_gate_add", batch=batch, tokens=tokens, cols=cols, gate=gate, dtype=dtype, **more)
    return reference.make_inputs(case, 1, device)

def added(frames, parts, cols, dtype="float32", **more):
    case = dict(variant="broadcast_add_4d", batch=1, tokens=frames, parts=parts, cols=cols, dtype=dtype, **more)
    return reference.make_inputs(case, 1, device)

def check(inputs, result=None):
    result = residual_gate_add(**inputs) if result is None else result
    first = inputs["residual" if "residual" in inputs else "b"]
    assert result.shape == first.shape and result.dtype == first.dtype and result.is_contiguous()
    right, bound = reference.truth(**inputs), bounds[str(first.dtype).split(".")[1]]
    error = (result.double() - right).abs()
    assert bool((error <= bound * (1 + right.abs())).all()), (inputs["variant"], first.shape, float(error.max()))
    others = [value for value in inputs.values() if isinstance(value, torch.Tensor)]
    assert not first.numel() or result.data_ptr() not in [value.data_ptr() for value in others]
"""

REFUSED = """
def refuses(words, inputs, **change):
    residual_gate_add(**inputs)  # a plan that is known must hide nothing
    try:
        residual_gate_add(**{**inputs, **change})
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

rows = gated(4, 16, "row")
refuses("variant 'gate'", rows, variant="gate")
refuses("one of them is None", rows, gate=None)
refuses("residual has shape [4, 16]", rows, residual=torch.zeros(4, 16))
refuses("update has shape [1, 3, 16]", rows, update=torch.zeros(1, 3, 16))
refuses("gate of shape [1, 4, 1]", rows, gate=torch.zeros(1, 4, 1))
refuses("gate of shape [16]", rows, gate=torch.zeros(16))
refuses("gate is torch.bfloat16", rows, gate=rows["gate"].bfloat16())
refuses("update is torch.float32 on meta", rows, update=rows["update"].to("meta"))
refuses("strides (64, 1, 4)", rows, update=torch.zeros(1, 16, 4).transpose(1, 2))
wide = {name: value.double() if name != "variant" else value for name, value in rows.items()}
refuses("torch.float64", rows, **wide)
sums = added(4, 3, 8)
refuses("one of them is None", sums, a=None)
refuses("b has shape [2, 4, 3, 8]", sums, b=torch.zeros(2, 4, 3, 8))
refuses("a has shape [1, 1, 2, 8]", sums, a=torch.zeros(1, 1, 2, 8))
refuses("b has strides", sums, b=torch.zeros(1, 3, 4, 8).transpose(1, 2))
"""

SIZES = """
for _ in range(2):  # the plan of one form is there when another of the same shape comes
    for dtype in bounds:
        for gate in ("full", "row", "batch"):
            check(gated(5, 24, gate, dtype, batch=2))
for cols in (1, 7, 8, 100, 257):
    for gate in ("full", "row"):
        check(gated(3, cols, gate))
    check(added(3, 2, cols))
    check(added(1, 1, cols))
for tokens in (0, 1):
    check(gated(tokens, 16, "row"))
    check(added(tokens, 2, 16))
same = gated(4, 16, "full")
check({**same, "update": same["residual"], "gate": same["residual"]})
for start in (0, 1, 3, 8):
    check(gated(9, 64, "row", "bfloat16", start=start))
    check(gated(9, 64, "full", "bfloat16", start=start))
    check(added(5, 3, 64, "float16", start=start))
for values in ("signs", "zeros"):
    check(gated(6, 40, "row", "bfloat16", values=values))
packed = torch.randn(1, 1, 6 * 24, device=device)[:, :, 24:48]  # contiguous to torch: one row of a packed buffer
check({**gated(5, 24, "row"), "gate": packed})
"""

COMPILED = """
import op

for operator, inputs in ((op.residual_gate_add, gated(4, 16, "row")), (op.broadcast_add_4d, added(4, 3, 8))):
    given = {name: value for name, value in inputs.items() if name != "variant"}
    check(inputs, torch.compile(operator, fullgraph=True, backend="aot_eager")(**given))
    torch.library.opcheck(operator, (), given, test_utils=("test_schema", "test_faketensor"))
"""

ON_GPU = """
from tests.kernels.other_stream import on_another_stream

for dtype in bounds:
    for tokens, cols in ((1, 8), (126, 2048), (301, 1000), (70, 131), (513, 3072), (8193, 4096), (2050, 9000)):
        for gate in ("full", "row"):
            check(gated(tokens, cols, gate, dtype))
        check(added(min(tokens, 301), 3, min(cols, 2048), dtype))
    check(gated(65, 256, "batch", dtype, batch=3))
    check(gated(4099, 2048, "batch", dtype, batch=3))
    check(gated(3, 5, "batch", dtype, batch=3))
assert any(launch is not None for alike in solution._gated_plans.values() for _, launch, *_ in alike)

inputs = gated(4096, 128, "row", "bfloat16")
check(inputs, on_another_stream(residual_gate_add, inputs, "residual"))
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words() -> None:
    run(REFUSED)


def test_every_gate_width_and_address_is_taken() -> None:
    run(SIZES)


def test_the_operators_go_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_the_cuda_paths_on_odd_shapes_and_another_stream() -> None:
    run(ON_GPU + SIZES, "cuda")
