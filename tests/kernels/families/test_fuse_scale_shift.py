"""fuse_scale_shift beyond its cases: what it refuses, values far from zero, all layouts, the operators, CUDA."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "fuse_scale_shift"
BEFORE = """
import torch
import reference, solution

def check(case, device="cpu", seed=1, bound=5e-2, **draw):
    inputs = reference.make_inputs(case, seed, device, **draw)
    right, got = reference.truth(**inputs), solution.fuse_scale_shift(**inputs)
    right, got = (item if isinstance(item, tuple) else (item,) for item in (right, got))
    assert len(right) == len(got)
    for wanted, output in zip(right, got):
        error = (output.double() - wanted.double()).abs()
        assert output.dtype == inputs["x"].dtype and output.is_contiguous()
        assert bool((error <= bound * (1 + wanted.double().abs())).all()), (case, draw, float(error.max()))
"""
SCALE = '"scale": "[B,C]", "shift": "[B,L,C]", "scale_constant": 1'
SELECT = '"batch": 2, "tokens": 5, "cols": 256, "affine": False, "index_dtype": "int32"'


def in_a_process(code: str, interpreted: bool = True) -> None:
    processes.run(BEFORE + code, TASK, interpreted)


def test_what_it_cannot_do_it_refuses() -> None:
    in_a_process(
        f"""
import pytest
def refused(words, case, **changed):
    inputs = reference.make_inputs(case, 0, "cpu")
    with pytest.raises(ValueError, match=words):
        solution.fuse_scale_shift(**{{**inputs, **changed}})

plain = {{"variant": "scale_shift", "batch": 2, "tokens": 6, "cols": 64, "dtype": "float32",
         "scale": "[B,F,1,C]", "shift": "[B,L,C]", "scale_constant": 0}}
check(plain)  # what was right once is asked anew: a plan that is known must hide nothing
refused("contiguous", plain, x=torch.zeros(2, 64, 6).transpose(1, 2))
refused("contiguous", plain, x=torch.zeros(12, 64))
refused("frames", plain, scale=torch.zeros(2, 4, 1, 64))
refused("broadcast", plain, scale=torch.zeros(2, 5, 64))
refused("broadcast", plain, shift=torch.zeros(3, 64))
refused("broadcast", plain, shift=torch.zeros(1, 1, 1, 2, 64))
refused("needs", plain, scale=None)
refused("device", plain, shift=torch.zeros(2, 6, 64, device="meta"))
refused("no variant", plain, variant="shift_scale")
select = {{"variant": "layernorm_gate_select01", "dtype": "float32", {SELECT}}}
check(select)
refused("scale1", select, scale1=torch.zeros(2, 255))
refused("missing", select, gate0=None)
refused("device", select, gate0=torch.zeros(2, 256, device="meta"))
refused("index", select, index=torch.zeros(2, 4, dtype=torch.int32))
refused("weight", select, weight=torch.zeros(128))
refused("longer", {{**select, "batch": 1, "tokens": 1, "cols": 20000}})
residual = {{"variant": "residual_layernorm_gate_select01", "dtype": "float32", {SELECT}}}
check(residual)
refused("missing", residual, residual=None)
refused("residual_gate", residual, residual_gate=torch.zeros(2, 5, 1))
"""
    )


def test_values_far_from_zero_are_centred_before_they_are_squared() -> None:
    in_a_process(
        f"""
for variant in ("layernorm_gate_select01", "residual_layernorm_gate_select01"):
    case = {{"variant": variant, "dtype": "float32", {SELECT}}}
    check(case, bound=5e-3, spread=0.1, offset=1000.0)
    check({{**case, "dtype": "bfloat16"}}, spread=1.0, offset=16.0)
"""
    )


def test_scale_and_shift_take_every_layout_independently() -> None:
    in_a_process(
        """
for scale in reference.SHAPES:
    for shift in reference.SHAPES:
        for constant in (0, 1.0):
            check({"variant": "scale_shift", "batch": 2, "tokens": 6, "cols": 40, "dtype": "float32",
                   "scale": scale, "shift": shift, "scale_constant": constant}, bound=1e-5)
"""
    )


FORMS = f"""
def same_arguments_but(case, device, **changes):
    inputs = reference.make_inputs(case, 3, device)
    for name, values in changes.items():
        for value in values:
            changed = {{**inputs, name: value}}
            wanted, got = reference.fuse_scale_shift(**changed), solution.fuse_scale_shift(**changed)
            torch.testing.assert_close(got, wanted, atol=5e-2, rtol=5e-2, msg=lambda words: f"{{name}}: {{words}}")

def forms_of_one_shape(device):
    plain = {{"variant": "scale_shift", "dtype": "bfloat16", {SELECT}, {SCALE}}}
    torch.manual_seed(0)
    table = torch.randn(2, 6 * 256).bfloat16().to(device)
    scales = [table[:, :256], table[:, 256:512].contiguous(), table[:, :256].float(), table[:1, :256], table[:, :512:2]]
    same_arguments_but(plain, device, scale_constant=(1, 0, 2.5, 0.0), scale=scales)
    select = {{"variant": "layernorm_gate_select01", "dtype": "bfloat16", {SELECT}}}
    gain = torch.randn(256).bfloat16().to(device)
    for variant in ("layernorm_gate_select01", "residual_layernorm_gate_select01"):
        case = {{**select, "variant": variant}}
        same_arguments_but(case, device, eps=(1e-6, 1.0), weight=(None, gain), bias=(gain, None), scale0=scales[::3])
"""


def test_calls_of_one_shape_are_told_apart() -> None:
    in_a_process(FORMS + 'forms_of_one_shape("cpu")')


def test_operators_compile_as_a_whole_and_agree() -> None:
    in_a_process(
        f"""
import op
for variant in ("scale_shift", "layernorm_gate_select01", "residual_layernorm_gate_select01"):
    case = {{"variant": variant, "dtype": "float32", {SELECT}, {SCALE}}}
    inputs = reference.make_inputs(case, 0, "cpu")
    wanted = reference.fuse_scale_shift(**inputs)
    del inputs["variant"]
    operator = getattr(torch.ops.fuse_scale_shift, variant)
    torch.library.opcheck(operator, (), inputs, test_utils=("test_schema", "test_faketensor"))
    torch.testing.assert_close(torch.compile(operator, fullgraph=True, backend="aot_eager")(**inputs), wanted)
"""
    )


@pytest.mark.gpu
def test_cuda_paths_agree_with_the_reference_on_odd_shapes_and_strides() -> None:
    in_a_process(
        """
SHAPES = (("bfloat16", 1, 1, 8), ("bfloat16", 1, 19, 3072), ("bfloat16", 3, 300, 1000), ("float16", 2, 263, 264),
          ("bfloat16", 2, 31, 1153), ("float16", 1, 40, 3070), ("bfloat16", 2, 3, 9))
for dtype, batch, tokens, cols in SHAPES:
    common = {"batch": batch, "tokens": tokens, "cols": cols, "dtype": dtype}
    for scale, scale_dtype, chunks in (("[B,C]", dtype, 6), ("[1,1,C]", "float32", 6), ("[B,L,C]", dtype, 1),
                                       ("[B,L,C]", "float32", 6), ("[1,L,C]", dtype, 1), ("scalar", dtype, 1)):
        for constant in (0, 1):
            check({**common, "variant": "scale_shift", "scale": scale, "scale_dtype": scale_dtype,
                   "scale_chunks": chunks, "shift": "[B,L,C]", "scale_constant": constant}, "cuda")
    for variant in ("layernorm_gate_select01", "residual_layernorm_gate_select01"):
        for index_dtype in ("int32",) if cols > 8 else ("int64", "bool"):
            case = {**common, "variant": variant, "set_chunks": 6, "affine": False, "index_dtype": index_dtype}
            check(case, "cuda")
            check(case, "cuda", offset=16.0)
    alike = [(key[0], plans) for key, plans in solution._plans.items() if key[1] == (batch, tokens, cols)]
    in_cuda = {name for name, plans in alike for _, launch, *_ in plans if launch is not None}
    assert in_cuda == {"scale_shift", "select01"}, (tokens, cols)
check({**case, "cols": 5}, "cuda")

odd = reference.make_inputs({"variant": "scale_shift", "batch": 1, "tokens": 9, "cols": 64, "dtype": "bfloat16",
                             "scale": "[B,C]", "shift": "[B,L,C]", "scale_constant": 0}, 0, "cuda")
def moved(tensor):  # two bytes off any vector's alignment
    return torch.cat([tensor.flatten()[:1], tensor.flatten()])[1:].view(tensor.shape)

def agrees(inputs):
    for got, wanted in zip(solution.fuse_scale_shift(**inputs), reference.fuse_scale_shift(**inputs)):
        torch.testing.assert_close(got, wanted, atol=5e-2, rtol=5e-2)

for name in ("scale", "x"):
    agrees({**odd, name: moved(odd[name])})
select = reference.make_inputs({"variant": "residual_layernorm_gate_select01", "batch": 2, "tokens": 9, "cols": 64,
                                "dtype": "bfloat16", "affine": False, "index_dtype": "int32"}, 0, "cuda")
for name in ("shift1", "residual"):
    agrees({**select, name: moved(select[name])})
""",
        interpreted=False,
    )


@pytest.mark.gpu
def test_calls_of_one_shape_are_told_apart_on_a_gpu() -> None:
    in_a_process(FORMS + 'forms_of_one_shape("cuda")', interpreted=False)


@pytest.mark.gpu
def test_work_goes_to_the_current_stream() -> None:
    in_a_process(
        f"""
from tests.kernels.other_stream import on_another_stream

for variant in ("scale_shift", "layernorm_gate_select01"):
    case = {{"variant": variant, "dtype": "bfloat16", {SELECT}, {SCALE}}}
    inputs = reference.make_inputs(case, 0, "cuda")
    got = on_another_stream(solution.fuse_scale_shift, inputs)
    torch.testing.assert_close(got, reference.fuse_scale_shift(**inputs), atol=5e-2, rtol=5e-2)
""",
        interpreted=False,
    )
