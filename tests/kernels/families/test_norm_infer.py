"""norm_infer beyond its cases: what it refuses, other layouts, offsets, torch.compile, and on a GPU the CUDA paths."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "norm_infer"

TOOLS = """
import torch
import reference
from solution import norm_infer

def inputs_of(variant, rows, cols, dtype, seed=0, spread=1.0, offset=0.0, **more):
    case = dict(variant=variant, rows=rows, cols=cols, dtype=dtype, **more)
    return reference.make_inputs(case, seed, device, spread, offset)

def error(inputs, result=None):
    result = norm_infer(**inputs) if result is None else result
    assert result.shape == inputs["x"].shape and result.dtype == inputs["x"].dtype and result.is_contiguous()
    return float((result.double() - reference.truth(**inputs)).abs().max())
"""

FORMS = """
for _ in range(2):  # what was worked out for one form is there when another of the same shape comes
    for variant, dtype, affine in (("layernorm", "float32", "weight+bias"), ("layernorm", "float32", "bias"),
                                   ("layernorm", "float32", "weight"), ("layernorm", "bfloat16", "weight"),
                                   ("rmsnorm", "float32", "weight"), ("rmsnorm_onepass", "float32", "weight")):
        assert error(inputs_of(variant, 3, 256, dtype, affine=affine)) < (5e-2 if dtype == "bfloat16" else 1e-5)
same = inputs_of("layernorm", 3, 256, "float32", affine="weight")
assert error({**same, "bias": same["weight"]}) < 1e-5
"""

REFUSED = """
def refuses(words, **change):
    inputs = {**inputs_of("layernorm", 3, 256, "float32"), **change}
    try:
        norm_infer(**inputs)
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

refuses("variant 'batchnorm'", variant="batchnorm")
refuses("torch.float64", x=torch.zeros(3, 256, dtype=torch.float64))
refuses("[2, 3, 256]", x=torch.zeros(2, 3, 256))
refuses("64 KiB", x=torch.zeros(2, 16384))
refuses("weight of shape [255]", weight=torch.ones(255))
refuses("weight of shape [1, 256]", weight=torch.ones(1, 256))
refuses("bias of shape [256]", bias=torch.ones(512)[::2])
refuses("bias is torch.bfloat16", bias=torch.ones(256, dtype=torch.bfloat16))
refuses("a weight and no bias", variant="rmsnorm_onepass")
refuses("a weight and no bias", variant="rmsnorm_onepass", weight=None, bias=None)
"""

LAYOUTS = """
for variant in ("layernorm", "rmsnorm", "rmsnorm_onepass"):
    inputs = inputs_of(variant, 12, 256, "float32")
    whole = inputs["x"]
    for x in (whole[::2], whole[:, :256].t().contiguous().t(), whole[3:3], whole[:1].expand(5, 256)):
        taken = {**inputs, "x": x}
        assert x.numel() == 0 and norm_infer(**taken).shape == x.shape or error(taken) < 1e-5, (variant, x.stride())
heads = inputs_of("rmsnorm_onepass", 24, 128, "float32")
heads["x"] = heads["x"].view(2, 3, 4, 128).transpose(1, 2)
assert error(heads) < 1e-5
for cols, gap in ((72, 24), (130, 6), (131, 1)):  # what 16 does not divide comes to Triton as so many vectors
    inputs = inputs_of("layernorm", 7, cols + gap, "float32")
    inputs |= {name: inputs[name][..., :cols] for name in ("x", "weight", "bias")}
    assert error(inputs) < 1e-5, cols
"""

OFFSETS = """
for rows, cols in ((3, 5120), (5, 128), (4, 1000), (3, 5121), (5, 131)):
    assert error(inputs_of("layernorm", rows, cols, "float32", spread=0.1, offset=1e3)) < 5e-3, cols
    assert error(inputs_of("layernorm", rows, cols, "bfloat16", spread=1.0, offset=16.0)) < 0.1, cols
"""

COMPILED = """
import op

for variant in ("layernorm", "rmsnorm_onepass"):
    inputs = inputs_of(variant, 3, 256, "float32")
    taken = torch.compile(op.norm_infer, fullgraph=True, backend="aot_eager")(**inputs)
    assert error(inputs, taken) < 1e-5
    torch.library.opcheck(op.norm_infer, tuple(inputs.values()), test_utils=("test_schema", "test_faketensor"))
"""

ON_GPU = """
import itertools
from tests.kernels.other_stream import on_another_stream

bounds = {"float32": 1e-5, "bfloat16": 5e-2, "float16": 1e-2}
affines = ("weight+bias", "weight", "bias", "none")
kinds = [*itertools.product(("layernorm", "rmsnorm"), affines), ("rmsnorm_onepass", "weight")]
heads = [(1, 128), (37, 128), (5, 8), (7, 16), (9, 64), (3, 256), (20011, 128), (70001, 128)]
evenly = [(2, 512), (6, 1536), (5, 5120), (2, 7936)]
idle = [(1, 40), (37, 72), (20011, 88), (13, 104), (29, 136), (3, 200), (5, 264)]  # lanes without a vector
narrow = [(5, 1), (9, 7), (37, 70), (33, 90), (13, 100), (20011, 130), (29, 131), (3, 255), (7, 132), (4, 127)]
uneven = [(3, 1184), (9, 1000), (5, 5128), (2, 2240), (9, 513), (11, 1153), (17, 3071), (9, 5121), (2, 16383)]
rows_of = [*itertools.product(bounds, [*heads, *evenly]), *zip(itertools.cycle(bounds), [*idle, *narrow, *uneven])]
# Every kind of row, with the kinds of norm in turn: each pair is a kernel to compile.
for (dtype, (rows, cols)), (variant, affine) in zip(rows_of, itertools.cycle(kinds)):
    inputs = inputs_of(variant, rows, cols, dtype, affine=affine)
    assert error(inputs) < bounds[dtype], (variant, dtype, rows, cols, affine)
for start, cols in ((0, 128), (1, 128), (4, 128), (0, 128), (1, 1153), (0, 1153)):
    assert error(inputs_of("rmsnorm", 33, cols, "bfloat16", start=start)) < 5e-2
holed = inputs_of("rmsnorm_onepass", 9, 1153, "bfloat16")
holed["x"][4, 0] = holed["x"][6, -1] = float("nan")  # a row's first and last vector are its neighbours' too
assert norm_infer(**holed).isnan().any(dim=1).tolist() == [row in (4, 6) for row in range(9)]

inputs = inputs_of("rmsnorm_onepass", 4096, 128, "bfloat16")
assert error(inputs, on_another_stream(norm_infer, inputs)) < 5e-2
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words_and_any_layout_of_x_is_taken() -> None:
    run(FORMS + REFUSED + LAYOUTS)


def test_a_mean_far_from_zero_costs_no_accuracy() -> None:
    run(OFFSETS)


def test_the_operator_goes_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_the_cuda_paths_on_odd_shapes_layouts_and_another_stream() -> None:
    run(ON_GPU + FORMS + LAYOUTS + OFFSETS, "cuda")
