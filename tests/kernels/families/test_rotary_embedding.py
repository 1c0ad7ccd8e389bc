"""rotary_embedding beyond its cases: what it refuses, layouts, offsets, torch.compile, and on a GPU the CUDA paths."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "rotary_embedding"

TOOLS = """
import torch
import reference
from solution import rotary_embedding

def inputs_of(variant, batch, tokens, heads, head_dim, seed=0, spread=1.0, offset=0.0, **more):
    case = dict(variant=variant, batch=batch, tokens=tokens, heads=heads, head_dim=head_dim, **more)
    return reference.make_inputs(case, seed, device, spread, offset)

def error(inputs, result=None):
    "The worst error, in parts of 1 + |truth|."
    result = rotary_embedding(**inputs) if result is None else result
    assert result.shape == inputs["x"].shape and result.dtype == inputs["x"].dtype and result.is_contiguous()
    right = reference.truth(**inputs)
    return float(((result.double() - right).abs() / (1 + right.abs())).max()) if right.numel() else 0.0
"""

REFUSED = """
def refuses(words, inputs, **change):
    try:
        rotary_embedding(**{**inputs, **change})
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

pairs, halves = inputs_of("standard", 2, 5, 3, 64), inputs_of("ltx2_split", 2, 5, 3, 64)
for known in (pairs, halves):  # a form that is known does not let others pass
    rotary_embedding(**known)
refuses("variant 'neox'", pairs, variant="neox")
refuses("must agree", pairs, sin=pairs["sin"][:, :16])
refuses("must agree", halves, sin=halves["sin"].float())
refuses("float32 tables", pairs, cos=pairs["cos"].bfloat16(), sin=pairs["sin"].bfloat16())
refuses("float x", pairs, x=pairs["x"].double())
refuses("even D", pairs, x=torch.zeros(2, 5, 3, 63))
refuses("even D", pairs, x=torch.zeros(5, 64))
refuses("for 5 tokens", pairs, cos=pairs["cos"][:4], sin=pairs["sin"][:4])
refuses("for 5 tokens", pairs, cos=pairs["cos"].repeat(1, 2), sin=pairs["sin"].repeat(1, 2))
refuses("takes bfloat16", halves, x=halves["x"].float())
refuses("takes bfloat16", halves, cos=halves["cos"].float(), sin=halves["sin"].float())
refuses("does not fit", halves, x=halves["x"][:, :4])
refuses("does not fit", halves, x=halves["x"][:, :, :128])
refuses("expected [B,S,H*2*half]", halves, x=halves["x"].view(2, 5, 3, 64))
refuses("last strides", halves, **{name: halves[name].repeat_interleave(2, -1)[..., ::2] for name in ("cos", "sin")})
"""

LAYOUTS = """
pairs = inputs_of("standard", 2, 9, 4, 64)
x = pairs["x"]
beside = torch.cat((x, x + 1, x - 1), dim=2)
for other in (x[0], x[:, :, 1:2], beside[:, :, 4:8], x.transpose(1, 2).contiguous().transpose(1, 2), x[:, :0], x[:0],
              x[:, :, :1].expand(x.shape), torch.cat((x, x), -1)[..., ::2],
              beside.flatten()[3:3 + x.numel()].view(x.shape)):
    taken = {**pairs, "x": other, "cos": pairs["cos"][:other.shape[-3]], "sin": pairs["sin"][:other.shape[-3]]}
    assert error(taken) < 1e-2, other.stride()
both = torch.cat((pairs["cos"], pairs["sin"]), dim=1)
assert error({**pairs, "cos": both[:, :32], "sin": both[:, 32:]}) < 1e-2
assert error({**pairs, "cos": both[:, ::2], "sin": both[:, 1::2]}) < 1e-2
assert error({**pairs, "interleaved": True}) < 1e-2

halves = inputs_of("ltx2_split", 2, 9, 4, 64)
x = halves["x"]
for other in (torch.cat((x, x), -1)[..., 256:], torch.cat((x, x), 1)[:, 9:], torch.cat((x, x), -1)[..., ::2],
              torch.cat((x, x)).flatten()[1:1 + x.numel()].view(x.shape)):
    assert error({**halves, "x": other}) < 1e-2, other.stride()
once = {name: halves[name][:1].expand(2, -1, -1, -1) for name in ("cos", "sin")}
assert error({**halves, **once}) < 1e-2
mixed = {"cos": halves["cos"].contiguous(), "sin": halves["sin"]}
assert error({**halves, **mixed}) < 1e-2
"""

EVERY_WIDTH = """
import solution

for dim in range(2, 514, 2):  # none is left to Triton
    standard, split = inputs_of("standard", 2, 3, 24, dim), inputs_of("ltx2_split", 2, 3, 24, dim, table="sliced")
    assert solution._adjacent_pairs(standard["x"], standard["cos"], standard["sin"]), dim
    assert solution._halves(split["x"], split["cos"], split["sin"], 132), dim
for variant, dim in (("standard", 90), ("standard", 2), ("ltx2_split", 90), ("ltx2_split", 104), ("ltx2_split", 2)):
    assert error(inputs_of(variant, 2, 5, 3, dim)) < 1e-2, (variant, dim)
"""

OFFSETS = """
far = inputs_of("standard", 1, 40, 3, 64, spread=0.1, offset=1e3, dtype="float32")
assert float((rotary_embedding(**far).double() - reference.truth(**far)).abs().max()) < 5e-3
assert error(inputs_of("standard", 1, 40, 3, 64, spread=1.0, offset=16.0)) < 1e-2
assert error(inputs_of("ltx2_split", 2, 40, 3, 64, spread=1.0, offset=16.0)) < 1e-2
"""

ROUNDED_ON_PURPOSE = """
inputs = inputs_of("ltx2_split", 2, 64, 4, 64, offset=3.0)
got, right = rotary_embedding(**inputs), reference.rotary_embedding(**inputs)
wide = {name: inputs[name].float() for name in ("x", "cos", "sin")}
near = reference.rotary_embedding(**wide, variant="ltx2_split")
assert not torch.equal(right, near.bfloat16()), "the cases do not tell the two apart"
assert torch.equal(got, right)
"""

COMPILED = """
import op

for variant in ("standard", "ltx2_split"):
    inputs = inputs_of(variant, 2, 3, 2, 64)
    taken = torch.compile(op.rotary_embedding, fullgraph=True, backend="aot_eager")(**inputs)
    assert error(inputs, taken) < 1e-2
    torch.library.opcheck(op.rotary_embedding, tuple(inputs.values()), test_utils=("test_schema", "test_faketensor"))
"""

ON_GPU = """
import itertools
from tests.kernels.other_stream import on_another_stream

dims = (2, 12, 16, 24, 32, 64, 70, 90, 104, 128, 512)
for batch, tokens, heads, dim in itertools.product((1, 2), (1, 129), (1, 3, 24, 40), dims):
    for table in ("plain", "interleaved"):
        assert error(inputs_of("standard", batch, tokens, heads, dim, table=table)) < 1e-2, (batch, tokens, heads, dim)
    for table in ("transposed", "head_first", "sliced"):
        inputs = inputs_of("ltx2_split", batch, tokens, heads, dim, table=table)
        right = reference.rotary_embedding(**inputs)
        assert torch.equal(rotary_embedding(**inputs), right), (batch, tokens, heads, dim, table)

# every size of packed halves; one whose vectors are no whole number of warps
for tokens, heads, dim in ((1536, 32, 64), (3001, 32, 64), (6143, 32, 64), (6145, 16, 256), (9001, 32, 64),
                           (12001, 33, 64), (9999, 32, 128), (20001, 32, 128), (6001, 31, 104), (6001, 31, 92),
                           (6001, 31, 90), (6001, 32, 72)):
    inputs = inputs_of("ltx2_split", 1, tokens, heads, dim)
    assert torch.equal(rotary_embedding(**inputs), reference.rotary_embedding(**inputs)), (tokens, heads, dim)

for variant in ("standard", "ltx2_split"):
    inputs = inputs_of(variant, 1, 1000, 32, 128)
    rotary_embedding(**inputs)
    for name in ("x", "cos", "sin"):
        try:
            rotary_embedding(**{**inputs, name: inputs[name].cpu()})
        except ValueError as problem:
            assert "x is on" in str(problem)
        else:
            raise AssertionError(f"took {name} from the CPU")
    assert error(inputs, on_another_stream(rotary_embedding, inputs)) < 1e-2
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words_and_any_layout_is_taken() -> None:
    run(REFUSED + LAYOUTS + EVERY_WIDTH)


def test_a_mean_far_from_zero_costs_no_accuracy_and_the_cosines_product_is_rounded() -> None:
    run(OFFSETS + ROUNDED_ON_PURPOSE)


def test_the_operator_goes_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_the_cuda_paths_on_odd_shapes_layouts_and_another_stream() -> None:
    run(ON_GPU + LAYOUTS + OFFSETS + ROUNDED_ON_PURPOSE, "cuda")
