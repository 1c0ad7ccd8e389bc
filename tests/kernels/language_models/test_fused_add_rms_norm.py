"""fused_add_rms_norm beyond its cases: what it refuses, other layouts, offsets, torch.compile, and the CUDA paths."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "fused_add_rms_norm"

TOOLS = """
import torch
import reference
from solution import fused_add_rms_norm

def inputs_of(tokens, cols, dtype="float32", seed=0, spread=1.0, offset=0.0, **more):
    return reference.make_inputs(dict(tokens=tokens, cols=cols, dtype=dtype, **more), seed, device, spread, offset)

def exact(inputs):
    wide = {name: value.double() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
    reference.fused_add_rms_norm(**wide)
    return wide["x"], wide["residual"]

def error(inputs, function=fused_add_rms_norm):
    x, residual = exact(inputs)
    assert function(**inputs) is None
    apart = inputs["x"].double() - x, inputs["residual"].double() - residual
    return float(torch.stack([difference.abs().max() for difference in apart]).max())  # NaN included
"""

REFUSED = """
def refuses(words, **change):
    inputs = inputs_of(4, 64) | change
    before = inputs["x"].clone()
    try:
        fused_add_rms_norm(**inputs)
    except ValueError as problem:
        assert words in str(problem), problem
        assert torch.equal(inputs["x"], before)
    else:
        raise AssertionError(f"took {words}")

fused_add_rms_norm(**inputs_of(4, 64))  # a form that is known does not let others pass
same = torch.zeros(4, 64)
refuses("x must be rows of", x=torch.zeros(4, 64, dtype=torch.float64))
refuses("x must be rows of", x=torch.zeros(()))
refuses("residual must be as x", residual=torch.zeros(5, 64))
refuses("residual must be as x", residual=torch.zeros(4, 64, dtype=torch.bfloat16))
refuses("weight must be [64]", weight=torch.ones(63))
refuses("weight must be [64]", weight=torch.ones(1, 64))
refuses("weight must be [64]", weight=torch.ones(64, dtype=torch.bfloat16))
refuses("64 KiB", x=torch.zeros(2, 16385), residual=torch.zeros(2, 16385), weight=torch.ones(16385))
refuses("residual is overwritten, and its rows overlap", residual=torch.zeros(1, 64).expand(4, 64))
refuses("x is overwritten, and its rows overlap", x=torch.zeros(4, 1).expand(4, 64))
refuses("x is overwritten, and its rows overlap", x=torch.zeros(100).as_strided((4, 64), (8, 1)))
refuses("must not share memory", x=same, residual=same)
refuses("must not share memory", x=same, residual=same.view(4, 64))
mixed = dict(x=torch.zeros(2, 3, 64).transpose(0, 1), residual=torch.zeros(3, 2, 64))
refuses("its rows are no matrix", **mixed)
"""

LAYOUTS = """
def columns_first(x):
    return x.t().contiguous().t()

def every_other(x):
    return torch.stack([x, x + 1], dim=-1).flatten(-2)[..., ::2]

def with_gap(x):
    return torch.cat([x, x], dim=-1)[..., : x.shape[-1]]

for change in (columns_first, every_other, with_gap):
    for names in (("x",), ("residual",), ("x", "residual")):
        inputs = inputs_of(6, 128)
        inputs |= {name: change(inputs[name]) for name in names}
        assert error(inputs) < 1e-5, (change, names)
spaced = inputs_of(3, 128)
assert error({**spaced, "weight": every_other(spaced["weight"])}) < 1e-5
around = inputs_of(4, 96, gap=32)
whole = around["x"].as_strided((4, 128), (128, 1))
before = whole[:, 96:].clone()
assert error(around) < 1e-5 and torch.equal(whole[:, 96:], before)  # nothing beside the rows is touched
stacked = inputs_of(6, 128)
stacked |= {name: stacked[name].view(2, 3, 128) for name in ("x", "residual")}
assert error(stacked) < 1e-5
line = inputs_of(1, 128)
line |= {name: line[name].view(128) for name in ("x", "residual")}
assert error(line) < 1e-5
nobody = inputs_of(3, 128)
nobody |= {name: nobody[name][:0] for name in ("x", "residual")}
assert fused_add_rms_norm(**nobody) is None
"""

WIDTHS = """
for cols in (1, 7, 8, 100, 257, 1000):
    for dtype, bound in (("float32", 1e-5), ("float16", 1e-2), ("bfloat16", 1e-1)):
        assert error(inputs_of(3, cols, dtype)) < bound, (cols, dtype)
zeros = inputs_of(2, 64, spread=0.0)
assert error(zeros) == 0.0
"""

OFFSETS = """
for cols in (1000, 2048):
    assert error(inputs_of(3, cols, spread=0.1, offset=1e3)) < 5e-4, cols
    assert error(inputs_of(3, cols, "bfloat16", offset=16.0)) < 0.3, cols  # of the sum: 32 has steps of 0.25
"""

COMPILED = """
import op

def apart(**inputs):
    before = inputs["x"].clone(), inputs["residual"].clone()
    torch._dynamo.reset()  # one graph a form, and it keeps eight at most
    found = torch.compile(op.fused_add_rms_norm, fullgraph=True, backend="aot_eager")(**inputs)
    assert all(map(torch.equal, before, (inputs["x"], inputs["residual"]))), "it wrote to its arguments"
    assert all(result.is_contiguous() for result in found)
    for name, result in zip(("x", "residual"), found):
        inputs[name].copy_(result)

inputs = inputs_of(3, 256)
assert error(inputs, apart) < 1e-5
x = torch.randn(2, 3, 64, device=device).transpose(0, 1)  # no matrix: refused in place, and here it is only read
assert torch.equal(op.fused_add_rms_norm(x, x, inputs["weight"][:64], 1e-6)[1], x + x)
torch.library.opcheck(op.fused_add_rms_norm, tuple(inputs.values()), test_utils=("test_schema", "test_faketensor"))
"""

ON_GPU = """
import itertools

def right(inputs):
    x, residual = exact(inputs)
    assert fused_add_rms_norm(**inputs) is None
    bound = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}[inputs["x"].dtype]
    for name, wanted in (("x", x), ("residual", residual)):
        torch.testing.assert_close(inputs[name].double(), wanted, atol=bound, rtol=bound)

shapes = [(1, 2048), (16, 5120), (264, 8192), (265, 8192), (300, 3072), (1024, 5120), (517, 5128), (300, 2056), (9, 8)]
shapes += [(1000, 64), (70001, 128), (300, 16384), (5, 16384), (300, 4100), (33, 131)]
for dtype, (tokens, cols) in itertools.product(("float32", "float16", "bfloat16"), shapes):
    right(inputs_of(tokens, cols, dtype))
for start, gap in itertools.product((0, 1, 8), (0, 8, 3)):
    for tokens in (33, 300):
        right(inputs_of(tokens, 1024, "bfloat16", start=start, gap=gap))
right(inputs_of(300, 32768, "bfloat16"))
wide = inputs_of(2, 32768, "bfloat16")
far = torch.empty(32768, 65600, dtype=torch.bfloat16, device=device)[:, 0]  # its last element begins beyond 2^31
right({**wide, "weight": far.copy_(wide["weight"])})

inputs = inputs_of(4096, 4096, "bfloat16")
expected = exact(inputs)
masters = inputs["x"].clone(), inputs["residual"].clone()
inputs["x"].zero_(), inputs["residual"].zero_()
other = torch.cuda.Stream()
other.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(other):
    torch.cuda._sleep(20_000_000)
    inputs["x"].copy_(masters[0]), inputs["residual"].copy_(masters[1])
    fused_add_rms_norm(**inputs)
other.synchronize()
for name, wanted in zip(("x", "residual"), expected):
    torch.testing.assert_close(inputs[name].double(), wanted, atol=1e-2, rtol=1e-2)
"""

OPERATOR_ON_GPU = """
for tokens, cols, gap in ((1, 2048, 0), (16, 5120, 8), (300, 3072, 0), (517, 5128, 8), (33, 131, 3), (300, 16384, 0)):
    for dtype, bound in (("float32", 1e-5), ("bfloat16", 6e-2)):
        assert error(inputs_of(tokens, cols, dtype, gap=gap), apart) < bound, (tokens, cols, gap, dtype)
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words_and_any_layout_of_rows_is_taken() -> None:
    run(REFUSED + LAYOUTS)


def test_odd_widths_and_a_mean_far_from_zero() -> None:
    run(WIDTHS + OFFSETS)


def test_the_operator_goes_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_the_cuda_paths_on_odd_shapes_layouts_and_another_stream() -> None:
    run(ON_GPU + LAYOUTS + WIDTHS + OFFSETS, "cuda")


@pytest.mark.gpu
def test_the_operator_in_cuda() -> None:
    run(COMPILED + OPERATOR_ON_GPU, "cuda")
