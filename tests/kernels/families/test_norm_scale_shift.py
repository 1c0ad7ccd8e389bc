"""norm_scale_shift beyond its cases: what it refuses, offsets, torch.compile, and on a GPU the CUDA paths."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "norm_scale_shift"

TOOLS = """
import itertools
import torch
import reference
from reference import PLAIN, RESIDUAL
from solution import norm_scale_shift

def case(variant, shape, dtype, layout, norm_type="layer", **more):
    axes = dict(variant=variant, shape=shape, dtype=dtype, layout=layout, norm_type=norm_type, eps=1e-6)
    return {**axes, **more}

def error(inputs, result):
    exact = reference.truth(**inputs)
    pairs = zip(exact, result) if isinstance(result, tuple) else [(exact, result)]
    return float(torch.stack([(got.double() - wanted).abs().max() for wanted, got in pairs]).max())  # NaN included
"""

REFUSED = """
def refuses(words, **change):
    inputs = reference.make_inputs(case(RESIDUAL, [2, 6, 2, 256], "float32", "BF1D"), 0, "cpu")
    inputs.update(change)
    try:
        norm_scale_shift(**inputs)
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

norm_scale_shift(**reference.make_inputs(case(RESIDUAL, [2, 6, 2, 256], "float32", "BF1D"), 0, "cpu"))
three = torch.zeros(2, 4, 1, 256)  # what was right once is asked anew: a plan that is known must hide nothing
refuses("6 tokens are no multiple of 4 frames", scale=three)
refuses("6 tokens are no multiple of 4 frames", gate=three)
refuses("shift of shape [3, 256] is none of", shift=torch.zeros(3, 256))
refuses("shift of shape [2, 5, 256] is none of", shift=torch.zeros(2, 5, 256))
refuses("scale of shape [255] is none of", scale=torch.zeros(255))
refuses("variant", variant="norm")
refuses("norm_type", norm_type="batch")
refuses("residual", residual=None)
refuses("residual", residual=torch.zeros(2, 6, 256, dtype=torch.float16))
refuses("no residual", variant=PLAIN)
refuses("no residual", variant=PLAIN, gate=None)
refuses("no residual", variant=PLAIN, residual=None)
refuses("must be given", scale=None)
refuses("must be a float tensor on cpu", shift=torch.zeros(2, 2, 1, 256, device="meta"))
refuses("weight", weight=torch.ones(255))
refuses("float64", x=torch.zeros(2, 6, 256, dtype=torch.float64))
refuses("[6, 256]", x=torch.zeros(6, 256))
"""

OFFSETS = """
def with_an_outlier(value, cols):
    inputs = reference.make_inputs(case(PLAIN, [1, 300, 1, cols], "float32", "1D"), 1, device)
    inputs["x"][..., 0] = value
    exact = reference.truth(**inputs)
    return float(((norm_scale_shift(**inputs).double() - exact).abs() / (1e-5 + 1e-5 * exact.abs())).max())

for value in (1e2, 1e4):
    for cols in (3072, 3071, 5121, 5128):  # as far off as the task's tolerance lets it be
        assert with_an_outlier(value, cols) < 1, (value, cols, with_an_outlier(value, cols))

def far(dtype, offset, spread, cols):
    inputs = reference.make_inputs(case(PLAIN, [1, 3, 1, cols], dtype, "1D"), 1, device, spread, offset)
    return error(inputs, norm_scale_shift(**inputs))

for cols in (3072, 3071, 3080):
    assert far("float32", 1e3, 1e-1, cols) < 5e-3, far("float32", 1e3, 1e-1, cols)
    assert far("bfloat16", 16.0, 1.0, cols) < 0.1, far("bfloat16", 16.0, 1.0, cols)
"""

FORMS = """
def same_arguments_but(axes, **changes):
    inputs = reference.make_inputs(axes, 3, device)
    for name, values in changes.items():
        for value in values:
            changed = {**inputs, name: value}
            off = error(changed, norm_scale_shift(**changed))
            assert off < 1.3e-1, (axes["variant"], name, off)

torch.manual_seed(0)
table = torch.randn(1, 5, 2 * 256).mul(0.3).bfloat16().to(device)
of_tokens, row = table[..., :256], table[0, 0, :256]
one_each = table[..., :1].expand(1, 5, 256)  # a value for a row, which is none for all
for variant in (PLAIN, RESIDUAL):
    changes = {"scale": [row, of_tokens, one_each, row.float()], "shift": [row, of_tokens.contiguous()]}
    changes |= {"eps": [1e-6, 1.0], "norm_type": ["rms", "layer"], "weight": [row, None], "bias": [row, None]}
    changes |= {"gate": [row, None, of_tokens]} if variant == RESIDUAL else {}
    same_arguments_but(case(variant, [1, 5, 1, 256], "bfloat16", "1D"), **changes)
"""

SHARES = """
from cuda_rows import choose

for cols in range(1, 8193, 29):
    for width in (8, 4, 1):
        for rows, residual, places in ((9, False, ()), (9000, False, ()), (9000, True, ()), (9000, False, ("Token",))):
            vectors = -(-cols // width)
            found = choose(rows, vectors * width, width, 2, residual, places, 132)
            assert found.threads % 32 == 0 and found.threads * found.blocks <= 2048, (cols, found)
            assert (found.chunks - 1) * found.threads < vectors <= found.chunks * found.threads, (cols, found)
            assert -(-vectors // (32 * found.chunks)) * 32 == found.threads, (cols, found)  # as solution.cu has it
"""

COMPILED = """
import op

for variant, layout in ((PLAIN, "1D"), (RESIDUAL, "BSD")):
    inputs = reference.make_inputs(case(variant, [1, 2, 1, 256], "float32", layout, affine="float32"), 2, "cpu")
    taken = torch.compile(op.norm_scale_shift, fullgraph=True, backend="aot_eager")(**inputs)
    assert error(inputs, taken) < 1e-5
for operator, names in (
    (op.plain, "x weight bias scale shift norm_type eps"),
    (op.residual_gate, "x residual gate weight bias scale shift norm_type eps"),
):
    torch.library.opcheck(operator, tuple(inputs[name] for name in names.split()))
"""

ON_GPU = """
from tests.kernels.other_stream import on_another_stream

device = "cuda"
loose = {"float32": 2e-5, "float16": 2e-2, "bfloat16": 1.3e-1}

def right(axes, seed=0, change=None):
    inputs = reference.make_inputs(axes, seed, device)
    inputs.update(change(inputs) if change else {})
    off = error(inputs, norm_scale_shift(**inputs))
    assert off < loose[axes["dtype"]], (axes, off)

layouts = ["BSD", "1", "1SD", "BD", "B1D", "D", "1D", "11D", "BF1D"]
dtypes = itertools.cycle(loose)  # every kernel takes a moment to compile: each dtype meets a third of the shapes
for variant in (PLAIN, RESIDUAL):
    for layout, cols in zip(layouts, (256, 512, 768, 1536, 3072, 3840, 4096, 5120, 8192)):
        norm_type = "rms" if cols in (768, 4096) else "layer"
        right(case(variant, [3, 34, 17, cols], next(dtypes), layout, norm_type, gate="BF1D"))
    for rows, cols in ((1, 256), (19, 1280), (257, 3072), (1031, 4096), (3001, 5120), (9000, 3328), (2500, 8192)):
        right(case(variant, [1, rows, 1, cols], next(dtypes), "1D", modulation_dtype="float32", gate="1D"))
        right(case(variant, [1, rows, 1, cols], next(dtypes), "1", "rms", gate="", affine="float32"))
        right(case(variant, [1, rows, 1, cols], "bfloat16", "BSD", gate="1"))
    for rows, cols in zip((9, 700) * 6, (1, 33, 70, 1153, 2047, 2240, 3071, 3080, 5121, 5124, 5128, 8191)):
        right(case(variant, [1, rows, 1, cols], next(dtypes), "1D"))
    for cols, layout in ((1156, "BSD"), (3080, "BF1D"), (3071, "BF1D"), (8200, "1D")):
        right(case(variant, [2, 340, 17, cols], next(dtypes), layout, affine="float32"))
    right(case(variant, [1, 50, 1, 1000], "bfloat16", "1D"))
    right(case(variant, [1, 300, 1, 1000], "bfloat16", "1SD", scale_stride=[1, 1004, 1], shift_stride=[1, 1001, 1]))
    right(case(variant, [1, 50, 1, 3072], "float16", "1SD", x_stride=[400000, 6144, 1], residual_stride=[1, 3080, 1]))
    right(case(variant, [1, 300, 1, 512], "float32", "D", scale_stride=[2], shift_stride=[3], gate_stride=[2]))
    for name in ("x", "scale", "shift"):
        def moved(inputs):
            flat = inputs[name].flatten()
            return {name: torch.cat([flat[:1], flat])[1:].view(inputs[name].shape)}
        right(case(variant, [1, 40, 1, 256], "bfloat16", "1D"), change=moved)

inputs = reference.make_inputs(case(RESIDUAL, [1, 20000, 1, 3072], "bfloat16", "1D"), 5, device)
assert error(inputs, on_another_stream(norm_scale_shift, inputs)) < loose["bfloat16"]
"""


def run(*parts: str, interpreted: bool = True) -> None:
    processes.run(TOOLS + "".join(parts), TASK, interpreted)


def test_refuses_what_it_cannot_do() -> None:
    run(REFUSED)


def test_far_from_zero() -> None:
    run("device = 'cpu'\n", OFFSETS)


def test_calls_of_one_shape_are_told_apart() -> None:
    run("device = 'cpu'\n", FORMS)


def test_shares_of_a_row_hold_it() -> None:
    run(SHARES)


def test_operator_in_a_compiled_graph() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_cuda_paths() -> None:
    run(ON_GPU, OFFSETS, interpreted=False)


@pytest.mark.gpu
def test_calls_of_one_shape_are_told_apart_on_a_gpu() -> None:
    run("device = 'cuda'\n", FORMS, interpreted=False)
