"""norm_tanh_mul_add beyond its cases: what it refuses, offsets, torch.compile, and on a GPU the CUDA path."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "norm_tanh_mul_add"

TOOLS = """
import torch
import reference
from solution import DUAL, SINGLE, norm_tanh_mul_add

def inputs_of(variant, batch, tokens, cols, dtype, norm="rms", affine="weight", spread=1.0, offset=0.0, **more):
    case = dict(variant=variant, batch=batch, tokens=tokens, cols=cols, dtype=dtype, norm=norm, affine=affine)
    layouts = more or dict(scale="11D", shift="BSD", chunks=4)
    return reference.make_inputs({**case, **layouts}, 0, device, spread, offset)

def error(inputs, result=None):
    result = norm_tanh_mul_add(**inputs) if result is None else result
    pairs = [(result, reference.truth(**inputs))]
    if inputs["variant"] == DUAL:
        pairs = list(zip(*pairs[0], strict=True))
    assert all(got.shape == inputs["x"].shape and got.dtype == inputs["x"].dtype for got, _ in pairs)
    worst = [((got.double() - exact).abs() / (1 + exact.abs())).max() for got, exact in pairs]
    return float(torch.stack(worst).max())  # NaN included
"""

REFUSED = """
def refuses(words, **change):
    inputs = {**inputs_of(DUAL, 2, 3, 256, "float32"), **change}
    try:
        norm_tanh_mul_add(**inputs)
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

# What was right once is asked anew: a plan that is known must hide nothing.
norm_tanh_mul_add(**inputs_of(DUAL, 2, 3, 256, "float32"))
# Layouts that the contract names and the operator has never taken: 1, D, 1D, BD, BF1D; then what no layout allows.
for shape in ([1], [256], [1, 256], [2, 256], [2, 3, 1, 256]):
    for name in ("scale", "shift", "scale2"):
        refuses(f"{name} of shape {shape}", **{name: torch.zeros(shape)})
refuses("cannot be broadcast", shift=torch.zeros(2, 2, 256))
refuses("packed columns", scale=torch.zeros(1, 1, 512)[..., ::2])
refuses("1 to 8192 packed columns", x=torch.zeros(2, 3, 0))
refuses("1 to 8192 packed columns", x=torch.zeros(2, 3, 8193))
refuses("weight of shape [256]", x=torch.zeros(2, 3, 255))
refuses("[6, 256]", x=torch.zeros(6, 256))
refuses("torch.float64", x=torch.zeros(2, 3, 256, dtype=torch.float64))
refuses("torch.bfloat16", scale=torch.zeros(1, 1, 256, dtype=torch.bfloat16))
refuses("weight2 of shape [255]", weight2=torch.ones(255))
refuses("variant 'norm'", variant="norm")
refuses("norm_type 'batch'", norm_type="batch")
refuses("scale and shift", shift=None)
refuses("scale2", scale2=None)
refuses("scale2", variant=SINGLE)
refuses("on meta", shift=torch.zeros(2, 3, 256, device="meta"))
"""

OFFSETS = """
def far_from_zero(variant, dtype, norm, spread, offset, cols=3840):
    inputs = inputs_of(variant, 1, 3, cols, dtype, norm, "weight", spread, offset)
    return {**inputs, "shift": inputs["shift"] - offset}

for variant in (SINGLE, DUAL):
    for cols in (3840, 1153):
        assert error(far_from_zero(variant, "float32", "layer", 0.1, 1e3, cols)) < 5e-3
    for norm in ("layer", "rms"):
        assert error(far_from_zero(variant, "bfloat16", norm, 1.0, 16.0)) < 5e-2, (variant, norm)
"""

FORMS = """
def same_arguments_but(inputs, **changes):
    for name, values in changes.items():
        for value in values:
            assert error({**inputs, name: value}) < 2e-2, (inputs["variant"], name)

torch.manual_seed(0)
wide = torch.randn(2, 3, 512).mul(0.5).bfloat16().to(device)
strided, packed, one = wide[..., :256], wide[..., 256:].contiguous(), wide[:1, :1, :256]
gains = [None, wide[0, 0, :256], wide[0, 0, 1:257]]  # absent, on 16 bytes, off them
for variant in (SINGLE, DUAL):
    numbers = {"eps": [1e-5, 1.0], "norm_type": ["layer", "rms"]}
    changes = {"x": [packed, strided], "scale": [one, packed], "shift": [packed, one]}
    changes |= {"weight": gains, "bias": gains[:2]}
    seconds = {"scale2": [one, packed], "weight2": gains, "bias2": gains[:2]} if variant == DUAL else {}
    same_arguments_but(inputs_of(variant, 2, 3, 256, "bfloat16"), **changes, **seconds, **numbers)
    for cols, layout in ((1, "BSD"), (7, "1SD"), (136, "B1D"), (1153, "11D"), (2052, "BSD")):
        for norm, affine in (("rms", "weight"), ("layer", "weight+bias")):
            assert error(inputs_of(variant, 2, 3, cols, "float32", norm, affine, layout=layout)) < 2e-5, (cols, layout)
"""

COMPILED = """
import op

single, dual = inputs_of(SINGLE, 1, 3, 256, "float32"), inputs_of(DUAL, 1, 3, 256, "float32")
for operator, inputs, absent in (
    (op.norm_tanh_mul_add, single, ("weight2", "bias2", "scale2", "variant")),
    (op.norm_tanh_mul_add_norm_scale, dual, ("variant",)),
):
    given = {name: value for name, value in inputs.items() if name not in absent}
    taken = torch.compile(operator, fullgraph=True, backend="aot_eager")(**given)
    assert error(inputs, taken) < 1e-5
    torch.library.opcheck(operator, tuple(given.values()), test_utils=("test_schema", "test_faketensor"))
"""

ON_GPU = """
import itertools
from tests.kernels.other_stream import on_another_stream

bounds = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 5e-3}
evenly = [(1, 1, 256), (2, 7, 1536), (1, 33, 3840), (3, 5, 1792), (1, 4, 7936), (1, 3, 8192), (2, 3, 512)]
uneven = [(1, 9, 2240), (2, 3, 5128), (1, 5, 3328), (1, 7, 8), (3, 3, 7), (1, 9, 1153), (2, 5, 5121), (1, 3, 8191)]
uneven += [(1, 5, 2050), (1, 9, 1156)]
rows_of = [*itertools.product(bounds, evenly), *zip(itertools.cycle(bounds), uneven)]
kinds = [("weight", "rms"), ("none", "rms"), ("weight+bias", "layer"), ("weight", "rms")]
# Every kind of row in both forms, with the kinds of norm in turn: each pair is a kernel to compile.
forms = itertools.product((SINGLE, DUAL), rows_of)
for (variant, (dtype, (batch, tokens, cols))), (affine, norm) in zip(forms, itertools.cycle(kinds)):
    inputs = inputs_of(variant, batch, tokens, cols, dtype, norm, affine)
    assert error(inputs) < bounds[dtype], (variant, dtype, batch, tokens, cols, affine, norm)
for variant, layout, cols in itertools.product((SINGLE, DUAL), ("BSD", "1SD", "B1D", "11D"), (768, 1153)):
    assert error(inputs_of(variant, 2, 5, cols, "bfloat16", layout=layout)) < 2e-2
holed = inputs_of(DUAL, 1, 9, 1153, "bfloat16")
holed["x"][0, 4, 0] = holed["shift"][0, 6, -1] = float("nan")  # the first and last vector are the neighbours' too
assert norm_tanh_mul_add(**holed)[1].isnan().any(dim=2)[0].tolist() == [row in (4, 6) for row in range(9)]

inputs = inputs_of(DUAL, 1, 33, 3840, "bfloat16")
exact = norm_tanh_mul_add(**inputs)
for name in ("x", "shift"):  # a slice of something wider, and one that starts off 16 bytes
    wide = torch.zeros(1, 33, 4096, device=device, dtype=torch.bfloat16)
    for start in (0, 1):
        part = wide[..., start : start + 3840]
        part.copy_(inputs[name])
        assert error({**inputs, name: part}) < 2e-2

result = on_another_stream(norm_tanh_mul_add, inputs)
assert all(torch.equal(one, two) for one, two in zip(result, exact, strict=True))
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words() -> None:
    run(REFUSED)


def test_a_mean_far_from_zero_costs_no_accuracy() -> None:
    run(OFFSETS)


def test_calls_of_one_shape_are_told_apart() -> None:
    run(FORMS)


def test_the_operators_go_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_the_cuda_path_on_odd_shapes_layouts_and_another_stream() -> None:
    run(ON_GPU + OFFSETS, "cuda")


@pytest.mark.gpu
def test_calls_of_one_shape_are_told_apart_on_a_gpu() -> None:
    run(FORMS, "cuda")
