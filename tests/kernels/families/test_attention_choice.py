"""attention_choice beyond its cases: refusals, layouts, what its check accepts, torch.compile, GPU kernels."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.kernels import processes

TASK = ROOT / "kernels" / "attention_choice"

TOOLS = """
import torch
import torch.nn.functional as F
import reference
from solution import attention_choice

def inputs_of(heads, tokens, head_dim, dtype="float32", seed=0, **more):
    case = dict(heads=heads, tokens=tokens, head_dim=head_dim, dtype=dtype, **more)
    return reference.make_inputs(case, seed, device)

def is_right(inputs, result):
    return all(error <= bound for _, error, bound in reference.check({}, inputs, result))

def right(inputs, result=None):
    result = attention_choice(**inputs) if result is None else result
    assert result.shape == inputs["query"].shape and result.dtype == inputs["query"].dtype
    assert is_right(inputs, result), reference.check({}, inputs, result)
"""

REFUSED = """
def refuses(words, **change):
    inputs = inputs_of(2, 5, 8) | change
    try:
        attention_choice(**inputs)
    except ValueError as problem:
        assert words in str(problem), problem
    else:
        raise AssertionError(f"took {words}")

head = torch.zeros(1, 2, 5, 8)
refuses("query must be [B, H, S, D] of float32, bfloat16 or float16, not [2, 5, 8] of torch.float32", query=head[0])
refuses("query must be [B, H, S, D] of float32, bfloat16 or float16, not [1, 2, 5, 8] of torch.int32", query=head.int())
refuses("key is torch.float16 on cpu, but query torch.float32 on cpu", key=head.half())
refuses("value of shape [1, 2, 4, 8] does not go with query, [1, 2, 5, 8]", value=head[:, :, 1:])
refuses("key of shape [1, 1, 5, 8] does not go with query, [1, 2, 5, 8]", key=head[:, :1])
refuses("key of shape [1, 2, 0, 8] does not go with query, [1, 2, 5, 8]", key=head[:, :, :0], value=head[:, :, :0])
"""

LAYOUTS = """
for dtype in dtypes:
    right(inputs_of(3, 70, 64, dtype)), right(inputs_of(2, 129, 40, dtype, keys=300, batch=2))
    inputs = inputs_of(2, 65, 64, dtype)
    right({name: tensor.contiguous() for name, tensor in inputs.items()})
    right({name: torch.cat([tensor, tensor], -1)[..., :64] for name, tensor in inputs.items()})
    right({name: torch.cat([tensor, tensor], -1)[..., ::2] for name, tensor in inputs.items()})
"""

CHECKED = """
inputs = inputs_of(2, 64, 64)
result = attention_choice(**inputs)
assert is_right(inputs, result)
for place, value in (((0, 1, 7, 3), result[0, 1, 7, 3] + 0.01), ((0, 0, 63, 0), float("nan"))):
    wrong = result.clone()
    wrong[place] = value
    assert not is_right(inputs, wrong), place
assert not is_right(inputs, attention_choice(inputs["query"], inputs["value"], inputs["key"]))
"""

COMPILED = """
import op

compiled = torch.compile(op.attention_choice, fullgraph=True, backend="aot_eager")
for more in ({}, {"keys": 9, "batch": 2}):
    inputs = inputs_of(2, 65, 64, **more)
    right(inputs, compiled(**inputs))
    torch.library.opcheck(op.attention_choice, tuple(inputs.values()), test_utils=("test_schema", "test_faketensor"))
"""

ON_GPU = """
import cudnn, efficient, flash

inputs = inputs_of(24, 1030, 128, "bfloat16")
for kernel in (cudnn, efficient, flash):
    right(inputs, kernel.attention_choice(**inputs))
for dtype in ("bfloat16", "float16", "float32"):
    for heads, tokens, head_dim in ((1, 64, 8), (5, 63, 128), (3, 257, 72), (2, 300, 136), (1, 512, 512), (2, 65, 36)):
        for asked, keys in ((tokens, tokens), (tokens, 77), (1, tokens), (tokens, 1)):
            right(inputs_of(heads, asked, head_dim, dtype, keys=keys))
"""


def run(code: str, device: str = "cpu") -> None:
    dtypes = ("float32", "bfloat16", "float16")
    processes.run(f"device, dtypes = {device!r}, {dtypes}\n{TOOLS}\n{code}", TASK, interpreted=device == "cpu")


def test_what_it_cannot_do_is_refused_in_words_and_any_layout_is_taken() -> None:
    run(REFUSED + LAYOUTS)


def test_its_check_sees_a_single_wrong_element() -> None:
    run(CHECKED)


def test_the_operator_goes_through_torch_compile() -> None:
    run(COMPILED)


@pytest.mark.gpu
def test_every_kernel_on_a_gpu() -> None:
    run(ON_GPU + LAYOUTS, "cuda")
