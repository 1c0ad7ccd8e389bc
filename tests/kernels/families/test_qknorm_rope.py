"""qknorm_rope beyond its cases: what it refuses, other layouts, offsets, torch.compile, and on a GPU the CUDA paths."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "qknorm_rope"

TOOLS = """
import torch
import reference
import solution
from solution import qknorm_rope

def inputs_of(tokens, heads, dims, seed=0, spread=1.0, offset=0.0, **more):
    axes = dict(tokens=tokens, heads=heads, dims=dims, is_neox=False, positions="int64 arange", eps=1e-6) | more
    return reference.make_inputs(axes, seed, device, spread, offset)

def exact(inputs):
    wide = {
        name: value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in inputs.items()
    }
    wide |= {"q": wide["q"].clone(), "k": wide["k"].clone()}  # .double() of float64 is the same tensor
    reference.qknorm_rope(**wide)
    return wide["q"], wide["k"]

def error(inputs, function=qknorm_rope):
    q, k = exact(inputs)
    assert function(**inputs) is None
    apart = inputs["q"].double() - q, inputs["k"].double() - k
    return float(torch.stack([difference.abs().max() for difference in apart]).max())  # NaN included
"""

REFUSED = """
def refuses(words, **change):
    inputs = inputs_of(4, 2, [64, 32]) | change
    try:
        qknorm_rope(**inputs)
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

bf16 = torch.bfloat16
qknorm_rope(**inputs_of(4, 2, [64, 32]))  # a form that is known does not let others pass
refuses("q must be [tokens, heads, head_dim]", q=torch.zeros(8, 64, dtype=bf16))
refuses("torch.float64", q=torch.zeros(4, 2, 64, dtype=torch.float64))
refuses("expanded", k=torch.zeros(4, 1, 64, dtype=bf16).expand(4, 2, 64))
refuses("does not go with q", k=torch.zeros(5, 2, 64, dtype=bf16))
refuses("does not go with q", k=torch.zeros(4, 2, 32, dtype=bf16))
refuses("does not go with q", k=torch.zeros(4, 2, 64))
refuses("q_weight must be of shape [64]", q_weight=torch.ones(63, dtype=bf16))
refuses("k_weight must be of shape [64]", k_weight=torch.ones(64, dtype=torch.int32))
refuses("cos_sin_cache", cos_sin_cache=torch.zeros(4, 32, dtype=bf16))
refuses("cos_sin_cache", cos_sin_cache=torch.zeros(0, 32))
refuses("rope_dim 66", cos_sin_cache=torch.zeros(4, 66))
refuses("rope_dim 31", cos_sin_cache=torch.zeros(4, 31))
refuses("positions", positions=torch.zeros(3, dtype=torch.int64))
refuses("positions", positions=torch.zeros(4))
"""

LAYOUTS = """
def transposed(x):
    return x.transpose(0, 1).contiguous().transpose(0, 1)

def every_other(x):
    return torch.stack([x, x + 1], dim=-1).flatten(-2)[..., ::2]

for neox in (False, True):
    for change in (transposed, every_other):
        inputs = inputs_of(6, 4, [128, 64], k_heads=2, is_neox=neox, dtype="float32")
        names = ("q", "k") if change is transposed else ("q", "k", "q_weight", "k_weight", "cos_sin_cache", "positions")
        inputs |= {name: change(inputs[name]) for name in names}
        assert error(inputs) < 1e-5, (neox, change)
    mixed = inputs_of(3, 2, [64, 64], is_neox=neox, dtype="float32")
    mixed["k_weight"] = mixed["k_weight"].half()
    assert error(mixed) < 1e-5
    for dims in ([96, 10], [90, 90], [136, 128], [7, 4]):
        assert error(inputs_of(3, 2, dims, is_neox=neox, dtype="float32")) < 1e-5, dims
again = inputs_of(5, 2, [64, 64], k_heads=1, dtype="float32")
for change in ({}, {"positions": again["positions"].int()}, {"k_weight": again["q_weight"]}, {"k": again["q"].clone()},
               {"q_weight": again["q_weight"].repeat_interleave(2)[::2]},
               {"cos_sin_cache": again["cos_sin_cache"][:, :32]}):
    assert error({**again, "q": again["q"].clone(), "k": again["k"].clone(), **change}) < 1e-5, change.keys()
nobody = inputs_of(2, 3, [64, 64])
nobody |= {"q": nobody["q"][:0], "k": nobody["k"][:0], "positions": nobody["positions"][:0]}
assert qknorm_rope(**nobody) is None
lonely = inputs_of(2, 3, [64, 64])
lonely["k"] = lonely["k"][:, :0]
expected = exact(lonely)[0]
qknorm_rope(**lonely)
assert float((lonely["q"].double() - expected).abs().max()) < 5e-2
"""

OFFSETS = """
for dims in ([128, 128], [256, 64]):
    assert error(inputs_of(3, 4, dims, spread=0.1, offset=1e3, dtype="float32")) < 5e-3
    assert error(inputs_of(3, 4, dims, spread=1.0, offset=16.0)) < 5e-2
"""

COMPILED = """
import op

def apart(**inputs):
    before = inputs["q"].clone(), inputs["k"].clone()
    torch._dynamo.reset()  # one graph a form, and it keeps eight at most
    found = torch.compile(op.qknorm_rope, fullgraph=True, backend="aot_eager")(**inputs)
    assert all(map(torch.equal, before, (inputs["q"], inputs["k"]))), "it wrote to its arguments"
    assert all(result.is_contiguous() for result in found)
    for name, result in zip("qk", found):
        inputs[name].copy_(result)

for neox in (False, True):
    inputs = inputs_of(3, 2, [64, 32], is_neox=neox, dtype="float32")
    assert error(inputs, apart) < 1e-5
expanded = inputs | {"k": inputs["k"][:, :1].expand(-1, 2, -1)}
for result, wanted in zip(op.qknorm_rope(**expanded), exact(expanded)):
    assert float((result.double() - wanted).abs().max()) < 1e-5
torch.library.opcheck(op.qknorm_rope, tuple(inputs.values()), test_utils=("test_schema", "test_faketensor"))
"""

SHARES = """
import itertools
from any_width import shares, width_of_vectors

for head_dim, neox in itertools.product(range(2, 514, 2), (False, True)):
    for rope_dim in {2, head_dim, max(2, head_dim - 8)}:
        width = width_of_vectors(head_dim, rope_dim, neox, 24 * head_dim)
        unit = width * (2 if neox else 1)
        assert width in (1, 2, 4, 8) and head_dim % unit == rope_dim % unit == 0, (head_dim, rope_dim, neox)
        for tokens, heads in ((1, 1), (19, 24), (200, 40), (9000, 24), (9000, 1000)):
            lanes, rows, threads, slices = shares(tokens, heads, head_dim // unit, unit, 132)
            each = -(-(head_dim // unit) // lanes)
            assert lanes <= 32 and threads % 32 == 0 and threads <= 512 and each * unit * rows <= 32
            assert threads // 32 * (32 // lanes) * rows * slices >= heads
for beyond in ((65, 32, True), (514, 2, False), (64, 64, False, 65)):
    assert width_of_vectors(*beyond) is None, beyond
"""

ON_GPU = """
import itertools

dims = [[64, 64], [128, 64], [128, 128], [256, 64], [256, 128], [256, 256], [64, 16], [256, 32]]
for size, neox, kind in itertools.product(dims, (False, True), ("int32", "int64")):
    for tokens, heads, k_heads in ((1, 1, 1), (7, 5, 2), (19, 24, 24), (33, 30, 30), (2049, 8, 8), (4097, 16, 3)):
        inputs = inputs_of(tokens, heads, size, k_heads=k_heads, is_neox=neox, positions=f"{kind} shuffled")
        assert error(inputs) < 5e-2, (size, neox, kind, tokens)
    for order in ("arange", "zeros", "repeating"):
        assert error(inputs_of(70, 6, size, is_neox=neox, positions=f"{kind} {order}", cache_rows=33)) < 5e-2
        assert error(inputs_of(900, 24, size, is_neox=neox, positions=f"{kind} {order}", packed=True)) < 5e-2
for size in ([40, 40], [88, 32], [104, 104], [136, 128], [90, 90], [130, 2], [512, 40]):
    for neox, (tokens, heads, k_heads) in itertools.product((False, True), ((5, 3, 7), (47, 24, 24), (700, 30, 4))):
        for packed in (False, True):
            inputs = inputs_of(tokens, heads, size, k_heads=k_heads, is_neox=neox, packed=packed)
            assert error(inputs) < 5e-2, (size, neox, tokens, packed)
            (_, launch, *_) = solution._plans[inputs["q"].shape, neox][-1]
            assert launch is not None, (size, neox, tokens, packed)
    assert error(inputs_of(70, 6, size, positions="int32 shuffled", cache_rows=33)) < 5e-2, size
assert error(inputs_of(9000, 130, [90, 90])) < 5e-2
assert error(inputs_of(513, 130, [256, 256], k_heads=1)) < 5e-2  # more heads than a block takes
assert error(inputs_of(70000, 1, [64, 64], k_heads=2)) < 5e-2  # more tokens than a grid's second dimension
assert error(inputs_of(40, 3, [256, 24])) < 5e-2
assert error(inputs_of(40, 3, [128, 12], is_neox=True)) < 5e-2

def shifted(x):
    moved = torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)[1:].view(x.shape)
    return moved.copy_(x)

for name in ("q", "k", "q_weight", "k_weight", "cos_sin_cache", "positions"):
    inputs = inputs_of(33, 4, [128, 128])
    inputs[name] = shifted(inputs[name])
    assert error(inputs) < 5e-2, name
    try:
        qknorm_rope(**{**inputs, name: inputs[name].cpu()})
    except ValueError as problem:
        assert "q's device" in str(problem)
    else:
        raise AssertionError(f"took {name} from the CPU")

inputs = inputs_of(8424, 24, [128, 128])
expected = exact(inputs)
masters = inputs["q"].clone(), inputs["k"].clone()
inputs["q"].zero_(), inputs["k"].zero_()
other = torch.cuda.Stream()
other.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(other):
    torch.cuda._sleep(20_000_000)
    inputs["q"].copy_(masters[0]), inputs["k"].copy_(masters[1])
    qknorm_rope(**inputs)
other.synchronize()
assert all(float((inputs[name].double() - wanted).abs().max()) < 5e-2 for name, wanted in zip("qk", expected))
"""

OPERATOR_ON_GPU = """
for size, neox in (([64, 64], False), ([128, 128], True), ([128, 64], False), ([256, 256], True), ([88, 88], False),
                   ([90, 64], True)):
    for tokens, heads, k_heads in ((1, 1, 1), (7, 5, 2), (2049, 8, 8), (900, 24, 24)):
        for packed in (False, True):
            inputs = inputs_of(tokens, heads, size, k_heads=k_heads, is_neox=neox, packed=packed)
            assert error(inputs, apart) < 5e-2, (size, neox, tokens, packed)
"""


def run(code: str, device: str = "cpu") -> None:
    processes.run(f"device = {device!r}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words_and_any_layout_is_taken() -> None:
    run(REFUSED + LAYOUTS + SHARES)


def test_a_mean_far_from_zero_costs_no_accuracy() -> None:
    run(OFFSETS)


def test_the_operator_goes_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_the_cuda_paths_on_odd_shapes_layouts_and_another_stream() -> None:
    run(ON_GPU + LAYOUTS + OFFSETS, "cuda")


@pytest.mark.gpu
def test_the_operator_in_cuda() -> None:
    run(COMPILED + OPERATOR_ON_GPU, "cuda")
