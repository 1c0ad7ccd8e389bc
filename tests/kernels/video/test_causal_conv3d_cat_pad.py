"""causal_conv3d_cat_pad beyond its cases: refusals, layouts, dtypes, odd addresses, NaNs, torch.compile, CUDA."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "causal_conv3d_cat_pad"

TOOLS = """
import itertools
import torch
import reference
import solution
from solution import causal_conv3d_cat_pad

USUAL = [1, 1, 1, 1, 2, 0]

def inputs_of(x, cached, padding=USUAL, dtype="bfloat16", seed=0, spread=1.0, **more):
    case = dict(x=x, cached=cached, padding=padding, dtype=dtype, **more)
    return reference.make_inputs(case, seed, device, spread)

def same(inputs, result=None):
    result = causal_conv3d_cat_pad(**inputs) if result is None else result
    wanted = reference.causal_conv3d_cat_pad(**inputs)
    alike = result.is_contiguous() and result.dtype == wanted.dtype and result.shape == wanted.shape
    return alike and torch.equal(result.view(torch.int8), wanted.view(torch.int8))
"""

REFUSED = """
def refuses(words, **change):
    inputs = inputs_of("2x3x1x4x6", 1, dtype="float32")
    assert same(inputs)  # a plan that is known must hide nothing
    try:
        causal_conv3d_cat_pad(**{**inputs, **change})
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

refuses("[3, 1, 4, 6]", x=torch.zeros(3, 1, 4, 6))
refuses("torch.complex64", x=torch.zeros(2, 3, 1, 4, 6, dtype=torch.complex64))
refuses("has no frames", x=torch.zeros(2, 3, 0, 4, 6))
refuses("padding [1, 1, 1, 1]", padding=[1, 1, 1, 1])
refuses("none negative", padding=[1, 1, 1, 1, 2, -1])
refuses("cache is torch.bfloat16", cache=torch.zeros(2, 3, 1, 4, 6, dtype=torch.bfloat16))
refuses("cache of shape [2, 3, 1, 4, 5]", cache=torch.zeros(2, 3, 1, 4, 5))
refuses("cache of shape [1, 3, 1, 4, 6]", cache=torch.zeros(1, 3, 1, 4, 6))
refuses("cache has 3 frames, more than the 2", cache=torch.zeros(2, 3, 3, 4, 6))
"""

LAYOUTS = """
for dtype, cached in itertools.product(("bfloat16", "float16", "float32", "float64", "int8", "bool"), (0, 1, 2)):
    for _ in range(2):  # the second call finds what the first worked out
        inputs = inputs_of("2x3x2x3x6", cached, dtype=dtype, spread=30.0)
        if dtype == "bool":  # of numbers all would be true
            inputs |= {name: inputs[name].float().normal_() > 0 for name in ("x", "cache")}
        assert same(inputs), (dtype, cached)
for padding in ([0, 0, 0, 0, 1, 0], [3, 1, 2, 0, 3, 1], [0, 2, 0, 1, 1, 0], [1, 1, 0, 0, 1, 2], [0] * 6):
    for x in ("1x2x1x3x8", "2x3x2x3x5", "1x1x1x1x1"):
        assert same(inputs_of(x, min(1, padding[4]), padding)), (x, padding)
for layout, starts in itertools.product(("contiguous", "transposed", "channels_last_3d"), ((0, 0), (7, 5), (2, 6))):
    assert same(inputs_of("1x4x1x3x6", 1, layout=layout, starts=starts)), (layout, starts)
x = torch.randn(2, 4, 6, 4, 8, device=device)
views = [x[:, :, 2:4], x[:, ::2], x[:, :, ::3], x[..., ::2], x[:, :, :, 1:3], x[:1].expand(2, 4, 6, 4, 8), x[..., :0]]
for view in views:
    assert same(dict(x=view, cache=None, padding=USUAL)), view.stride()
    assert same(dict(x=view, cache=view[:, :, :1], padding=USUAL)), view.stride()
    assert same(dict(x=view, cache=view[:, :, :1].contiguous(), padding=USUAL)), view.stride()
assert same(dict(x=x[:0], cache=x[:0, :, :2], padding=USUAL))
copy = causal_conv3d_cat_pad(x, None, [0] * 6)
assert copy.data_ptr() != x.data_ptr() and torch.equal(copy, x)
"""

BITS = """
patterns = torch.arange(-(1 << 15), 1 << 15, device=device).to(torch.int16).view(1, 32, 2, 16, 64)
for dtype in (torch.bfloat16, torch.float16):  # every pattern, NaNs of any payload among them
    values = patterns.view(dtype)
    assert same(dict(x=values, cache=values.flip(1), padding=USUAL))
"""

COMPILED = """
import op

for cached in (None, 0, 1, 2):
    inputs = inputs_of("1x3x2x4x6", cached or 0)
    inputs["cache"] = None if cached is None else inputs["cache"]
    taken = torch.compile(op.causal_conv3d_cat_pad, fullgraph=True, backend="aot_eager")(**inputs)
    assert same(inputs, taken)
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(op.causal_conv3d_cat_pad, tuple(inputs.values()), test_utils=tests)
"""

ON_GPU = """
from tests.kernels.other_stream import on_another_stream

for x in ("1x16x1x30x52", "3x5x2x31x54", "1x3x4x48x83", "2x3x2x5x9", "1x1x1x2x6", "2x3x1x4x2"):
    for cached, dtype in ((0, "int8"), (1, "bfloat16"), (2, "bfloat16"), (2, "float32"), (1, "float64")):
        for padding in (USUAL, [2, 2, 1, 0, 2, 1], [3, 1, 0, 2, 2, 0], [1, 5, 1, 1, 2, 0], [0, 3, 1, 1, 2, 0]):
            inputs = inputs_of(x, cached, padding, dtype, spread=30.0)
            assert same(inputs), (x, cached, padding, dtype)
            (_, launch, *_) = solution._plans[inputs["x"].shape, *padding, inputs["cache"] is None][-1]
            row = (inputs["x"].shape[-1] + sum(padding[:2])) * inputs["x"].element_size()
            assert launch is not None or dtype == "int8" or row < 16 or not padding[2], (x, padding, dtype)

inputs = inputs_of("1x64x2x60x104", 1)
assert same(inputs, on_another_stream(causal_conv3d_cat_pad, inputs))
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words() -> None:
    run(REFUSED)


def test_every_layout_dtype_and_padding_is_taken_bit_for_bit() -> None:
    run(LAYOUTS + BITS)


def test_the_operator_goes_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_the_cuda_path_on_odd_shapes_and_another_stream() -> None:
    run(LAYOUTS + BITS + ON_GPU, "cuda")
