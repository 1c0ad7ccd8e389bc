"""Tensors without memory: what a source may do with them on its way to a launch, and what it is told."""

from __future__ import annotations

import pytest

from tests.harness.precompile.test_server import run_python

pytestmark = pytest.mark.timeout(300)  # imports torch's compiler: seconds, but minutes next to eight busy loops
BELIEVE = """
import json
import torch
from harness.precompile import fake_gpu as phantom

about = {"major": 9, "minor": 0, "name": "Stand-in"}
phantom.install(
    {"device": "cuda:1", "target": ["cuda", 90, 32], "driver_properties": {}, "device_properties": about}
)
seen = []
with phantom.FakeTensors():
    x = torch.randn(4, 64, device="cuda", generator=torch.Generator("cuda").manual_seed(3))
    for code in CODE:
        made = eval(code)
        assert isinstance(made, phantom.FakeCudaTensor), (code, type(made))
        seen.append([str(made.device), list(made.shape), list(made.stride()), made.data_ptr() % 64])
print(json.dumps(seen))
"""
PLAIN = ["cuda:1", [4, 64], [64, 1], 0]


@pytest.mark.parametrize("dynamo", ["", "import torch._dynamo\n"], ids=["", "after Dynamo"])
def test_what_comes_of_a_phantom_is_one(dynamo: str) -> None:
    codes = {
        "x": PLAIN,
        "torch.where(x > 0, x, 0.0)": PLAIN,
        "torch.add(x, torch.tensor(2.0), out=torch.empty_like(x))": PLAIN,
        "torch.cat([x, x])": ["cuda:1", [8, 64], [64, 1], 0],
        "x.max(dim=1).values": ["cuda:1", [4], [1], 0],
        "x[:, 1:]": ["cuda:1", [4, 63], [64, 1], 4],
        "x.t()": ["cuda:1", [64, 4], [1, 64], 0],
        "torch.zeros(4, 64).cuda()": PLAIN,
        "torch.empty(4, 64, device=x.get_device())": PLAIN,
        "torch.empty(4, 64, device=torch.device('cuda', 1))": PLAIN,
        "torch.empty(4, 64, device=torch.device(x.device.type))": PLAIN,
    }
    assert run_python(dynamo + BELIEVE.replace("CODE", repr(list(codes)))) == list(codes.values())


def test_a_device_is_what_it_is_called() -> None:
    """Sources compare them."""
    said = "print(json.dumps([str(torch.device('cuda', 1)), x.device == torch.device('cuda:1'), x.is_cuda]))"
    inside = BELIEVE.replace("CODE", "[]").replace("print(json.dumps(seen))", f"    {said}")
    assert run_python(inside) == ["cuda:1", True, True]
