"""attention_concat_copy beyond its cases: refusals, layouts, odd addresses, NaNs, torch.compile, and the CUDA path."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "attention_concat_copy"

TOOLS = """
import itertools
import torch
import reference
from solution import COPY, CONCAT, SLICE, attention_concat_copy

def inputs_of(variant, tokens, heads, batch=2, head_dim=128, dtype="bfloat16", seed=0, **more):
    more = {"source_heads": 2 * heads, "head_start": heads, **more}
    case = dict(variant=variant, batch=batch, tokens=tokens, heads=heads, head_dim=head_dim, dtype=dtype, **more)
    return reference.make_inputs(case, seed, device)

def bits(tensor):
    return tensor.view(torch.int16 if tensor.element_size() == 2 else torch.int32)

def same(inputs, result=None):
    result = attention_concat_copy(**inputs) if result is None else result
    wanted = reference.attention_concat_copy(**inputs)
    return result.is_contiguous() and result.dtype == wanted.dtype and torch.equal(bits(result), bits(wanted))
"""

REFUSED = """
def refuses(words, like=SLICE, **change):
    try:
        attention_concat_copy(**{**inputs_of(like, [2, 3], 2, dtype="float32"), **change})
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

refuses("variant 'stack'", variant="stack")
refuses("order 'AA'", order="AA")
refuses("[2, 4, 128]", a=torch.zeros(2, 4, 128))
refuses("torch.float64", a=torch.zeros(2, 2, 4, 128, dtype=torch.float64))
refuses("head_start 1 is for slice_heads_then_concat alone", CONCAT, head_start=1)
refuses("b of shape [2, 3, 2, 128]: copy_contiguous", COPY, b=torch.zeros(2, 3, 2, 128))
refuses("b is None", CONCAT, b=None)
refuses("b is torch.bfloat16", b=torch.zeros(2, 3, 2, 128, dtype=torch.bfloat16))
refuses("b of shape [1, 3, 2, 128]", b=torch.zeros(1, 3, 2, 128))
refuses("b of shape [2, 3, 2, 64]", b=torch.zeros(2, 3, 2, 64))
refuses("b has 3 heads, but a has 2", CONCAT, b=torch.zeros(2, 3, 3, 128))
refuses("b has 4 heads; they must be fewer", b=torch.zeros(2, 3, 4, 128))
refuses("head_start 1 must be a multiple of 2", head_start=1)
refuses("head_start 4 must be a multiple of 2", head_start=4)
refuses("head_start -2 must be", head_start=-2)
"""

LAYOUTS = """
for variant, dtype, order in itertools.product((COPY, CONCAT, SLICE), ("bfloat16", "float16", "float32"), ("AB", "BA")):
    for tokens, heads in (([1, 5], 1), ([7, 3], 3)):
        for _ in range(2):  # the second call finds what the first worked out
            assert same(inputs_of(variant, tokens, heads, dtype=dtype, order=order)), (variant, dtype, order, tokens)
for head_dim in (1, 33, 72):
    assert same(inputs_of(COPY, [5], 3, head_dim=head_dim)) and same(inputs_of(SLICE, [5, 2], 3, head_dim=head_dim))
for start in (1, 4, 8, 0):
    assert same(inputs_of(COPY, [5], 2, start=start)) and same(inputs_of(CONCAT, [5, 2], 2, start=start)), start
x = torch.randn(2, 6, 8, 64, device=device)
views = [x, x.transpose(1, 2), x[:, ::2], x[..., ::2], x.transpose(2, 3), x[:, :0]]
views += [x[:1].expand(2, 6, 8, 64), x[..., :1].expand(2, 6, 8, 64)]
for a in views:
    assert same(dict(variant=COPY, a=a, b=None, order="AB", head_start=0)), a.stride()
    for order in ("AB", "BA"):
        assert same(dict(variant=CONCAT, a=a, b=a, order=order, head_start=0)), a.stride()
        assert same(dict(variant=SLICE, a=a, b=a[:, :2, :2], order=order, head_start=2)), a.stride()
copy = attention_concat_copy(COPY, x)
assert copy.data_ptr() != x.data_ptr()
"""

BITS = """
patterns = torch.arange(-(1 << 15), 1 << 15, device=device).to(torch.int16).view(1, 32, 16, 128)
for dtype in (torch.bfloat16, torch.float16):  # every pattern, NaNs of any payload among them
    a = patterns.view(dtype)
    assert same(dict(variant=CONCAT, a=a, b=a.flip(1), order="BA", head_start=0))
"""

COMPILED = """
import op

for variant in (COPY, CONCAT, SLICE):
    inputs = inputs_of(variant, [3, 4], 2, order="BA")
    taken = torch.compile(op.attention_concat_copy, fullgraph=True, backend="aot_eager")(**inputs)
    assert same(inputs, taken)
    arguments = tuple(inputs[name] for name in ("a", "b", "variant", "order", "head_start"))
    torch.library.opcheck(op.attention_concat_copy, arguments, test_utils=("test_schema", "test_faketensor"))
"""

ON_GPU = """
for variant, order, dtype in itertools.product((COPY, CONCAT, SLICE), ("AB", "BA"), ("bfloat16", "float32")):
    for tokens, heads in (([333, 70], 24), ([1, 2049], 32), ([4097, 1], 1), ([9, 9], 130)):
        assert same(inputs_of(variant, tokens, heads, order=order, dtype=dtype)), (variant, order, tokens, heads)
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words() -> None:
    run(REFUSED)


def test_every_layout_order_and_slice_is_taken_bit_for_bit() -> None:
    run(LAYOUTS + BITS)


def test_the_operator_goes_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_the_cuda_path_on_odd_shapes_and_addresses() -> None:
    run(ON_GPU + LAYOUTS + BITS, "cuda")
