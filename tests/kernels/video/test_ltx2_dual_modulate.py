"""ltx2_dual_modulate beyond its cases: refusals, layouts, its roundings, torch.compile, and the CUDA paths."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "ltx2_dual_modulate"

TOOLS = """
import torch
import reference
import solution
from solution import ltx2_dual_modulate

EXPLICIT, FROM_TEMB = VARIANTS = reference.EXPLICIT, reference.FROM_TEMB

def inputs_of(variant, tokens=3, cols=128, dtype="bfloat16", batch=2, seed=0, spread=1.0, offset=0.0, **more):
    case = dict(variant=variant, batch=batch, tokens=tokens, cols=cols, dtype=dtype, eps=1e-6, **more)
    return reference.make_inputs(case, seed, device, spread, offset)

def check(inputs, results=None):
    results = ltx2_dual_modulate(**inputs) if results is None else results
    for result, wanted in zip(results, reference.truth(**inputs), strict=True):
        assert result.shape == inputs["x"].shape and result.dtype == torch.float32 and result.is_contiguous()
        torch.testing.assert_close(result.double(), wanted, atol=1e-5, rtol=1e-5)
"""

REFUSED = """
def refuses(words, of, **change):
    inputs = inputs_of(of)
    ltx2_dual_modulate(**inputs)  # a plan that is known must hide nothing
    try:
        ltx2_dual_modulate(**{**inputs, **change})
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

refuses("variant 'temb'", EXPLICIT, variant="temb")
refuses("explicit needs scale1", EXPLICIT, scale1=None)
refuses("from_temb needs scale_shift_table", FROM_TEMB, scale_shift_table=None)
refuses("x must be [B, S, D]", EXPLICIT, x=torch.zeros(3, 128))
refuses("torch.float64", EXPLICIT, x=torch.zeros(2, 3, 128, dtype=torch.float64))
refuses("32769 columns", EXPLICIT, x=torch.zeros(1, 1, 32769))
refuses("shift0 must be a float tensor", EXPLICIT, shift0=torch.zeros(128, dtype=torch.int32))
refuses("scale0 of shape [64]", EXPLICIT, scale0=torch.zeros(64))
refuses("shift1 of shape [3, 128]", EXPLICIT, shift1=torch.zeros(3, 128))
refuses("temb_scale_shift of shape [2, 1, 128]", FROM_TEMB, temb_scale_shift=torch.zeros(2, 1, 128))
refuses("scale_shift_table must be [4, 128], not [512]", FROM_TEMB, scale_shift_table=torch.zeros(512))
"""

LAYOUTS = """
inputs = inputs_of(FROM_TEMB, cols=1)
apart = torch.randn(2, 1, 8, device=device).bfloat16()
check({**inputs, "temb_scale_shift": apart[..., ::2]})
check({**inputs, "temb_scale_shift": apart[..., :1].expand(2, 1, 4)})
for variant in VARIANTS:
    for dtype in ("bfloat16", "float16", "float32"):
        for layout in ("B1D", "BSD", "BD"):
            for _ in range(2):  # the second call finds what the first worked out
                check(inputs_of(variant, dtype=dtype, layout=layout))
        for tokens, cols in ((1, 1), (5, 100), (2, 131), (4, 258)):
            check(inputs_of(variant, tokens, cols, dtype))
    for mixed in (("bfloat16", "float32"), ("float32", "bfloat16"), ("float16", "bfloat16")):
        check(inputs_of(variant, dtype=mixed[0], modulation_dtype=mixed[1]))
    for start in (1, 2, 4, 0):
        check(inputs_of(variant, start=start))
    for gap in (1, 2, 8):
        check(inputs_of(variant, gap=gap))
    check(inputs_of(variant, 0))
    inputs = inputs_of(variant)
    wide = torch.randn(4, 6, 256, device=device).bfloat16()
    for x in (wide[::2, :3, :128], wide[:2, ::2, 128:], wide[:2, :3, ::2], wide[:2, :1, :128].expand(2, 3, 128)):
        check({**inputs, "x": x})
for table in ("float32", "float16"):
    check(inputs_of(FROM_TEMB, table_dtype=table))
check({**inputs, "scale_shift_table": inputs["scale_shift_table"].t().contiguous().t()})
check({**inputs, "temb_scale_shift": inputs["temb_scale_shift"][:1, 0]})
inputs = inputs_of(EXPLICIT)
check({**inputs, "shift0": inputs["shift0"].float()})
check({**inputs, "scale1": inputs["scale1"].expand(2, 3, 128)})
check({**inputs, "scale1": inputs["scale0"], "shift1": inputs["shift0"]})
check({**inputs, **{name: inputs[name][0, 0] for name in reference.PARTS}})
"""

VALUES = """
for variant in VARIANTS:
    check(inputs_of(variant, spread=100.0))
    check(inputs_of(variant, dtype="float32", offset=1e3))
    check(inputs_of(variant, offset=16.0))
    inputs = inputs_of(variant, dtype="float32")  # NaN and infinity spread as far as in the expression
    for tensor in [value for value in inputs.values() if torch.is_tensor(value)]:
        tensor.select(-1, 5).fill_(float("nan"))
        results, wanted = ltx2_dual_modulate(**inputs), reference.ltx2_dual_modulate(**inputs)
        torch.testing.assert_close(results, wanted, atol=1e-5, rtol=1e-5, equal_nan=True)
        tensor.select(-1, 5).fill_(0.5)

    # Where the sum of squares is exact, so is everything: the modulation is rounded to bf16 at every step.
    inputs = inputs_of(variant, cols=256)
    inputs["x"] = torch.where(inputs["x"] < 0, -2.0, 2.0).to(torch.bfloat16)
    inputs["eps"] = 0.0
    for result, wanted in zip(ltx2_dual_modulate(**inputs), reference.ltx2_dual_modulate(**inputs), strict=True):
        assert torch.equal(result, wanted)
"""

COMPILED = """
import op

for variant, operator in ((EXPLICIT, op.ltx2_dual_modulate), (FROM_TEMB, op.ltx2_dual_modulate_from_temb)):
    inputs = inputs_of(variant)
    given = {name: value for name, value in inputs.items() if name != "variant"}
    check(inputs, torch.compile(operator, fullgraph=True, backend="aot_eager")(**given))
    torch.library.opcheck(operator, (), given, test_utils=("test_schema", "test_faketensor"))
"""

ON_GPU = """
from tests.kernels.other_stream import on_another_stream

for variant in VARIANTS:
    for dtype in ("bfloat16", "float16", "float32"):
        for tokens, cols in ((1, 8), (126, 2048), (300, 1000), (301, 4096), (513, 5128), (270, 8192), (140, 32768)):
            check(inputs_of(variant, tokens, cols, dtype))
        for tokens, cols in ((33, 127), (300, 3071), (300, 3074), (150, 8191)):
            check(inputs_of(variant, tokens, cols, dtype))
    check(inputs_of(variant, 300, 4096, layout="BSD"))
check(inputs_of(FROM_TEMB, 300, 4096, table_dtype="float32"))
check(inputs_of(FROM_TEMB, 33, 4096, table_dtype="float32"))
for (variant, shape), alike in solution._plans.items():
    assert shape[-1] > 16384 or all(launch is not None for _, launch, *_ in alike), (variant, shape)

# Production's rows equal the eager expression bit for bit: their squares are added in the order of torch's kernel.
for variant in VARIANTS:
    for tokens, cols in ((126, 2048), (1536, 4096), (8160, 4096)):
        inputs = inputs_of(variant, tokens, cols)
        results, wanted = ltx2_dual_modulate(**inputs), reference.ltx2_dual_modulate(**inputs)
        assert all(map(torch.equal, results, wanted)), (variant, tokens, cols)

inputs = inputs_of(FROM_TEMB, 300, 4096)
check(inputs, on_another_stream(ltx2_dual_modulate, inputs))
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words() -> None:
    run(REFUSED)


def test_every_layout_dtype_and_width_is_taken() -> None:
    run(LAYOUTS)


def test_the_modulation_is_rounded_at_every_step() -> None:
    run(VALUES)


def test_the_operators_go_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_the_cuda_paths_on_odd_shapes_and_another_stream() -> None:
    run(ON_GPU + LAYOUTS + VALUES, "cuda")
